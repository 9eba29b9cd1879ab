"""The seam to the operating system: all that the local engine asks of it.

Fourteen calls and no policy, so that a simulated disk can stand in for the real one: a disk that
forgets what was not synced, tears writes, fills up or fails. Errors are `OSError`, but a disk (or
quota) that is full is `JournalFull`, because that one the broker can live with.

Nothing is durable before `sync` (content) and `sync_directory` (names: after create, rename,
remove) or `sync_all` returned.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol
from zlib import crc32

from zbus.storage.port import JournalFull

OpenMode = Literal["read", "write", "create", "lock"]
"""`create`: must not exist yet. `lock`: made if missing and locked, BlockingIOError if it is."""


class Files(Protocol):
    """Files are numbers given by `open`; several may be open on one path."""

    def open(self, path: Path, mode: OpenMode) -> int: ...

    def close(self, file: int) -> None:
        """Never fails for an open file: whether what was written is there, `sync` tells."""

    def read(self, file: int, count: int, position: int) -> bytes:
        """Give `count` bytes, fewer only at the end of the file."""

    def write(self, file: int, data: bytes, position: int) -> None:
        """Write all of `data`; if it raises, any part of it may have been written."""

    def truncate(self, file: int, size: int) -> None: ...

    def size(self, file: int) -> int: ...

    def allocate(self, file: int, size: int) -> None:
        """Make sure that there is space for `size` bytes."""

    def sync(self, file: int) -> None:
        """Make the file's content and size durable."""

    def sync_all(self, file: int) -> bool:
        """Make everything on the file's file system durable; False: it cannot be done (so)."""

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""

    def rename(self, path: Path, target: Path) -> None:
        """Give a file or directory another name; a file that has it is replaced."""

    def remove(self, path: Path) -> None:
        """Remove a file or an empty directory."""

    def list(self, path: Path) -> list[str]: ...

    def make_directory(self, path: Path) -> bool:
        """Make one directory; False if something of that name is there."""


_FLAGS: dict[OpenMode, int] = {
    "read": os.O_RDONLY,
    "write": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "lock": os.O_RDWR | os.O_CREAT,
}
COPY_BYTES = 1 << 20  # at once
_FILE_MODE = 0o640  # messages are for the owner and its group only
_DIRECTORY_MODE = 0o750
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE))
"""Out of space, or of descriptors: in both cases what exists goes on, and nothing new is begun."""


class OsFiles:
    """The real operating system."""

    def __init__(self) -> None:
        self._syncfs = _find_syncfs()

    def open(self, path: Path, mode: OpenMode) -> int:
        try:
            file = os.open(path, _FLAGS[mode], _FILE_MODE)
        except OSError as error:
            _refuse_if_full(error)
            raise
        if mode == "lock":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
        return file

    def close(self, file: int) -> None:
        try:
            os.close(file)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise  # any other: Linux has closed it all the same

    def read(self, file: int, count: int, position: int) -> bytes:
        data = os.pread(file, count, position)
        while data and len(data) < count:
            more = os.pread(file, count - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, file: int, data: bytes, position: int) -> None:
        try:
            written = os.pwrite(file, data, position)
            while written < len(data):  # a short write is no error; the next call tells the reason
                written += os.pwrite(file, memoryview(data)[written:], position + written)
        except OSError as error:
            _refuse_if_full(error)
            raise

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def allocate(self, file: int, size: int) -> None:
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            _refuse_if_full(error)
            raise

    def sync(self, file: int) -> None:
        os.fdatasync(file)

    def sync_all(self, file: int) -> bool:
        if self._syncfs is None:
            return False
        if self._syncfs(file) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return True

    def sync_directory(self, path: Path) -> None:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            _refuse_if_full(error)
            raise
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def rename(self, path: Path, target: Path) -> None:
        try:
            os.replace(path, target)
        except OSError as error:
            _refuse_if_full(error)
            raise

    def remove(self, path: Path) -> None:
        try:
            os.unlink(path)
        except IsADirectoryError:
            os.rmdir(path)
        except OSError as error:  # some file systems need space for it
            _refuse_if_full(error)
            raise

    def list(self, path: Path) -> list[str]:
        return os.listdir(path)

    def make_directory(self, path: Path) -> bool:
        try:
            os.mkdir(path, _DIRECTORY_MODE)
        except FileExistsError:
            return False
        except OSError as error:
            _refuse_if_full(error)
            raise
        return True


def _refuse_if_full(error: OSError) -> None:
    """Who raises an error that was handed to him leaves a cycle: the caller raises all others."""
    if error.errno in _FULL:
        raise JournalFull(os.strerror(error.errno or errno.ENOSPC)) from error


def _find_syncfs() -> ctypes._NamedFuncPointer | None:
    """Give libc's syncfs where it can be relied on: before Linux 5.8 it reported no errors."""
    system = os.uname()
    release = system.release.split(".")
    try:
        if system.sysname != "Linux" or (int(release[0]), int(release[1])) < (5, 8):
            return None
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, IndexError, OSError, ValueError):
        return None
    function.argtypes = (ctypes.c_int,)
    function.restype = ctypes.c_int
    return function


@contextmanager
def opened(files: Files, path: Path, mode: OpenMode) -> Iterator[int]:
    """A file that is closed at the end."""
    file = files.open(path, mode)
    try:
        yield file
    finally:
        files.close(file)


def copy_bytes(files: Files, source: int, start: int, stop: int, target: int, position: int) -> int:
    """Copy bytes of an open file to a place in another one, and give their crc32. Raises OSError if
    there are not that many."""
    checksum = 0
    while start < stop:
        data = files.read(source, min(COPY_BYTES, stop - start), start)
        if not data:
            raise OSError(f"the file ends at byte {start}, not {stop}")
        checksum = crc32(data, checksum)
        files.write(target, data, position)
        start += len(data)
        position += len(data)
    return checksum


def write_whole(files: Files, path: Path, made: Path, data: bytes) -> None:
    """Put a file in the place of the one of that name, durably, whole or not at all; it is called
    `made` until then. Raises JournalFull."""
    with suppress(FileNotFoundError):  # a crash left it
        files.remove(made)
    try:
        with opened(files, made, "create") as file:
            files.write(file, data, 0)
            files.sync(file)
        files.rename(made, path)
    except JournalFull:
        with suppress(FileNotFoundError):
            files.remove(made)
        raise
    files.sync_directory(path.parent)


def make_directories(files: Files, path: Path) -> None:
    """Make a directory and those above it, durably."""
    try:
        made = files.make_directory(path)
    except FileNotFoundError:
        make_directories(files, path.parent)
        made = files.make_directory(path)
    if made:
        files.sync_directory(path.parent)
    files.list(path)  # raises NotADirectoryError


def reason(error: OSError, named: Path | None = None) -> str:
    """Say for people why the system refused, and which path, unless they are `named` that one."""
    text = error.strerror or str(error)
    place = error.filename
    return text if place is None or (named and Path(place) == named) else f"{place}: {text}"
