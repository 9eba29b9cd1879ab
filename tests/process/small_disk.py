"""A file system of 64 MiB that can be filled and freed.

As root it is a real one: ext4 on a loop device, or tmpfs. Elsewhere a broker is started that counts
the bytes itself: `python -m tests.process.small_disk <folder> serve ...`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from zbus.storage.local.files import OsFiles
from zbus.storage.port import JournalFull

SIZE_BYTES: Final = 64 << 20


class SmallDisk:
    """A folder with little room; `program` is the broker to start on it."""

    def __init__(self, folder: Path, program: tuple[str, ...] = ("zbus",)) -> None:
        self.data_dir = folder / "data"
        self.program = program
        self._foreign = folder / "foreign"
        self._folder = folder

    def free_bytes(self) -> int:
        if self.program != ("zbus",):
            return SIZE_BYTES - used_bytes(self._folder)
        space = os.statvfs(self._folder)
        return space.f_bavail * space.f_frsize

    def leave(self, count: int) -> None:
        """Let a foreign file take all space but `count` bytes (and some for its block list)."""
        self.clear()
        taken = self.free_bytes() - max(count, 128 << 10)
        with self._foreign.open("wb") as file:
            if taken > 0 and self.program == ("zbus",):
                os.posix_fallocate(file.fileno(), 0, taken)
            elif taken > 0:
                file.truncate(taken)

    def clear(self) -> None:
        """Remove the foreign file."""
        self._foreign.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """The best that can be had here, in a new folder below `folder`."""
    mount = folder / "disk"
    mount.mkdir()
    kind = _mount(folder / "image", mount)
    if kind is None:
        yield SmallDisk(mount, ("tests.process.small_disk", str(mount)))
        return
    try:
        yield SmallDisk(mount)
    finally:
        subprocess.run(["umount", mount], check=True, capture_output=True)


def _mount(image: Path, mount: Path) -> str | None:
    if os.geteuid() != 0:
        return None
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    ways: tuple[tuple[list[str], ...], ...] = (
        (
            ["mkfs.ext4", "-q", "-m", "0", str(image)],
            ["mount", "-o", "loop", str(image), str(mount)],
        ),
        (["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "zbus-test", str(mount)],),
    )
    for commands in ways:
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return commands[-1][2]
    return None


def used_bytes(folder: Path) -> int:
    """What the files below a folder say is their size."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                continue
    return total


def limit(folder: Path) -> None:
    """Let the broker of this process find no more room than SIZE_BYTES below `folder`."""
    write, allocate = OsFiles.write, OsFiles.allocate

    def grow(file: int, end: int) -> None:
        more = end - os.fstat(file).st_size
        if more > 0 and used_bytes(folder) + more > SIZE_BYTES:
            raise JournalFull("No space left on device")

    def limited_write(self: OsFiles, file: int, data: bytes, position: int) -> None:
        grow(file, position + len(data))
        write(self, file, data, position)

    def limited_allocate(self: OsFiles, file: int, size: int) -> None:
        grow(file, size)
        allocate(self, file, size)

    OsFiles.write = limited_write  # type: ignore[method-assign]
    OsFiles.allocate = limited_allocate  # type: ignore[method-assign]


if __name__ == "__main__":
    from zbus.cli import main

    limit(Path(sys.argv.pop(1)))
    main(prog_name="zbus")
