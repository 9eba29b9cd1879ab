"""The seam to the operating system: that of the journal, and a link.

So an archive can be tested on the disk that loses power. Nothing is durable before it is synced;
what takes a name that others look for is durable before it does.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

from zbus.storage.local.files import Files, OsFiles, make_directories, opened

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

RECORD_BYTES_MAX: Final = 1 << 30


class ArchiveFiles(Files, Protocol):
    """All that an archive asks of the system."""

    def link(self, path: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError if that name is in use."""


class OsArchiveFiles(OsFiles):
    """The real operating system."""

    def link(self, path: Path, target: Path) -> None:
        os.link(path, target)


class Out(io.RawIOBase):
    """A file that is written from its beginning on, as pyarrow wants one."""

    def __init__(self, files: ArchiveFiles, path: Path) -> None:
        self._files = files
        self._file = files.open(path, "create")
        self._position = 0
        self.crc = 0  # CRC-32 of what was written

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer) -> int:
        raw = bytes(data)
        self._files.write(self._file, raw, self._position)
        self._position += len(raw)
        self.crc = crc32(raw, self.crc)
        return len(raw)

    def sync(self) -> None:
        """What was written is durable."""
        self._files.sync(self._file)

    def release(self) -> None:
        """Close the file. (`close` is called by pyarrow, and by Python for what is forgotten.)"""
        if self._file >= 0:
            file, self._file = self._file, -1
            self._files.close(file)


def put_once(files: ArchiveFiles, path: Path, made: Path, data: bytes) -> None:
    """Write a file whole and durably, called `made` until it takes its name. Raises FileExistsError
    if there is one of that name; then nothing has changed."""
    make_directories(files, path.parent)
    make_directories(files, made.parent)
    with opened(files, made, "create") as file:
        files.write(file, data, 0)
        files.sync(file)
    try:
        files.link(made, path)
        files.sync_directory(path.parent)
    finally:
        with suppress(FileNotFoundError):
            files.remove(made)


def read_whole(files: Files, path: Path) -> bytes:
    """Raises FileNotFoundError."""
    with opened(files, path, "read") as file:
        return files.read(file, min(files.size(file), RECORD_BYTES_MAX), 0)


def names_in(files: Files, path: Path) -> list[str]:
    """In order; nothing if there is no such directory."""
    try:
        return sorted(files.list(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def source(files: Files, path: Path) -> Iterator[In]:
    """A file that pyarrow reads."""
    with opened(files, path, "read") as file:
        yield In(files, file)


class In(io.RawIOBase):
    """A file that is read anywhere, as pyarrow wants one."""

    def __init__(self, files: Files, file: int) -> None:
        self._files = files
        self._file = file
        self._size = files.size(file)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        data = self._files.read(self._file, count, self._position)
        self._position += len(data)
        return data

    def size(self) -> int:
        return self._size
