"""The simulated disk behaves as the real one does, and loses power as the real one may."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from zbus.journal.files import Files, OpenMode, OsFiles
from zbus.testing.disk import Disk

NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "nowhere/a", "a/b")
"""Some become files, some directories, some both in turn."""


USES = ("write", "write", "truncate", "allocate", "read", "read", "size", "sync", "close")


class Twins:
    """The same calls on a real and on a simulated disk."""

    def __init__(self, random: Random, root: Path) -> None:
        self.random = random
        self.roots = (root, Path("/"))
        self.disks: tuple[Files, Files] = (OsFiles(), Disk())
        self.files: list[tuple[int, int]] = []
        self.log: list[object] = []

    def path(self) -> str:
        return self.random.choice(NAMES)

    def both(self, call: Callable[[Files, Path, int], Any]) -> list[Any]:
        found: list[Any] = []
        for which in (0, 1):
            try:
                found.append(call(self.disks[which], self.roots[which], which))
            except OSError as error:
                found.append(errno.errorcode[error.errno or 0])
        return found

    def named(self) -> None:
        name, other = self.path(), self.path()
        kind = self.random.choice(["make", "make", "remove", "rename", "list", "sync"])
        calls: dict[str, Callable[[Files, Path, int], Any]] = {
            "make": lambda disk, root, _: disk.make_directory(root / name),
            "remove": lambda disk, root, _: disk.remove(root / name),
            "rename": lambda disk, root, _: disk.rename(root / name, root / other),
            "list": lambda disk, root, _: sorted(disk.list(root / name)),
            "sync": lambda disk, root, _: disk.sync_directory(root / name),
        }
        self.agree((kind, name, other), self.both(calls[kind]))

    def opened(self) -> None:
        name = self.path()
        modes: list[OpenMode] = ["read", "write", "create", "create", "lock"]
        mode = self.random.choice(modes)
        if mode == "read" and self.is_directory(name):
            return  # Linux opens directories for reading, and fails later
        found = self.both(lambda disk, root, _: disk.open(root / name, mode))
        if isinstance(found[0], int) and isinstance(found[1], int):
            self.files.append((found[0], found[1]))
            self.log.append((mode, name, len(self.files)))
        else:
            self.agree((mode, name), found)

    def is_directory(self, name: str) -> bool:
        return (self.roots[0] / name).is_dir()

    def used(self) -> None:
        if not self.files:
            return
        pair = self.random.choice(self.files)
        position, size = self.random.randrange(3000), self.random.randrange(1, 3000)
        kind = self.random.choice(USES)
        data = self.random.randbytes(size)
        calls: dict[str, Callable[[Files, Path, int], Any]] = {
            "write": lambda disk, _, which: disk.write(pair[which], data, position),
            "truncate": lambda disk, _, which: disk.truncate(pair[which], size),
            "allocate": lambda disk, _, which: disk.allocate(pair[which], size),
            "read": lambda disk, _, which: disk.read(pair[which], size, position),
            "size": lambda disk, _, which: disk.size(pair[which]),
            "sync": lambda disk, _, which: disk.sync(pair[which]),
            "close": lambda disk, _, which: disk.close(pair[which]),
        }
        if kind == "close":
            self.files.remove(pair)
        self.agree((kind, pair, position, size), self.both(calls[kind]))

    def agree(self, what: object, found: list[Any]) -> None:
        self.log.append((what, found[0]))
        assert found[0] == found[1], self.log


@pytest.mark.parametrize("seed", range(60))
def test_it_behaves_as_the_operating_system_does(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    twins = Twins(random, tmp_path)
    for _ in range(120):
        random.choice([twins.named, twins.opened, twins.used])()
    disk = twins.disks[1]
    assert isinstance(disk, Disk)
    real = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert disk.list_all() == [Path("/") / path.relative_to(tmp_path) for path in real]
    for path in real:
        assert disk.read_file(Path("/") / path.relative_to(tmp_path)) == path.read_bytes()
    check_space(disk)
    for pair in twins.files:
        twins.both(lambda disk, _, which, pair=pair: disk.close(pair[which]))  # type: ignore[misc]
    check_space(disk)


def check_space(disk: Disk) -> None:
    for other in (disk.kill(), disk.crash(Random(1))):
        assert other.used_bytes == sum(len(other.read_file(path)) for path in other.list_all())
    assert disk.used_bytes >= sum(len(disk.read_file(path)) for path in disk.list_all())
