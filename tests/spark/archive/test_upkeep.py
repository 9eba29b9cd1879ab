"""Compacting, expiring and vacuuming: against a model, and killed at every step."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.spark.archive.harness import (
    HERE,
    Killed,
    Steps,
    bodies,
    check,
    data_files,
    is_whole,
    lane,
    numbers,
    put_numbers,
    run,
)
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import Archive
from zbus.spark.archive.table import EXPIRED, Gap
from zbus.spark.archive.upkeep import compact, expire, vacuum
from zbus.spark.archive.writer import FILE_BYTES, Shape
from zbus.spark.errors import LostRace, Unverified

DAY_MS = 86_400_000


def day(number: int) -> str:
    """2027-01-15 is the first."""
    return f"2027-01-{15 + number}"


class Upkeep(RuleBasedStateMachine):
    """An archive and what should be in it. Each message's body is a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name, "archive")
        self.log = MemoryLog()
        self.log.stored["orders"] = [[]]
        self.log.incarnations["orders"] = "1"
        self.live: list[tuple[bytes, str]] = []  # of this incarnation: body and day
        self.archived = 0  # of those
        self.gone = 0
        self.expected: list[tuple[int, bytes, str]] = []
        self.day = 0
        self.count = 0
        run(self.root, self.log)

    def teardown(self) -> None:
        self.folder.cleanup()

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
        run(self.root, self.log, shape=shape, allow_loss=True)
        for offset in range(max(self.archived, self.gone), len(self.live)):
            self.expected.append((offset, *self.live[offset]))
        self.archived = len(self.live)

    @rule(file_bytes=st.sampled_from([1, 4_000, FILE_BYTES]))
    def compact(self, file_bytes: int) -> None:
        compact(Archive(self.root), HERE, file_bytes, [])
        if file_bytes == FILE_BYTES:
            assert compact(Archive(self.root), HERE, file_bytes, []) == []

    @rule(number=st.integers(0, 9))
    def expire(self, number: int) -> None:
        expire(Archive(self.root), day(number), [])
        self.expected = [each for each in self.expected if each[2] >= day(number)]

    @rule()
    def vacuum(self) -> None:
        vacuum(Archive(self.root), 0)
        assert data_files(self.root) == {file.path for file in Archive(self.root).files()}

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
        assert bodies(self.root) == [(offset, body) for offset, body, _ in self.expected]
        for quick in (True, False):
            assert check(self.root, quick=quick).wrong == []


TestUpkeep = Upkeep.TestCase
TestUpkeep.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)


# -- killed ---------------------------------------------------------------------------------------


@cache
def _small_files() -> tempfile.TemporaryDirectory[str]:
    folder, log = tempfile.TemporaryDirectory(), MemoryLog()
    for number in range(3):
        for _ in range(2):
            put_numbers(log, 4, time_ms=TIME_MS + number * DAY_MS)
            run(Path(folder.name), log)
    return folder


def an_archive(root: Path) -> Path:
    """Days of small files: a copy, for a commit takes longer."""
    return Path(shutil.copytree(_small_files().name, root, dirs_exist_ok=True))


WORK: dict[str, Callable[[Path], Any]] = {
    "compact": lambda root: compact(Archive(root), HERE, FILE_BYTES, []),
    "expire": lambda root: expire(Archive(root), day(1), []),
    "vacuum": lambda root: vacuum(Archive(root), 0),
}


def prepared(name: str, root: Path) -> Path:
    an_archive(root)
    if name == "vacuum":  # there is something to remove
        WORK["compact"](root)
        WORK["expire"](root)
    return root


@pytest.mark.parametrize("name", WORK)
def test_killed_at_every_step(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = Steps(monkeypatch)
    before = prepared(name, tmp_path / "before")
    all_of_it = shutil.copytree(before, tmp_path / "all")
    first = 8 if name in ("expire", "vacuum") else 0
    for number in steps.of(lambda: WORK[name](all_of_it), all_of_it):
        root = shutil.copytree(before, tmp_path / f"{number}")
        steps.kill_at(number)
        with pytest.raises(Killed):
            WORK[name](root)
        assert bodies(root) in (numbers(24), numbers(24, first))
        WORK[name](root)
        assert bodies(root) == numbers(24, first)
        is_whole(root)


# -- what is said ---------------------------------------------------------------------------------


def test_days_of_small_files_become_one_each(tmp_path: Path) -> None:
    root = an_archive(tmp_path)
    (planned,) = compact(Archive(root), HERE, FILE_BYTES, [], dry_run=True)
    (done,) = WORK["compact"](root)
    assert planned == done
    assert (done.files_before, done.files) == (6, 3)
    assert [(file.start, file.end) for file in lane(root).files] == [(0, 8), (8, 16), (16, 24)]
    assert WORK["compact"](root) == []
    for file in lane(root).files:
        group = pq.ParquetFile(file.path).metadata.row_group(0)
        columns = {group.column(at).path_in_schema: group.column(at) for at in range(11)}
        bloom = {name for name, each in columns.items() if each.bloom_filter_offset is not None}
        assert bloom == {"id", "key"}
        assert {each.compression for each in columns.values()} == {"ZSTD"}


def test_files_with_a_gap_between_them_stay_two(tmp_path: Path) -> None:
    log = MemoryLog()
    put_numbers(log, 4)
    run(tmp_path, log)
    put_numbers(log, 4)
    put_numbers(log, 4)
    log.first["orders", 0] = 8  # retention was faster
    run(tmp_path, log, allow_loss=True)
    assert WORK["compact"](tmp_path) == []
    assert [(file.start, file.end) for file in lane(tmp_path).files] == [(0, 4), (8, 12)]
    is_whole(tmp_path)


def test_only_these_topics(tmp_path: Path) -> None:
    log = MemoryLog()
    for _ in range(2):
        for topic in ("orders", "other"):
            put_numbers(log, 4, topic)
        run(tmp_path, log)
    (done,) = compact(Archive(tmp_path), HERE, FILE_BYTES, ["other"])
    assert (done.topic, done.files) == ("other", 1)
    assert expire(Archive(tmp_path), day(5), ["orders"])[0].messages == 8
    assert {file.topic for file in Archive(tmp_path).files()} == {"other"}


def test_what_is_damaged_is_not_copied(tmp_path: Path) -> None:
    root = an_archive(tmp_path)
    path = Path(lane(root).files[0].path)
    raw = bytearray(path.read_bytes())
    raw[60] ^= 1
    path.write_bytes(raw)
    version = Archive(root).version
    with pytest.raises(Unverified, match="checksum"):
        WORK["compact"](root)
    assert Archive(root).version == version


def test_what_expired_is_a_gap(tmp_path: Path) -> None:
    root = an_archive(tmp_path)
    (said,) = expire(Archive(root), day(2), [], dry_run=True)
    assert (said.files, said.messages) == (4, 16)
    assert bodies(root) == numbers(24)
    expire(Archive(root), day(1), [])
    expire(Archive(root), day(2), [])
    assert lane(root).gaps == [Gap(0, 16, EXPIRED)]
    assert expire(Archive(root), day(2), []) == []


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    root = an_archive(tmp_path)
    WORK["compact"](root)
    before, version = data_files(root), Archive(root).version
    assert len(vacuum(Archive(root), 0, dry_run=True)) == 6
    assert expire(Archive(root), day(2), [], dry_run=True)
    assert (data_files(root), Archive(root).version) == (before, version)


def test_vacuum_leaves_what_is_young(tmp_path: Path) -> None:
    root = an_archive(tmp_path)
    folder = Path(lane(root).files[0].path).parent
    (folder / "0123456789ab.part").write_bytes(b"x")
    WORK["compact"](root)
    assert vacuum(Archive(root), 3_600_000) == []
    assert len(vacuum(Archive(root), 0)) == 7


def test_of_two_that_compact_one_loses(tmp_path: Path) -> None:
    root = an_archive(tmp_path)
    archive = Archive(root)
    assert WORK["compact"](root)
    with pytest.raises(LostRace, match="another program"):
        compact(archive, HERE, FILE_BYTES, [])
    assert bodies(root) == numbers(24)
    is_whole(root)


@pytest.mark.parametrize("who", ["archiver", "compaction", "expiry", "compaction of delta-rs"])
def test_somebody_else_while_it_compacts(
    who: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is there twice, and nothing that has expired comes back."""
    steps = Steps(monkeypatch)
    log = MemoryLog()
    put_numbers(log, 24)
    put_numbers(log, 4, time_ms=TIME_MS + 3 * DAY_MS)
    others: dict[str, Callable[[Path], object]] = {
        "archiver": lambda root: run(root, log),
        "compaction": WORK["compact"],
        "expiry": WORK["expire"],
        "compaction of delta-rs": lambda root: DeltaTable(root).optimize.compact(),
    }
    left = {"archiver": numbers(28), "expiry": numbers(24, 8)}.get(who, numbers(24))
    lost = 0
    all_of_it = an_archive(tmp_path / "all")
    for number in steps.of(lambda: WORK["compact"](all_of_it), all_of_it):
        root = an_archive(tmp_path / f"{number}")
        steps.at(number, partial(others[who], root))
        try:
            WORK["compact"](root)
        except LostRace:
            lost += 1
        assert bodies(root) == left, number
    assert (lost > 0) is (who != "archiver")


def test_rows_that_others_delete_are_missed(tmp_path: Path) -> None:
    """A hole without a reason is no gap."""
    root = an_archive(tmp_path)
    DeltaTable(root).delete("date = '2027-01-16'")
    (wrong,) = check(root).wrong
    assert "offsets 8 to 16 are in no file" in wrong
