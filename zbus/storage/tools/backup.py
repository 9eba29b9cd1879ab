"""A copy of a data directory, made beside a running broker, and a data directory made of it.

    DIR/lock                                       one backup at a time
    DIR/manifest.json                              what belongs to the backup, with checksums
    DIR/<topic>/<partition>/<base>.log-<crc>-<bytes>   segments; the crc is their first batch's

A directory of several processes has one backup, which says of each segment which shard it is in.
Of each partition the copy is as it was at one moment after the backup began: all segments but the
newest never change, and of the newest all whole batches are taken. A segment that is there already
is not copied again. The manifest takes its name when everything it speaks of is durable, and only
then is what no manifest speaks of removed: so an interrupted backup leaves the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from zbus.storage.format.batch import HEADER_BYTES, Kind, batch_follows, read_header
from zbus.storage.local import naming
from zbus.storage.local.directory import make_identity, refuse_backup, remove_tree
from zbus.storage.local.files import (
    Files,
    copy_bytes,
    make_directories,
    opened,
    reason,
    write_whole,
)
from zbus.storage.local.segment import WINDOW_BYTES, BadBatch, walk
from zbus.storage.local.shards import find_shards, identity_of, mark, shard_directory
from zbus.storage.port import JournalDamage, JournalError, JournalFull
from zbus.storage.tools.manifest import (
    FORMAT_OF_SHARDS,
    MANIFEST,
    BackupDamaged,
    Copied,
    Manifest,
    checksum,
    is_there,
    path_of,
    read_manifest,
)
from zbus.storage.tools.verify import find_directories, is_directory

RESTORING_SUFFIX: Final = ".restoring"
LOOKS_MAX: Final = 20
"""This often a partition is looked at again because a segment went away while it was copied."""


class Report(msgspec.Struct):
    """What a backup or restore did."""

    partitions: int = 0
    shards: int = 1
    copied: int = 0  # segments
    kept: int = 0
    bytes: int = 0  # that were copied
    removed: int = 0  # segments of former backups


class _Again(Exception):
    """A segment went away or changed; the partition has to be looked at again."""


def back_up(
    files: Files, data_dir: Path, target: Path, time_ms: int, *, replace: bool = False
) -> Report:
    """Bring the backup in `target` up to what `data_dir` holds now; `time_ms` is noted in it.

    With `replace` it may be a backup of another data directory, or `data_dir` may be empty.
    Raises JournalDamage if a log is damaged, JournalError or OSError if it cannot be done; then
    the backup is what it was before.
    """
    _refuse_nested(data_dir, target)
    shards, found = _find_source(files, data_dir)
    lock = _take(files, target)
    try:
        has_former = is_there(files, target / MANIFEST)
        former = read_manifest(files, target) if has_former else Manifest(0, [])
        manifest = Manifest(time_ms, [], identity_of(files, data_dir), shards=len(shards))
        if len(shards) > 1:
            manifest.format = FORMAT_OF_SHARDS
        if former.identity and former.identity != manifest.identity and not replace:
            raise JournalError(
                f"{target} is a backup of another data directory than {data_dir}; choose another "
                "directory, or give up what is in it with --replace"
            )
        backup = _Backup(files, target, former.segments, shards)
        manifest.segments = [copied for path in found for copied in backup.lane(path)]
        if find_shards(files, data_dir) != shards:  # or topics that moved would be missing
            raise JournalError(f"the topics of {data_dir} moved meanwhile: run the command again")
        if former.segments and not manifest.segments and not replace:
            raise JournalError(
                f"{data_dir} holds nothing, and the backup in {target} does; if that is right, "
                "give up what is in it with --replace"
            )
        manifest.checksum = checksum(manifest)
        made = target / f".{MANIFEST}{naming.UNFINISHED_SUFFIX}"  # no topic begins with a dot
        write_whole(files, target / MANIFEST, made, msgspec.json.encode(manifest))
        backup.clean(manifest.segments)
        places = {(copied.topic, copied.partition) for copied in manifest.segments}
        backup.report.partitions, backup.report.shards = len(places), len(shards)
        return backup.report
    except JournalFull as error:
        raise JournalFull(f"the backup to {target} stopped: {error}") from error
    finally:
        files.close(lock)


def _find_source(files: Files, data_dir: Path) -> tuple[list[Path], list[Path]]:
    """Give the directories of shards, and of partitions."""
    try:
        refuse_backup(files, data_dir)
        names = files.list(data_dir)
        shards = find_shards(files, data_dir)
        found = [path for path, _ in find_directories(files, data_dir)[0]]
    except OSError as error:
        raise JournalError(f"cannot open {data_dir}: {reason(error, data_dir)}") from error
    if not (found or {naming.LOCK, naming.IDENTITY, naming.SHARDS} & set(names)):
        raise JournalError(f"{data_dir} is not a data directory of zbus")
    for name in naming.TAKEN_LATE:
        if name in names and is_directory(files, data_dir / name):
            raise JournalError(
                f"{data_dir / name} is a topic of an early version: start the broker once, "
                "it will give it another name"
            )
    return shards, found


def _refuse_nested(data_dir: Path, target: Path) -> None:
    one, other = data_dir.resolve(), target.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise JournalError(f"{target} and {data_dir} must not lie within each other")


def _take(files: Files, target: Path) -> int:
    """Make the directory of a backup if it is missing, and those above it; lock it."""
    make_directories(files, target)
    names = files.list(target)
    if names and naming.LOCK not in names:
        raise JournalError(f"{target} holds something else than a backup")
    is_used = {naming.RESERVE, naming.IDENTITY} & set(names)
    if naming.SHARDS in names or (is_used and MANIFEST not in names):
        raise JournalError(f"{target} is a data directory")
    try:
        return files.open(target / naming.LOCK, "lock")
    except BlockingIOError as error:
        raise JournalError(f"another backup to {target} is under way") from error


class _Backup:
    """One run."""

    def __init__(
        self, files: Files, target: Path, former: list[Copied], shards: list[Path]
    ) -> None:
        self._files = files
        self._shards = shards
        self._target = target
        self._there = {_place(copied): copied for copied in former if self._is_there(copied)}
        self.report = Report()

    def lane(self, directory: Path) -> list[Copied]:
        """Copy one partition, and look again if it changed meanwhile."""
        for _ in range(LOOKS_MAX):
            with suppress(_Again, FileNotFoundError):
                return self._look(directory)
            if not (is_there(self._files, directory.parent) and is_there(self._files, directory)):
                return []
        raise JournalError(
            f"{directory} changes all the time, or its segments do not continue each other: "
            "try again, and if it stays so, `zbus verify` tells more"
        )

    def _look(self, directory: Path) -> list[Copied]:
        names = self._files.list(directory)
        bases = sorted(base for name in names if (base := naming.segment_base(name)) is not None)
        copies: list[Copied] = []
        for index, base in enumerate(bases):
            follower = (
                directory / naming.segment_name(bases[index + 1])
                if index + 1 < len(bases)
                else None
            )
            copied = self._segment(directory, base, follower)
            if copied is None:
                if follower is not None:
                    raise _Again
                continue  # it is just being made
            if copies and copies[-1].end_offset != base:
                raise _Again
            copies.append(copied)
        return copies

    def _segment(self, directory: Path, base: int, follower: Path | None) -> Copied | None:
        files = self._files
        path = directory / naming.segment_name(base)
        with opened(files, path, "read") as source:
            size = files.size(source)
            head = files.read(source, HEADER_BYTES, 0)
            if len(head) < HEADER_BYTES:
                return None
            try:
                first_crc = read_header(head).crc
            except JournalDamage as error:
                raise JournalDamage(f"{path}: {error}") from error
            shard = self._shards.index(directory.parent.parent)
            place = (shard, directory.parent.name, int(directory.name), base, size, first_crc)
            known = self._there.get(place)
            if known is not None and self._is_same(known, follower):
                self.report.kept += 1
                return known
            return self._copy(path, source, size, first_crc, follower is None)

    def _is_same(self, known: Copied, follower: Path | None) -> bool:
        """A sealed segment's last crc is the one that the next segment's first batch names."""
        if follower is None:
            return False  # the newest is small, and is read anew
        with suppress(JournalDamage), opened(self._files, follower, "read") as file:
            header = read_header(self._files.read(file, HEADER_BYTES, 0))
            return header.previous_crc == known.last_crc
        return False

    def _copy(
        self, path: Path, source: int, size: int, first_crc: int, newest: bool
    ) -> Copied | None:
        """Copy all whole batches; None if there is none."""
        files = self._files
        directory = self._directory(path.parent)
        made = directory / (path.name + naming.UNFINISHED_SUFFIX)
        with suppress(FileNotFoundError):
            files.remove(made)
        with opened(files, made, "create") as target:
            copied = self._copy_batches(path, source, size, first_crc, newest, target)
            files.sync(target)
        if copied is None:
            files.remove(made)
            return None
        files.rename(made, directory / copied.file)
        files.sync_directory(directory)
        self._there[_place(copied)] = copied
        self.report.copied += 1
        self.report.bytes += copied.bytes
        return copied

    def _copy_batches(
        self, path: Path, source: int, size: int, first_crc: int, newest: bool, target: int
    ) -> Copied | None:
        files = self._files
        position = written = checksum = 0
        last_crc: int | None = None
        end = 0
        waiting: list[bytes] = []
        try:
            for at, header, raw in walk(files, source, path, 0, size):
                if (last_crc is None) != (header.kind is Kind.CHECKPOINT):
                    raise JournalDamage(f"{path} at byte {at}: a segment begins with a checkpoint")
                if last_crc is not None and header.previous_crc != last_crc:
                    raise JournalDamage(f"{path} at byte {at}: does not follow the batch before")
                last_crc, end = header.crc, header.end_offset
                waiting.append(raw)
                position = at + header.length
                checksum = crc32(raw, checksum)
                if position - written >= WINDOW_BYTES:
                    files.write(target, b"".join(waiting), written)
                    written, waiting = position, []
        except BadBatch as bad:
            tail = files.read(source, size - bad.position, bad.position)
            if not newest or batch_follows(tail, 0, last_crc):
                raise JournalDamage(f"{bad}; `zbus verify` tells more") from bad
        if last_crc is None:
            return None
        files.write(target, b"".join(waiting), written)
        return Copied(
            topic=path.parent.parent.name,
            partition=int(path.parent.name),
            base=naming.segment_base(path.name) or 0,
            end_offset=end,
            bytes=position,
            first_crc=first_crc,
            last_crc=last_crc,
            crc32=checksum,
            shard=self._shards.index(path.parent.parent.parent),
        )

    def _directory(self, source: Path) -> Path:
        topic = self._target / source.parent.name
        directory = topic / source.name
        if self._files.make_directory(topic):
            self._files.sync_directory(self._target)
        if self._files.make_directory(directory):
            self._files.sync_directory(topic)
        return directory

    def _is_there(self, copied: Copied) -> bool:
        with (
            suppress(FileNotFoundError),
            opened(self._files, path_of(self._target, copied), "read") as file,
        ):
            return self._files.size(file) == copied.bytes
        return False

    def clean(self, segments: list[Copied]) -> None:
        """Remove what the manifest does not speak of."""
        files = self._files
        wanted = {path_of(self._target, copied) for copied in segments}
        for directory, _ in find_directories(files, self._target)[0]:
            for name in files.list(directory):
                is_ours = naming.segment_base(name[: len(naming.segment_name(0))]) is not None
                if is_ours and directory / name not in wanted:
                    files.remove(directory / name)
                    self.report.removed += 1
            for empty in (directory, directory.parent):
                with suppress(OSError):
                    files.remove(empty)


def restore(files: Files, source: Path, data_dir: Path) -> Report:
    """Make a data directory of a backup, for as many processes as the one that it is of;
    `data_dir` must be missing or empty.

    It is made beside `data_dir` and takes the name when everything in it is durable. It gets an
    identity of its own. Raises BackupDamaged if a file is not what was copied, JournalError or
    OSError if it cannot be done; then nothing is left behind.
    """
    if not is_there(files, source / MANIFEST):
        raise JournalError(f"{source} is not a backup: it has no {MANIFEST}")
    with suppress(FileNotFoundError):
        if files.list(data_dir):
            raise JournalError(f"{data_dir} is not empty; a backup is restored to a new directory")
    unfinished = data_dir.with_name(data_dir.name + RESTORING_SUFFIX)
    report = Report()
    manifest = read_manifest(files, source)
    with suppress(FileNotFoundError):
        remove_tree(files, unfinished)  # of a restore that was killed
    make_directories(files, unfinished)
    try:
        shards = [unfinished]
        if manifest.shards > 1:
            shards = [shard_directory(unfinished, number) for number in range(manifest.shards)]
            mark(files, unfinished, manifest.shards)
        for shard in shards:
            make_directories(files, shard)
            make_identity(files, shard)
        for copied in manifest.segments:
            _restore_one(files, source, shards[copied.shard], copied)
            report.copied += 1
            report.bytes += copied.bytes
        for path in (*_directories(files, unfinished), unfinished):
            files.sync_directory(path)
        files.rename(unfinished, data_dir)
    except BaseException as error:
        with suppress(FileNotFoundError):
            remove_tree(files, unfinished)
        if isinstance(error, JournalFull):
            raise JournalFull(f"the restore to {data_dir} stopped: {error}") from error
        raise
    files.sync_directory(data_dir.parent)
    report.partitions = len({(copied.topic, copied.partition) for copied in manifest.segments})
    report.shards = manifest.shards
    return report


def _restore_one(files: Files, backup: Path, target: Path, copied: Copied) -> None:
    path = path_of(backup, copied)
    directory = target / copied.topic / str(copied.partition)
    files.make_directory(directory.parent)
    files.make_directory(directory)
    if not is_there(files, path):
        raise BackupDamaged(f"{path} is missing in the backup")
    target_path = directory / naming.segment_name(copied.base)
    with opened(files, path, "read") as source, opened(files, target_path, "create") as made:
        size = files.size(source)
        if (size, copy_bytes(files, source, 0, size, made, 0)) != (copied.bytes, copied.crc32):
            raise BackupDamaged(f"{path} is not what was copied: its checksum is wrong")
        files.sync(made)


def _place(copied: Copied) -> tuple[int, str, int, int, int, int]:
    of_lane = copied.shard, copied.topic, copied.partition
    return (*of_lane, copied.base, copied.bytes, copied.first_crc)


def _directories(files: Files, path: Path) -> Iterator[Path]:
    for name in files.list(path):
        if is_directory(files, path / name):
            yield from _directories(files, path / name)
            yield path / name
