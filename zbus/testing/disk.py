"""A simulated disk: the journal's seam to the operating system, with everything in memory.

It does what a file system does (the same errors, descriptors, locks), counts the operations, lets
any of them fail, fills up, and above all it can lose power. `crash` gives a disk as a power cut
may leave it: any legal subset of what was not synced.

* Of a file: every piece (512 bytes or 4 KiB, aligned) as it was at the last sync or after any write
  since, whatever became of the others; any of the sizes since; zeros where nothing was written.
* Of names: any of the creates, renames and removes since the directory was synced, those of one
  name in their order. A rename happens or not. A file whose name is lost is gone, synced or not.

So `sync` keeps a file's content and size, but not its name; `sync_directory` the names in it;
`sync_all` everything. A sync that failed is never made good: what it was to keep stays in danger.

Nothing here depends on time, threads, hashes or addresses: the same calls leave the same disk. Not
for use from several threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import attrs

from zbus.storage.local.files import OpenMode
from zbus.storage.port import JournalFull
from zbus.testing.inodes import Directory, File, random_choices
from zbus.testing.volume import Volume, os_error

SECTOR_BYTES = 512
PAGE_BYTES = 4096

_Names = list[str]  # within the class, `list` is a call
_Paths = list[Path]


@attrs.frozen
class Operation:
    """A call that is about to happen: the name of the method, and what it is about."""

    name: str
    path: Path
    position: int  # of a write; else 0
    size: int  # bytes of a write, and what truncate and allocate are given; else 0
    index: int  # the first operation of a disk is 0


class ShortWrite(Exception):
    """Raised by `faults` for a write: `count` bytes are written, then it fails with `error`."""

    def __init__(self, count: int, error: Exception) -> None:
        super().__init__(f"{count} bytes written, then: {error}")
        self.count = count
        self.error = error


class _Open(NamedTuple):
    file: File
    path: Path
    mode: OpenMode


class Disk:
    """The calls are those of `zbus.storage.local.files.Files`.

    `capacity_bytes` is what all files together may take, allocated space included; more raises
    JournalFull after part of the data was written. `faults` is called before every operation and
    makes it fail by raising what the operation is to raise, or ShortWrite.
    """

    def __init__(self, capacity_bytes: int | None = None, volume: Volume | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.faults: Callable[[Operation], None] | None = None
        self._volume = Volume() if volume is None else volume
        self._open: dict[int, _Open] = {}

    @property
    def used_bytes(self) -> int:
        """What all files take, those that are open and have no name any more included."""
        return self._volume.used_bytes

    # -- files ----------------------------------------------------------------------------

    def open(self, path: Path, mode: OpenMode) -> int:
        self._begin("open", path)
        directory, name = self._volume.parent(path)
        node = directory.names.get(name)
        if node is None:
            if mode in ("read", "write"):
                raise os_error(errno.ENOENT, path)
            node = File(self._volume.number())
            self._volume.rename((directory, name, node))
        elif mode == "create":
            raise os_error(errno.EEXIST, path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        if mode == "lock" and node.locked:
            raise os_error(errno.EWOULDBLOCK, path)
        node.locked = node.locked or mode == "lock"
        node.opens += 1
        file = 3  # the lowest number that is free, as everywhere
        while file in self._open:
            file += 1
        self._open[file] = _Open(node, path, mode)
        return file

    def close(self, file: int) -> None:
        opened = self._opened("close", file)
        del self._open[file]
        node = opened.file
        node.opens -= 1
        if opened.mode == "lock":
            node.locked = False
        self._volume.free(node)

    def read(self, file: int, count: int, position: int) -> bytes:
        return self._opened("read", file, position, count).file.read(count, position)

    def write(self, file: int, data: bytes, position: int) -> None:
        opened = self._find(file)
        try:
            self._begin("write", opened.path, position, len(data))
        except ShortWrite as short:
            self._write(opened, data[: short.count], position)
            raise short.error from None
        self._write(opened, data, position)

    def truncate(self, file: int, size: int) -> None:
        opened = self._opened("truncate", file, 0, size)
        if opened.mode == "read":
            raise os_error(errno.EINVAL, opened.path)
        self._volume.used_bytes += size - opened.file.size
        opened.file.resize(size)

    def size(self, file: int) -> int:
        return self._opened("size", file).file.size

    def allocate(self, file: int, size: int) -> None:
        opened = self._opened("allocate", file, 0, size)
        if opened.mode == "read":
            raise os_error(errno.EBADF, opened.path)
        more = size - opened.file.size
        if more > self._left():
            raise JournalFull(os.strerror(errno.ENOSPC))
        if more > 0:
            self._volume.used_bytes += more
            opened.file.resize(size)

    def sync(self, file: int) -> None:
        opened = self._find(file)
        try:
            self._begin("sync", opened.path)
        except Exception:  # a process that is ended in here has not met an error
            opened.file.fail_sync()
            raise
        opened.file.sync()

    def sync_all(self, file: int) -> bool:
        opened = self._find(file)
        try:
            self._begin("sync_all", opened.path)
        except Exception:  # a process that is ended in here has not met an error
            self._volume.fail_sync()
            raise
        self._volume.sync()
        return True

    # -- names ----------------------------------------------------------------------------

    def sync_directory(self, path: Path) -> None:
        directory = self._volume.directory(path)
        try:
            self._begin("sync_directory", path)
        except Exception:  # a process that is ended in here has not met an error
            directory.syncable = False
            raise
        if directory.syncable:
            self._volume.settle(directory)

    def rename(self, path: Path, target: Path) -> None:
        self._begin("rename", path)
        source, name = self._volume.parent(path)
        goal, new_name = self._volume.parent(target)
        node, old = source.names.get(name), goal.names.get(new_name)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if node is old:
            return
        if isinstance(node, Directory) and goal in self._volume.below(node):
            raise os_error(errno.EINVAL, target)
        if isinstance(old, Directory) and source in self._volume.below(old):
            raise os_error(errno.ENOTEMPTY, target)
        if isinstance(node, Directory) and isinstance(old, File):
            raise os_error(errno.ENOTDIR, target)
        if isinstance(node, File) and isinstance(old, Directory):
            raise os_error(errno.EISDIR, target)
        if isinstance(old, Directory) and old.names:
            raise os_error(errno.ENOTEMPTY, target)
        self._volume.rename((source, name, None), (goal, new_name, node))

    def remove(self, path: Path) -> None:
        self._begin("remove", path)
        directory, name = self._volume.parent(path)
        node = directory.names.get(name)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Directory) and node.names:
            raise os_error(errno.ENOTEMPTY, path)
        self._volume.rename((directory, name, None))

    def list(self, path: Path) -> _Names:
        self._begin("list", path)
        return sorted(self._volume.directory(path).names)

    def make_directory(self, path: Path) -> bool:
        self._begin("make_directory", path)
        if not path.name:
            return False
        directory, name = self._volume.parent(path)
        if name in directory.names:
            return False
        self._volume.rename((directory, name, Directory(self._volume.number())))
        return True

    # -- what ends a process or a machine -------------------------------------------------

    def kill(self) -> Disk:
        """The process dies: give the disk as the next one finds it, nothing open, no locks.

        What was written is there, and what was not synced can still be lost. This disk stays as
        it is, here and in `crash`.
        """
        return Disk(self.capacity_bytes, self._volume.copy())

    def crash(self, random: Random) -> Disk:
        """The power is cut: give a disk that this may leave, all of it durable by then.

        Everything legal is possible, but the extremes (all there, all lost, everything up to one
        moment) are likelier than chance would have them.
        """
        piece_bytes = random.choice((SECTOR_BYTES, PAGE_BYTES))
        crashed = self._volume.crashed(lambda changes: random_choices(random, changes), piece_bytes)
        return Disk(self.capacity_bytes, crashed)

    def crash_states(
        self, limit: int | None = None, piece_bytes: int = SECTOR_BYTES
    ) -> Iterator[Disk]:
        """All disks that a power cut may leave, one after another; at most `limit`.

        Their number grows with the power of what was not synced: for small histories. Two may be
        equal.
        """
        path: list[tuple[int, int]] = []  # the choices on the way to a disk: taken, of how many
        depth = 0

        def choose(moments: list[int]) -> int:
            nonlocal depth
            if depth == len(path):
                path.append((0, len(moments)))
            depth += 1
            return path[depth - 1][0]

        made = 0
        while limit is None or made < limit:
            depth = 0
            crashed = self._volume.crashed(lambda _: choose, piece_bytes)
            yield Disk(self.capacity_bytes, crashed)
            made += 1
            while path and path[-1][0] + 1 == path[-1][1]:
                path.pop()
            if not path:
                return
            taken, count = path.pop()
            path.append((taken + 1, count))

    # -- for tests that look, and that damage ---------------------------------------------

    def list_all(self) -> _Paths:
        """All files, in order."""
        return self._volume.files()

    def read_file(self, path: Path) -> bytes:
        """What a file holds. Not an operation."""
        directory, name = self._volume.parent(path)
        node = directory.names.get(name)
        if not isinstance(node, File):
            raise os_error(errno.ENOENT, path)
        return node.read(node.size, 0)

    def write_file(self, path: Path, data: bytes) -> None:
        """Make a file, or replace what it holds, durably. Its directory is there. No operation."""
        directory, name = self._volume.parent(path)
        node = directory.names.get(name)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        if node is None:
            node = File(self._volume.number())
            self._volume.rename((directory, name, node))
            self._volume.settle(directory)
        self._volume.used_bytes += len(data) - node.size
        node.data = bytearray(data)
        node.size = len(data)
        node.changes.clear()

    # -- within ---------------------------------------------------------------------------

    def _begin(self, name: str, path: Path, position: int = 0, size: int = 0) -> None:
        index = self.operations
        self.operations += 1
        if self.faults is not None:
            self.faults(Operation(name, path, position, size, index))

    def _find(self, file: int) -> _Open:
        opened = self._open.get(file)
        if opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return opened

    def _opened(self, name: str, file: int, position: int = 0, size: int = 0) -> _Open:
        opened = self._find(file)
        self._begin(name, opened.path, position, size)
        return opened

    def _write(self, opened: _Open, data: bytes, position: int) -> None:
        if opened.mode == "read":
            raise os_error(errno.EBADF, opened.path)
        node = opened.file
        more = max(position + len(data) - node.size, 0) if data else 0
        left = self._left()
        if more > left:
            fits = max(len(data) - (more - left), 0)
            if fits:
                self._write(opened, data[:fits], position)
            raise JournalFull(os.strerror(errno.ENOSPC))
        self._volume.used_bytes += more
        node.write(data, position)

    def _left(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 62
        return max(self.capacity_bytes - self.used_bytes, 0)
