"""The simulated disk behaves as the real one does, and loses power as the real one may."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from zbus.storage.local.files import Files, OpenMode, OsFiles
from zbus.storage.port import JournalFull
from zbus.testing.disk import Disk, Operation, ShortWrite

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


# -- what the real disk cannot show --------------------------------------------------------


FILE = Path("/d/f")


@pytest.fixture
def disk() -> Disk:
    """One durable file of 600 bytes `a`."""
    disk = Disk()
    disk.make_directory(FILE.parent)
    disk.write_file(FILE, b"a" * 600)
    disk.sync_directory(Path("/"))
    return disk


def left(disk: Disk) -> set[bytes]:
    """All that a power cut may leave of the file."""
    return {other.read_file(FILE) for other in disk.crash_states()}


def test_what_was_synced_is_there(disk: Disk) -> None:
    file = disk.open(FILE, "write")
    disk.write(file, b"b" * 1000, 600)
    disk.truncate(file, 1200)
    disk.sync(file)
    assert left(disk) == {b"a" * 600 + b"b" * 600}


def test_every_sector_of_a_write_for_itself(disk: Disk) -> None:
    """The file is 600 bytes long, so the write touches its second sector and makes a third."""
    file = disk.open(FILE, "write")
    disk.write(file, b"b" * 700, 600)
    a, b, zero = b"a" * 600, b"b", b"\0"
    second = {b * 424, zero * 424}
    whole = {a + part + rest for part in second for rest in (b * 276, zero * 276)}
    torn = {a + part for part in second}  # the size had got to the end of the sector
    assert left(disk) == whole | torn | {a}


def test_a_later_write_without_an_earlier_one(disk: Disk) -> None:
    file = disk.open(FILE, "write")
    disk.write(file, b"1" * 512, 0)
    disk.write(file, b"2" * 88, 512)
    first, second = (b"a" * 512, b"1" * 512), (b"a" * 88, b"2" * 88)
    assert left(disk) == {one + two for one in first for two in second}


def test_one_sector_is_as_it_was_at_some_moment(disk: Disk) -> None:
    file = disk.open(FILE, "write")
    disk.write(file, b"1", 0)
    disk.write(file, b"2", 1)
    found = {data[:2] for data in left(disk)}
    assert found == {b"aa", b"1a", b"12"}


def test_a_truncate_may_be_lost(disk: Disk) -> None:
    file = disk.open(FILE, "write")
    disk.truncate(file, 100)
    first, second = (b"a" * 512, b"a" * 100 + bytes(412)), (b"a" * 88, bytes(88))
    assert left(disk) == {one + two for one in first for two in second} | {b"a" * 100}


def names_left(disk: Disk) -> set[tuple[str, ...]]:
    return {tuple(map(str, other.list_all())) for other in disk.crash_states()}


def test_a_file_whose_name_is_lost_is_gone(disk: Disk) -> None:
    file = disk.open(Path("/d/g"), "create")
    disk.write(file, b"g", 0)
    disk.sync(file)
    assert names_left(disk) == {("/d/f",), ("/d/f", "/d/g")}
    disk.sync_directory(Path("/d"))
    assert names_left(disk) == {("/d/f", "/d/g")}


def test_names_come_in_any_order(disk: Disk) -> None:
    for name in ("/d/g", "/d/h"):
        disk.close(disk.open(Path(name), "create"))
    assert names_left(disk) == {
        ("/d/f",),
        ("/d/f", "/d/g"),
        ("/d/f", "/d/h"),
        ("/d/f", "/d/g", "/d/h"),
    }


def test_a_rename_happens_or_not(disk: Disk) -> None:
    disk.write_file(Path("/d/g"), b"new")
    disk.rename(Path("/d/g"), FILE)
    assert names_left(disk) == {("/d/f",), ("/d/f", "/d/g")}
    assert left(disk) == {b"new", b"a" * 600}


def test_a_directory_takes_with_it_what_is_in_it(disk: Disk) -> None:
    disk.make_directory(Path("/e"))
    disk.close(disk.open(Path("/e/f"), "create"))
    disk.sync_directory(Path("/e"))
    assert names_left(disk) == {("/d/f",), ("/d/f", "/e/f")}


def test_a_removal_may_be_lost(disk: Disk) -> None:
    disk.remove(FILE)
    assert names_left(disk) == {(), ("/d/f",)}
    disk.sync_directory(Path("/d"))
    assert names_left(disk) == {()}


def test_sync_all_is_for_names_and_content(disk: Disk) -> None:
    file = disk.open(Path("/d/g"), "create")
    disk.write(file, b"g" * 600, 0)
    disk.rename(FILE, Path("/d/h"))
    assert disk.sync_all(file)
    (other,) = disk.crash_states()
    assert [str(path) for path in other.list_all()] == ["/d/g", "/d/h"]


def test_a_kill_keeps_what_a_power_cut_may_take(disk: Disk) -> None:
    file = disk.open(FILE, "lock")
    disk.write(file, b"b" * 10, 0)
    killed = disk.kill()
    assert killed.read_file(FILE)[:10] == b"b" * 10
    assert left(killed) == left(disk)
    killed.open(FILE, "lock")  # the lock went with its process
    with pytest.raises(BlockingIOError):
        disk.open(FILE, "lock")


@pytest.mark.parametrize("name", ["sync", "sync_all"])
def test_after_a_failed_sync_the_next_one_lies(disk: Disk, name: str) -> None:
    """As the kernel does: the pages are clean for it, and never written."""
    file = disk.open(FILE, "write")
    disk.write(file, b"b" * 10, 0)
    disk.faults = failing(OSError(errno.EIO, "broken"), name)
    with pytest.raises(OSError, match="broken"):
        getattr(disk, name)(file)
    disk.faults = None
    disk.sync(file)
    assert len(left(disk)) == 2


def failing(error: Exception, name: str) -> Callable[[Operation], None]:
    def fault(operation: Operation) -> None:
        if operation.name == name:
            raise error

    return fault


def test_faults_are_told_of_every_operation(disk: Disk) -> None:
    told: list[Operation] = []
    disk.faults = told.append
    before = disk.operations
    file = disk.open(FILE, "write")
    disk.write(file, b"xyz", 5)
    assert told == [
        Operation("open", FILE, 0, 0, before),
        Operation("write", FILE, 5, 3, before + 1),
    ]


def test_a_short_write(disk: Disk) -> None:
    file = disk.open(FILE, "write")
    disk.faults = failing(ShortWrite(2, JournalFull("no space")), "write")
    with pytest.raises(JournalFull):
        disk.write(file, b"bbbb", 0)
    assert disk.read(file, 4, 0) == b"bbaa"


def test_a_full_disk_takes_what_fits() -> None:
    disk = Disk(capacity_bytes=100)
    file = disk.open(Path("/f"), "create")
    disk.write(file, b"x" * 60, 0)
    with pytest.raises(JournalFull):
        disk.write(file, b"y" * 60, 60)
    assert disk.size(file) == disk.used_bytes == 100
    disk.truncate(file, 60)
    disk.write(file, b"z" * 60, 0)  # over what is there
    with pytest.raises(JournalFull):
        disk.allocate(file, 101)
    disk.remove(Path("/f"))
    assert disk.used_bytes == 60  # still open
    disk.close(file)
    assert disk.used_bytes == 0


@pytest.mark.parametrize("seed", range(30))
def test_random_crashes_are_legal_ones(seed: int, disk: Disk) -> None:
    """`crash` gives what `crash_states` knows, if the pieces are the same."""
    random = Random(seed)
    file = disk.open(FILE, "write")
    for _ in range(3):
        disk.write(file, random.randbytes(random.randrange(1, 900)), random.randrange(600))
    legal = left(disk) | {other.read_file(FILE) for other in disk.crash_states(piece_bytes=4096)}
    assert all(disk.crash(random).read_file(FILE) in legal for _ in range(50))
