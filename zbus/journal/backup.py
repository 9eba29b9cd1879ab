"""A copy of a data directory, made beside a running broker, and a data directory made of it.

    DIR/lock                                       one backup at a time
    DIR/manifest.json                              what belongs to the backup, with checksums
    DIR/<topic>/<partition>/<base>.log-<crc>-<bytes>   segments; the crc is their first batch's

Of each partition the copy is as it was at one moment after the backup began: all segments but the
newest never change, and of the newest all whole batches are taken. A segment that is there already
is not copied again. The manifest takes its name when everything it speaks of is durable, and only
then is what no manifest speaks of removed: so an interrupted backup leaves the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final
from zlib import crc32

import msgspec

from zbus.journal import naming
from zbus.journal.batch import HEADER_BYTES, Kind, batch_follows, read_header
from zbus.journal.files import Files
from zbus.journal.ports import JournalDamage, JournalError
from zbus.journal.segment import WINDOW_BYTES, BadBatch, walk
from zbus.journal.verify import find_directories, is_directory

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 1 << 30
RESTORING_SUFFIX: Final = ".restoring"
LOOKS_MAX: Final = 20
"""So often a partition is looked at again because a segment went away while it was copied."""

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Copied(msgspec.Struct, frozen=True):
    """A segment in a backup."""

    topic: str  # the name of its directory
    partition: _Natural
    base: _Natural
    end_offset: _Natural
    bytes: _Natural
    first_crc: _Natural  # of the first batch
    last_crc: _Natural  # of the last
    crc32: _Natural  # of the file

    @property
    def file(self) -> str:
        return f"{naming.segment_name(self.base)}-{self.first_crc:08x}-{self.bytes}"


class Manifest(msgspec.Struct):
    """What belongs to a backup."""

    time_ms: int
    segments: list[Copied]
    checksum: int = 0
    format: int = FORMAT


class Report(msgspec.Struct):
    """What a backup or restore did."""

    partitions: int = 0
    copied: int = 0  # segments
    kept: int = 0
    bytes: int = 0  # that were copied
    removed: int = 0  # segments of former backups


class BackupDamaged(JournalError):
    """A backup is not what was written; names the file."""


class _Again(Exception):
    """A segment went away or changed; the partition has to be looked at again."""


def back_up(files: Files, data_dir: Path, target: Path, time_ms: int) -> Report:
    """Bring the backup in `target` up to what `data_dir` holds now; `time_ms` is noted in it.

    Raises JournalDamage if a log is damaged, JournalError or OSError if it cannot be done; then
    the backup is what it was before.
    """
    _refuse_nested(data_dir, target)
    try:
        found, _ = find_directories(files, data_dir)
    except OSError as error:
        raise JournalError(f"cannot open {data_dir}: {error}") from error
    if not found and naming.LOCK not in files.list(data_dir):
        raise JournalError(f"{data_dir} is not a data directory of zbus")
    lock = _take(files, target)
    try:
        former = _read_manifest(files, target).segments if _has_manifest(files, target) else []
        backup = _Backup(files, target, former)
        segments = [copied for path, _ in found for copied in backup.lane(path)]
        manifest = Manifest(time_ms, segments, _checksum(segments))
        _write_whole(files, target / MANIFEST, msgspec.json.encode(manifest))
        backup.clean(segments)
        backup.report.partitions = len({(copied.topic, copied.partition) for copied in segments})
        return backup.report
    finally:
        files.close(lock)


def _refuse_nested(data_dir: Path, target: Path) -> None:
    one, other = data_dir.resolve(), target.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise JournalError(f"{target} and {data_dir} must not lie within each other")


def _take(files: Files, target: Path) -> int:
    """Make the directory of a backup if it is missing, and lock it."""
    files.make_directory(target)
    names = files.list(target)
    if names and naming.LOCK not in names:
        raise JournalError(f"{target} holds something else than a backup")
    if names and MANIFEST not in names and naming.RESERVE in names:
        raise JournalError(f"{target} is a data directory")
    try:
        return files.open(target / naming.LOCK, "lock")
    except BlockingIOError as error:
        raise JournalError(f"another backup to {target} is under way") from error


class _Backup:
    """One run."""

    def __init__(self, files: Files, target: Path, former: list[Copied]) -> None:
        self._files = files
        self._target = target
        self._there = {_place(copied): copied for copied in former if self._is_there(copied)}
        self.report = Report()

    def lane(self, directory: Path) -> list[Copied]:
        """Copy one partition, and look again if it changed meanwhile."""
        for _ in range(LOOKS_MAX):
            with suppress(_Again, FileNotFoundError):
                return self._look(directory)
            if directory.parent.name not in self._files.list(directory.parent.parent):
                return []
            if directory.name not in self._files.list(directory.parent):
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
        source = files.open(path, "read")
        try:
            size = files.size(source)
            head = files.read(source, HEADER_BYTES, 0)
            if len(head) < HEADER_BYTES:
                return None
            try:
                first_crc = read_header(head).crc
            except JournalDamage as error:
                raise JournalDamage(f"{path}: {error}") from error
            place = (directory.parent.name, int(directory.name), base, size, first_crc)
            known = self._there.get(place)
            if known is not None and self._is_same(known, follower):
                self.report.kept += 1
                return known
            return self._copy(path, source, size, first_crc, follower is None)
        finally:
            files.close(source)

    def _is_same(self, known: Copied, follower: Path | None) -> bool:
        """A sealed segment's last crc is the one that the next segment's first batch names."""
        if follower is None:
            return False  # the newest is small, and is read anew
        file = self._files.open(follower, "read")
        try:
            return (
                read_header(self._files.read(file, HEADER_BYTES, 0)).previous_crc == known.last_crc
            )
        except JournalDamage:
            return False
        finally:
            self._files.close(file)

    def _copy(
        self, path: Path, source: int, size: int, first_crc: int, newest: bool
    ) -> Copied | None:
        """Copy all whole batches; None if there is none."""
        files = self._files
        directory = self._directory(path.parent)
        made = directory / (path.name + naming.UNFINISHED_SUFFIX)
        with suppress(FileNotFoundError):
            files.remove(made)
        target = files.open(made, "create")
        try:
            copied = self._copy_batches(path, source, size, first_crc, newest, target)
            files.sync(target)
        finally:
            files.close(target)
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
        try:
            file = self._files.open(_path_of(self._target, copied), "read")
        except FileNotFoundError:
            return False
        size = self._files.size(file)
        self._files.close(file)
        return size == copied.bytes

    def clean(self, segments: list[Copied]) -> None:
        """Remove what the manifest does not speak of."""
        files = self._files
        wanted = {_path_of(self._target, copied) for copied in segments}
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
    """Make a data directory of a backup; `data_dir` must be missing or empty.

    It is made beside `data_dir` and takes the name when everything in it is durable. Raises
    BackupDamaged if a file is not what was copied, JournalError or OSError if it cannot be done;
    then nothing is left behind.
    """
    if not is_there(files, source / MANIFEST):
        raise JournalError(f"{source} is not a backup: it has no {MANIFEST}")
    with suppress(FileNotFoundError):
        if files.list(data_dir):
            raise JournalError(f"{data_dir} is not empty; a backup is restored to a new directory")
    unfinished = data_dir.with_name(data_dir.name + RESTORING_SUFFIX)
    report = Report()
    manifest = _read_manifest(files, source)
    _remove_tree(files, unfinished)  # of a restore that was killed
    files.make_directory(unfinished)
    try:
        for copied in manifest.segments:
            _restore_one(files, source, unfinished, copied)
            report.copied += 1
            report.bytes += copied.bytes
        for path in (*_directories(files, unfinished), unfinished):
            files.sync_directory(path)
        files.rename(unfinished, data_dir)
    except BaseException:
        _remove_tree(files, unfinished)
        raise
    files.sync_directory(data_dir.parent)
    report.partitions = len({(copied.topic, copied.partition) for copied in manifest.segments})
    return report


def _restore_one(files: Files, source: Path, target: Path, copied: Copied) -> None:
    path = _path_of(source, copied)
    directory = target / copied.topic / str(copied.partition)
    files.make_directory(directory.parent)
    files.make_directory(directory)
    try:
        file = files.open(path, "read")
    except FileNotFoundError:
        raise BackupDamaged(f"{path} is missing in the backup") from None
    made = files.open(directory / naming.segment_name(copied.base), "create")
    try:
        position = checksum = 0
        while data := files.read(file, WINDOW_BYTES, position):
            checksum = crc32(data, checksum)
            files.write(made, data, position)
            position += len(data)
        if (position, checksum) != (copied.bytes, copied.crc32):
            raise BackupDamaged(f"{path} is not what was copied: its checksum is wrong")
        files.sync(made)
    finally:
        files.close(made)
        files.close(file)


def is_there(files: Files, path: Path) -> bool:
    """Tell whether a directory holds a file of that name."""
    try:
        return path.name in files.list(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _place(copied: Copied) -> tuple[str, int, int, int, int]:
    return (copied.topic, copied.partition, copied.base, copied.bytes, copied.first_crc)


def _path_of(target: Path, copied: Copied) -> Path:
    return target / copied.topic / str(copied.partition) / copied.file


def _has_manifest(files: Files, target: Path) -> bool:
    return is_there(files, target / MANIFEST)


def _read_manifest(files: Files, target: Path) -> Manifest:
    path = target / MANIFEST
    file = files.open(path, "read")
    try:
        text = files.read(file, MANIFEST_BYTES_MAX, 0)
    finally:
        files.close(file)
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{path} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise BackupDamaged(f"{path} has format {manifest.format}, which is unknown")
    names = {copied.topic for copied in manifest.segments}
    if manifest.checksum != _checksum(manifest.segments) or not all(
        map(naming.is_topic_directory, names)
    ):
        raise BackupDamaged(f"{path} is not what was written: its checksum is wrong")
    return manifest


def _checksum(segments: list[Copied]) -> int:
    return crc32(msgspec.json.encode(segments))


def _write_whole(files: Files, path: Path, data: bytes) -> None:
    """Put a file in the place of the one of that name, whole or not at all."""
    made = path.with_name(path.name + naming.UNFINISHED_SUFFIX)
    with suppress(FileNotFoundError):
        files.remove(made)
    file = files.open(made, "create")
    try:
        files.write(file, data, 0)
        files.sync(file)
    finally:
        files.close(file)
    files.rename(made, path)
    files.sync_directory(path.parent)


def _directories(files: Files, path: Path) -> Iterator[Path]:
    for name in files.list(path):
        if is_directory(files, path / name):
            yield from _directories(files, path / name)
            yield path / name


def _remove_tree(files: Files, path: Path) -> None:
    try:
        names = files.list(path)
    except FileNotFoundError:
        return
    for name in names:
        if is_directory(files, path / name):
            _remove_tree(files, path / name)
        else:
            files.remove(path / name)
    files.remove(path)
