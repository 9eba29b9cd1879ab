"""Delays against a dictionary that is sorted whenever somebody asks."""

from __future__ import annotations

import copy
import sys
import time
from array import array

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.limits import examples
from zbus.core.timing.delays import DUE_MS_MAX, NOTHING, PAGE, AllDelays, Columns, Delays

OFFSETS = st.one_of(
    st.integers(0, 8),
    st.integers(PAGE - 3, PAGE + 3),
    st.sampled_from([5 * PAGE, 70_000, 70_001, 1 << 40]),
)
TIMES = st.integers(0, 12)
SOME = st.lists(OFFSETS, max_size=12)


def filled(due_of: dict[int, int]) -> Delays:
    delays = Delays()
    for offset, due_ms in due_of.items():
        delays.set(offset, due_ms)
    return delays


class DelaysMachine(RuleBasedStateMachine):
    """`model` is the truth: due times by offset."""

    def __init__(self) -> None:
        super().__init__()
        self.delays = Delays()
        self.model: dict[int, int] = {}

    @rule(offset=OFFSETS, due_ms=TIMES)
    def put(self, offset: int, due_ms: int) -> None:
        self.delays.set(offset, due_ms)
        self.model[offset] = due_ms

    @rule(first=OFFSETS, due_ms=TIMES, step=st.integers(-1, 1))
    def put_many(self, first: int, due_ms: int, step: int) -> None:
        for number in range(40):
            self.put(first + number, due_ms + step * (number // 4) % 12)

    @rule(offset=OFFSETS)
    def discard(self, offset: int) -> None:
        assert self.delays.discard(offset) == (self.model.pop(offset, None) is not None)

    @rule(now_ms=TIMES, count_max=st.integers(1, 20))
    def pop(self, now_ms: int, count_max: int) -> None:
        due = sorted((due_ms, offset) for offset, due_ms in self.model.items() if due_ms <= now_ms)
        wanted = [offset for _, offset in due[:count_max]]
        assert self.delays.pop_due(now_ms, count_max) == wanted
        for offset in wanted:
            del self.model[offset]

    @rule(first=OFFSETS, count=st.sampled_from([0, 1, 9, PAGE, 5 * PAGE, 1 << 41]))
    def within(self, first: int, count: int) -> None:
        offsets = range(first, first + count)
        assert sorted(self.delays.within(offsets)) == sorted(o for o in self.model if o in offsets)

    @rule(end=OFFSETS)
    def truncate(self, end: int) -> None:
        columns = self.delays.columns().truncated(end)
        self.delays.truncate(end)
        self.model = {offset: due for offset, due in self.model.items() if offset < end}
        assert columns == self.delays.columns()

    @rule(first=OFFSETS)
    def fall_off(self, first: int) -> None:
        kept = {offset: due for offset, due in self.model.items() if offset >= first}
        assert self.delays.fall_off(first) == len(self.model) - len(kept)
        self.model = kept

    @rule()
    def clear(self) -> None:
        self.delays.clear()
        self.model.clear()

    @rule()
    def rebuild(self) -> None:
        self.delays._rebuild()

    @rule()
    def restore(self) -> None:
        """Begin again with what is stored."""
        columns = self.delays.columns()
        assert columns.problem() is None
        self.delays = Delays()
        self.delays.load(columns)
        assert self.delays.columns() == columns

    @rule(some=SOME)
    def select(self, some: list[int]) -> None:
        columns, others = self.delays.select(dict.fromkeys(some))
        here = {offset: due for offset, due in self.model.items() if offset in some}
        assert columns == filled(here).columns()
        assert others == set(some) - set(here)

    @rule(some=st.dictionaries(OFFSETS, TIMES, max_size=12), without=SOME)
    def merge(self, some: dict[int, int], without: list[int]) -> None:
        other = filled(some)
        self.delays.merge(other, without)
        self.model |= {offset: due for offset, due in some.items() if offset not in without}
        assert other.columns() == filled(some).columns(), "what was merged is not shared"

    @invariant()
    def agrees(self) -> None:
        delays, model = self.delays, self.model
        delays.check()
        assert list(delays) == sorted(model)
        assert len(delays) == len(model)
        assert delays.lowest() == min(model, default=None)
        assert delays.next_due() == min(model.values(), default=None)
        for offset in (*range(12), *range(PAGE - 4, PAGE + 4), 70_000, 1 << 40):
            assert (offset in delays) == (offset in model)
            if offset in model:
                assert delays.due_of(offset) == model[offset]
            else:
                with pytest.raises(KeyError):
                    delays.due_of(offset)

    @invariant()
    def columns_say_it_all(self) -> None:
        columns = self.delays.columns()
        assert bool(columns) == bool(self.model)
        assert len(columns) == len(self.model)
        for first in (0, 3, PAGE + 1):
            assert sorted(columns.offsets(first)) == sorted(o for o in self.model if o >= first)

    def teardown(self) -> None:
        wanted = sorted(self.model, key=lambda offset: (self.model[offset], offset))
        assert copy.deepcopy(self.delays).pop_due(1 << 60, 1 << 60) == wanted


DelaysMachine.TestCase.settings = examples(100, derandomize=True, stateful_step_count=40)
TestDelays = DelaysMachine.TestCase


def test_a_time_beyond_all_times() -> None:
    delays = filled({3: DUE_MS_MAX + 5, 4: (1 << 64) - 1, (1 << 64) - 1: 7})
    delays.check()
    assert delays.due_of(3) == delays.due_of(4) == DUE_MS_MAX
    assert delays.pop_due(DUE_MS_MAX, 9) == [(1 << 64) - 1, 3, 4]


def test_moved_again_and_again_the_heap_stays_small() -> None:
    delays = Delays()
    for number in range(20_000):
        delays.set(number % 10 * PAGE, 100_000 - number)
    assert len(delays._heap) < 100
    delays.check()
    assert delays.pop_due(100_000, 10) == [n * PAGE for n in reversed(range(10))]


@pytest.mark.parametrize("apart_ms", [0, 1])
def test_a_hundred_thousand(apart_ms: int) -> None:
    """Those that are due together come in pieces, in order, and memory is what it should be."""
    count = 100_000
    delays = filled({offset: 5_000_000 - offset * apart_ms for offset in range(count)})
    size = sum(sys.getsizeof(page) for page in delays._pages.values())
    assert size < 10 * count
    found: list[int] = []
    slowest_s = 0.0
    while delays:
        began = time.process_time()
        piece = delays.pop_due(5_000_000, 1_000)
        slowest_s = max(slowest_s, time.process_time() - began)
        assert len(piece) == 1_000
        found += piece
    assert found == sorted(found, reverse=apart_ms > 0)
    assert slowest_s < 0.1


def test_the_delays_of_a_topic() -> None:
    delays = AllDelays()
    assert not delays
    assert delays.next_due() is None
    for place, due_ms in {(2, 7): 5, (0, 9): 6, (1, 3): 5, (1, 4): 5, (0, 1): 9}.items():
        delays.set(place, due_ms)
    delays.of(2).merge(filled({7: 8, 8: 1}), without=[7])
    delays.check()
    assert len(delays) == 6
    assert (2, 7) in delays
    assert (2, 9) not in delays
    assert (3, 7) not in delays
    assert delays.next_due() == 1
    assert delays.pop_first(0) is None
    places = [delays.pop_first(8) for _ in range(6)]
    assert places == [(2, 8), (1, 3), (1, 4), (2, 7), (0, 9), None]
    assert delays.next_due() == 9


def test_an_empty_one_costs_next_to_nothing() -> None:
    delays = Delays()
    parts = [delays, *(getattr(delays, name) for name in Delays.__slots__)]
    assert sum(map(sys.getsizeof, parts)) < 400
    assert not NOTHING
    assert delays.columns() is NOTHING
    assert delays.pop_due(1 << 60, 9) == []


COLUMNS = filled({1: 10, 2: 10, PAGE + 5: 7}).columns()
WRONG: dict[str, Columns] = {
    "a page less": attrs.evolve(COLUMNS, pages=COLUMNS.pages[:1]),
    "a key less": attrs.evolve(COLUMNS, keys=COLUMNS.keys[:2]),
    "a key more": attrs.evolve(COLUMNS, keys=COLUMNS.keys + COLUMNS.keys[:1]),
    "an empty page": attrs.evolve(COLUMNS, counts=array("Q", [3, 0])),
    "a page twice": attrs.evolve(COLUMNS, pages=array("Q", [1, 1])),
    "pages in disorder": attrs.evolve(COLUMNS, pages=array("Q", [1, 0])),
    "a page beyond all": attrs.evolve(COLUMNS, pages=array("Q", [1, 1 << 56])),
    "one page beyond all": Columns(array("Q", [1 << 56]), array("Q", [1]), array("Q", [1])),
    "one page with two": Columns(array("Q", [0]), array("Q", [2]), array("Q", [1])),
    "keys in disorder": attrs.evolve(COLUMNS, keys=COLUMNS.keys[1::-1] + COLUMNS.keys[2:]),
    "an offset twice": Columns(array("Q", [0]), array("Q", [2]), array("Q", [1, 257])),
}


@pytest.mark.parametrize("columns", WRONG.values(), ids=WRONG.keys())
def test_wrong_columns_are_told_from_right_ones(columns: Columns) -> None:
    assert COLUMNS.problem() is None
    assert columns.problem()
