"""The engines keep the contract, and agree with each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples.sqlite_engine import SqliteJournal
from tests.limits import examples
from tests.storage.damage import AtOnce
from tests.storage.support import Loop
from zbus.storage.format.batch import iterate
from zbus.storage.local.engine import LocalJournal
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Journal
from zbus.testing.contract import LANE, Crash, JournalContract
from zbus.testing.disk import Disk
from zbus.testing.engines import Bench, Writer, recovered, split, stored_lanes
from zbus.testing.late import LateJournal
from zbus.testing.simulation.machine import DATA_DIR


class TestMemory(JournalContract):
    @pytest.fixture
    def engine(self) -> Callable[[], Any]:
        return MemoryJournal

    @pytest.fixture
    def keeps(self) -> bool:
        return False

    @pytest.fixture
    def crash(self) -> Crash:
        return lambda journal, power: None  # what it held is gone with it


class Copies:
    """Crashes of an engine that writes files: the next one gets a copy of them as they are. What
    the system would lose without power is there all the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def crash(self, journal: Journal, power: bool) -> None:
        former, self.folder = self.folder, self.folder.with_name(f"{self.folder.name}0")
        shutil.copytree(former, self.folder)
        journal.close()


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path / "0")


class TestLocal(JournalContract):
    @pytest.fixture
    def bench(self) -> Bench:
        return Loop()

    @pytest.fixture
    def engine(self, bench: Loop, copies: Copies) -> Callable[[], Any]:
        return lambda: bench.local(copies.folder)

    @pytest.fixture
    def crash(self, copies: Copies) -> Crash:
        return copies.crash


class DiskBench(Bench):
    """With the engine over files on a simulated disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()

    def make(self) -> LocalJournal:
        fail = self.failures.append
        return LocalJournal(DATA_DIR, self.post, fail, self.disk, reserve_bytes=0, worker=AtOnce)

    def crash(self, journal: LocalJournal, power: bool) -> None:
        """A power cut leaves the least that it may."""
        self.disk = next(self.disk.crash_states(1)) if power else self.disk.kill()


class TestLocalOnASimulatedDisk(JournalContract):
    @pytest.fixture
    def bench(self) -> Bench:
        return DiskBench()

    @pytest.fixture
    def engine(self, bench: DiskBench) -> Callable[[], Any]:
        return bench.make

    @pytest.fixture
    def crash(self, bench: DiskBench) -> Crash:
        return bench.crash


class TestSqlite(JournalContract):
    """The example."""

    @pytest.fixture
    def engine(self, copies: Copies) -> Callable[[], Any]:
        return lambda: SqliteJournal(copies.folder / "journal.db")

    @pytest.fixture
    def crash(self, copies: Copies) -> Crash:
        return copies.crash


class LateBench(Bench):
    """Waits by doing what was asked for: of some lane, then of another, as it happens."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.journal = LateJournal(self.post)

    def late(self) -> LateJournal:
        """The engine, made again."""
        self.journal = LateJournal(self.post, self.journal.stored)
        return self.journal

    def run_one(self) -> None:
        waiting = list(self.journal.waiting)
        if waiting and (self.posted.empty() or self.random.random() < 0.7):
            self.journal.step(self.random.choice(waiting))
        else:
            assert not self.posted.empty(), "there is nothing to wait for"
            super().run_one()


class TestLate(JournalContract):
    @pytest.fixture(params=range(4))
    def bench(self, request: pytest.FixtureRequest) -> Bench:
        return LateBench(request.param)

    @pytest.fixture
    def engine(self, bench: LateBench) -> Callable[[], Any]:
        return bench.late

    @pytest.fixture
    def crash(self) -> Crash:
        return lambda journal, power: None  # what waits is never done


STEPS = st.lists(
    st.tuples(st.sampled_from("dddscct"), st.integers(0, 30), st.booleans()), max_size=30
)


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_engines_agree(steps: list[tuple[str, int, bool]], tmp_path_factory: object) -> None:
    """The same calls leave the same lane, whatever the engine, restarts included."""
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    loop, data_dir = Loop(), tmp_path_factory.mktemp("agree")
    memory: Journal = MemoryJournal()
    local: Journal = loop.local(data_dir)
    writer = Writer()
    first = split(writer.checkpoint())
    memory.append(LANE, 0, first)
    local.append(LANE, 0, first)
    for step, number, restart in steps:
        last = writer.last
        if step == "t":
            memory.trim(LANE, min(number, writer.end))
            local.trim(LANE, min(number, writer.end))
        else:
            made = {"s": writer.state, "c": writer.checkpoint}.get(
                step, lambda number=number: writer.data(b"x" * number, b"y")
            )()
            batches = split(made)
            memory.append(LANE, last, batches)
            local.append(LANE, last, batches)
        if restart:
            local.close()
            local = loop.local(data_dir)
    stored = stored_lanes(local)[0]
    first_offset = max(stored.first_offset, stored_lanes(memory)[0].first_offset)
    state = [raw for raw in stored.batches if next(iterate(raw)).header.records == 0]
    assert state == [
        raw for raw in recovered(memory)[LANE] if next(iterate(raw)).header.records == 0
    ]
    for offset in range(first_offset, writer.end + 1):
        assert loop.read(local, LANE, offset, 99) == loop.read(memory, LANE, offset, 99)
    local.close()
    assert loop.failures == []
