"""What the tests of the engines share: a writer that chains batches, a loop, odd disks."""

from __future__ import annotations

import errno
from pathlib import Path

from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.port import JournalFull
from zbus.testing.engines import Bench


class Loop(Bench):
    """With the engine over files."""

    def local(
        self,
        data_dir: Path,
        files: OsFiles | None = None,
        reserve_bytes: int = 0,
        reserves: SharedReserves | None = None,
    ) -> LocalJournal:
        return LocalJournal(
            data_dir,
            self.post,
            self.failures.append,
            files,
            reserve_bytes=reserve_bytes,
            reserves=reserves,
        )


def segments(data_dir: Path) -> list[str]:
    """Files of lanes; those on their way out are not, which a thread removes meanwhile."""
    lanes = [lane for lane in data_dir.glob("*/*") if ".removed-" not in lane.name]
    found = [str(path.relative_to(data_dir)) for lane in lanes for path in lane.glob("*")]
    return sorted(name for name in found if ".removed-" not in name)


class SmallDisk(OsFiles):
    """Holds `space` bytes for files written through it; writes what fits before it refuses."""

    def __init__(self, space: int) -> None:
        super().__init__()
        self.space = space
        self.written = 0  # bytes, ever
        self.paths: dict[int, Path] = {}

    def open(self, path: Path, mode: OpenMode) -> int:
        file = super().open(path, mode)
        self.paths[file] = path
        return file

    def write(self, file: int, data: bytes, position: int) -> None:
        fits = min(len(data), self.space)
        self.space -= fits
        self.written += fits
        super().write(file, data[:fits], position)
        if fits < len(data):
            raise JournalFull("no space left")

    def truncate(self, file: int, size: int) -> None:
        self.space += max(self.size(file) - size, 0)
        super().truncate(file, size)

    def allocate(self, file: int, size: int) -> None:
        more = size - self.size(file)
        if more > self.space:
            raise JournalFull("no space left")
        self.space -= more
        super().truncate(file, size)

    def rename(self, path: Path, target: Path) -> None:
        self.space += target.stat().st_size if target.is_file() else 0
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        size = path.stat().st_size if path.is_file() else 0
        super().remove(path)
        self.space += size


class BrokenDisk(OsFiles):
    """Fails each call that is named in `broken`."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = set(broken)

    def _try(self, name: str) -> None:
        if name in self.broken:
            raise OSError(errno.EIO, "input/output error")

    def write(self, file: int, data: bytes, position: int) -> None:
        self._try("write")
        super().write(file, data, position)

    def sync(self, file: int) -> None:
        self._try("sync")
        super().sync(file)

    def sync_directory(self, path: Path) -> None:
        self._try("sync_directory")
        super().sync_directory(path)

    def remove(self, path: Path) -> None:
        self._try("remove")
        super().remove(path)
