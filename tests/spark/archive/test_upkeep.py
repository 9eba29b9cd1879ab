"""Compacting, expiring and vacuuming: against a model, and killed at every operation."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.limits import checked
from tests.spark.archive.harness import (
    HERE,
    ROOT,
    Killed,
    LinkDisk,
    bodies,
    chains,
    changes_of,
    kill_at,
    lane,
    numbers,
    put_numbers,
    run,
)
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import layout as names
from zbus.spark.archive.compact import compact
from zbus.spark.archive.expire import expire
from zbus.spark.archive.layout import Attempt
from zbus.spark.archive.records import EXPIRED
from zbus.spark.archive.vacuum import vacuum
from zbus.spark.archive.verify import verify
from zbus.spark.archive.writer import Shape
from zbus.spark.errors import Unverified

DAY_MS = 86_400_000
LATE = 1 << 43  # after everything


def day(number: int) -> str:
    """2027-01-15 is the first."""
    return f"2027-01-{15 + number}"


class Upkeep(RuleBasedStateMachine):
    """An archive and what should be in it. Each message's body is a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = LinkDisk()
        self.log = MemoryLog()
        self.log.stored["orders"] = [[]]
        self.log.incarnations["orders"] = "1"
        self.live: list[tuple[bytes, str]] = []  # of this incarnation: body and day
        self.archived = 0  # of those
        self.gone = 0
        self.expected: list[tuple[int, bytes, str]] = []
        self.day = 0
        self.count = 0
        self.time_ms = 1_000

    def now(self) -> int:
        self.time_ms += 1
        return self.time_ms

    @rule(count=st.integers(1, 5), days=st.sampled_from([0, 0, 1]))
    def put(self, count: int, days: int) -> None:
        self.day = min(self.day + days, 9)
        made = [b"%d" % (self.count + number) for number in range(count)]
        self.count += count
        self.log.put("orders", made, time_ms=TIME_MS + self.day * DAY_MS)
        self.live += [(body, day(self.day)) for body in made]

    @rule(small=st.booleans())
    def archive(self, small: bool) -> None:
        shape = Shape(file_bytes=100 if small else 10_000)
        run(self.disk, self.log, shape=shape, now=self.now, allow_loss=True)
        for offset in range(max(self.archived, self.gone), len(self.live)):
            self.expected.append((offset, *self.live[offset]))
        self.archived = len(self.live)

    @rule(file_bytes=st.sampled_from([0, 300, 10_000]))
    def compact(self, file_bytes: int) -> None:
        shape = Shape(file_bytes=file_bytes)
        compact(chains(self.disk), shape, HERE, self.now(), [], files=self.disk)
        again = compact(chains(self.disk), shape, HERE, self.now(), [], files=self.disk)
        assert again == []

    @rule(number=st.integers(0, 9))
    def expire(self, number: int) -> None:
        expire(chains(self.disk), day(number), self.now(), [])
        self.expected = [each for each in self.expected if each[2] >= day(number)]

    @rule(age=st.integers(0, 20))
    def vacuum(self, age: int) -> None:
        """Records are of the model's time, files of the clock's."""
        vacuum(chains(self.disk), self.time_ms - age)

    @rule()
    def vacuum_all(self) -> None:
        vacuum(chains(self.disk), LATE)
        paths = [path for path in self.disk.list_all() if path.suffix == ".parquet"]
        assert len(paths) == len(lane(self.disk).files)

    @precondition(lambda self: len(self.live) > self.gone)
    @rule(data=st.data())
    def retention(self, data: st.DataObject) -> None:
        self.gone = data.draw(st.integers(self.gone, len(self.live)))
        self.log.first["orders", 0] = self.gone

    @rule()
    def make_again(self) -> None:
        if self.live:
            self.log.stored["orders"] = [[]]
            self.log.incarnations["orders"] += "0"
            self.log.first.clear()
            self.live, self.archived, self.gone = [], 0, 0

    @invariant()
    def it_is_what_it_should_be(self) -> None:
        assert bodies(self.disk) == [(offset, body) for offset, body, _ in self.expected]
        assert verify(chains(self.disk), HERE, [], quick=True, files=self.disk).wrong == []


TestUpkeep = Upkeep.TestCase
TestUpkeep.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


# -- killed ---------------------------------------------------------------------------------------


def an_archive() -> LinkDisk:
    """Days of small files."""
    log = MemoryLog()
    disk = LinkDisk()
    for number in range(3):
        for _ in range(2):
            put_numbers(log, 4, time_ms=TIME_MS + number * DAY_MS)
            run(disk, log, now=lambda: 1_000)
    return disk


WORK: dict[str, Callable[[LinkDisk], Any]] = {
    "compact": lambda disk: compact(chains(disk), Shape(), HERE, 2_000, [], files=disk),
    "expire": lambda disk: expire(chains(disk), day(1), 2_000, []),
    "vacuum": lambda disk: vacuum(chains(disk), LATE),
}


@pytest.mark.parametrize("power", [True, *checked([False])], ids=["power cut", "killed"])
@pytest.mark.parametrize("name", WORK)
def test_killed_at_every_operation(name: str, power: bool) -> None:
    made = an_archive()
    if name == "vacuum":  # there is something to remove
        WORK["compact"](made)
        WORK["expire"](made)
    made = made.crash(Random(0))  # all of that is durable
    disk = made.kill()
    changes = changes_of(disk, lambda: WORK[name](disk))
    first = 8 if name in ("expire", "vacuum") else 0
    for index in changes:
        killed = made.kill()
        kill_at(killed, index)
        with pytest.raises(Killed):
            WORK[name](killed)
        left = killed.crash(Random(index)) if power else killed.kill()
        assert bodies(left) in (numbers(24), numbers(24, first))
        WORK[name](left)
        assert bodies(left) == numbers(24, first)
        assert verify(chains(left), HERE, [], files=left).wrong == []


# -- what is said ---------------------------------------------------------------------------------


def test_days_of_small_files_become_one_each() -> None:
    disk = an_archive()
    (done,) = WORK["compact"](disk)
    assert (done.files_before, done.files, done.snapshot) == (6, 3, 0)
    assert [(file.start, file.end) for file in lane(disk).files] == [(0, 8), (8, 16), (16, 24)]
    assert WORK["compact"](disk) == []


def test_what_is_damaged_is_not_copied() -> None:
    disk = an_archive()
    path = ROOT / lane(disk).files[0].path
    raw = bytearray(disk.read_file(path))
    raw[60] ^= 1
    disk.write_file(path, bytes(raw))
    before = lane(disk)
    with pytest.raises(Unverified, match="orders"):
        WORK["compact"](disk)
    assert lane(disk) == before


def test_what_expired_is_a_gap() -> None:
    disk = an_archive()
    (said,) = expire(chains(disk), day(2), 2_000, [], dry_run=True)
    assert (said.files, said.messages) == (4, 16)
    assert bodies(disk) == numbers(24)
    expire(chains(disk), day(1), 2_000, [])
    expire(chains(disk), day(2), 2_000, [])
    assert [(gap.start, gap.end, gap.reason) for gap in lane(disk).gaps] == [(0, 16, EXPIRED)]
    assert expire(chains(disk), day(2), 2_000, []) == []


def test_a_dry_run_changes_nothing() -> None:
    disk = an_archive()
    before = disk.list_all()
    said = compact(chains(disk), Shape(), HERE, 2_000, [], dry_run=True, files=disk)
    assert (said[0].files_before, said[0].files) == (6, 3)
    vacuum(chains(disk), LATE, dry_run=True)
    assert disk.list_all() == before


def test_vacuum_leaves_what_is_young_or_not_of_this_program() -> None:
    disk = an_archive()
    young = Attempt.begun(5_000).text
    old = Attempt.begun(3_000).text
    day_of = ROOT / lane(disk).files[0].path
    for directory in (ROOT / names.UNFINISHED / young, ROOT / names.UNFINISHED / old):
        disk.make_directory(directory)
        disk.write_file(directory / f"{directory.name}.parquet", b"")
    for name in (f"orders-{young}.parquet", f"orders-{old}.parquet", "notes.txt"):
        disk.write_file(day_of.parent / name, b"")
    found = vacuum(chains(disk), 4_000)
    assert [path.rpartition("/")[2] for path in found.data] == [f"orders-{old}.parquet"]
    assert found.unfinished == [f"_tmp/{old}/{old}.parquet"]
    assert [path.rpartition("/")[2] for path in found.foreign] == ["notes.txt"]
    left = {path.name for path in disk.list_all()}
    assert {f"orders-{young}.parquet", "notes.txt", f"{young}.parquet"} <= left
    assert disk.list(ROOT / names.UNFINISHED) == [young]


def test_vacuum_does_not_guess() -> None:
    disk = an_archive()
    (first, *_) = (path for path in disk.list_all() if "commits" in path.parts)
    disk.write_file(first, b"{")
    before = disk.list_all()
    with pytest.raises(Unverified):
        vacuum(chains(disk), LATE)
    assert disk.list_all() == before
