"""What belongs to a backup: `manifest.json`, and whether the files are still what it says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final
from zlib import crc32

import msgspec

from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened
from zbus.storage.local.segment import WINDOW_BYTES
from zbus.storage.local.shards import SHARDS_MAX
from zbus.storage.port import JournalError

FORMAT: Final = 1
FORMAT_OF_SHARDS: Final = 2  # of several processes: an older program would make one directory of it
MANIFEST: Final = naming.MANIFEST
MANIFEST_BYTES_MAX: Final = 1 << 30

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Copied(msgspec.Struct, frozen=True, omit_defaults=True):
    """A segment in a backup."""

    topic: str  # the name of its directory
    partition: _Natural
    base: _Natural
    end_offset: _Natural
    bytes: _Natural
    first_crc: _Natural  # of the first batch
    last_crc: _Natural  # of the last
    crc32: _Natural  # of the file
    shard: _Natural = 0  # that it is in

    @property
    def file(self) -> str:
        return f"{naming.segment_name(self.base)}-{self.first_crc:08x}-{self.bytes}"


class Manifest(msgspec.Struct):
    """What belongs to a backup."""

    time_ms: int
    segments: list[Copied]
    identity: str = ""  # of the data directory; empty if it had none
    checksum: int = 0
    format: int = FORMAT
    shards: Annotated[int, msgspec.Meta(ge=1, le=SHARDS_MAX)] = 1


class BackupDamaged(JournalError):
    """A backup is not what was written; names the file."""


def path_of(target: Path, copied: Copied) -> Path:
    """Give the place of a segment in the backup."""
    return target / copied.topic / str(copied.partition) / copied.file


def read_manifest(files: Files, target: Path) -> Manifest:
    """Raises BackupDamaged if it is not what was written."""
    path = target / MANIFEST
    with opened(files, path, "read") as file:
        text = files.read(file, MANIFEST_BYTES_MAX, 0)
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{path} cannot be read: {error}") from None
    if manifest.format != (FORMAT_OF_SHARDS if manifest.shards > 1 else FORMAT):
        raise BackupDamaged(f"{path} has format {manifest.format}, which is unknown")
    names = {copied.topic for copied in manifest.segments}
    are_names = all(map(naming.is_topic_directory, names))
    are_shards = all(copied.shard < manifest.shards for copied in manifest.segments)
    if manifest.checksum != checksum(manifest) or not (are_names and are_shards):
        raise BackupDamaged(f"{path} is not what was written: its checksum is wrong")
    return manifest


def checksum(manifest: Manifest) -> int:
    """Give the checksum of all that matters in it."""
    shards = b"" if manifest.shards == 1 else b"%d" % manifest.shards
    segments = crc32(msgspec.json.encode(manifest.segments), crc32(shards))
    return crc32(manifest.identity.encode(), segments)


def is_there(files: Files, path: Path) -> bool:
    """Tell whether a directory holds a file of that name."""
    try:
        return path.name in files.list(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False


class BackupCheckup(msgspec.Struct):
    """What is in a backup, and what of it is not what was copied."""

    target: Path
    manifest: Manifest
    damaged: list[str]  # a sentence for each file


def check_backup(
    files: Files, target: Path, progress: Callable[[int], None] = lambda _: None
) -> BackupCheckup:
    """Read all of a backup. Raises JournalError if it is none, or if one is being made there;
    BackupDamaged if the manifest itself is damaged. `progress` is called with bytes as they are
    read."""
    if not is_there(files, target / MANIFEST):
        raise JournalError(f"{target} is not a backup: it has no {MANIFEST}")
    lock: int | None = None
    try:
        with suppress(OSError):  # on a disk that cannot be written, there is no backup either
            try:
                lock = files.open(target / naming.LOCK, "lock")
            except BlockingIOError as error:
                raise JournalError(f"a backup to {target} is under way; try later") from error
        manifest = read_manifest(files, target)
        found = [_check_file(files, target, copied, progress) for copied in manifest.segments]
        return BackupCheckup(target, manifest, [words for words in found if words])
    finally:
        if lock is not None:
            files.close(lock)


def _check_file(files: Files, target: Path, copied: Copied, progress: Callable[[int], None]) -> str:
    path = path_of(target, copied)
    try:
        file = files.open(path, "read")
    except FileNotFoundError:
        return f"{path} is missing"
    position = found = 0
    try:
        while data := files.read(file, WINDOW_BYTES, position):
            found = crc32(data, found)
            position += len(data)
            progress(len(data))
    except OSError as error:
        return f"{path} cannot be read at byte {position}: {error.strerror or error}"
    finally:
        files.close(file)
    if position != copied.bytes:
        return f"{path} has {position} bytes, not {copied.bytes}"
    return "" if found == copied.crc32 else f"{path} is not what was copied: its checksum is wrong"


def backup_as_json(result: BackupCheckup) -> dict[str, Any]:
    """Give all of it as what JSON can hold."""
    return {
        "format": 1,
        "backup": str(result.target),
        "damaged": bool(result.damaged),
        "left": result.damaged,
        "identity": result.manifest.identity,
        "time_ms": result.manifest.time_ms,
        "shards": result.manifest.shards,
        "segments": len(result.manifest.segments),
    }
