"""Deadlines against a list that is sorted whenever somebody asks."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.limits import examples
from zbus.core.timing import deadlines as module
from zbus.core.timing.deadlines import Deadlines

ITEMS = st.integers(0, 12)
TIMES = st.integers(0, 20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), ITEMS, TIMES),
        st.tuples(st.just("discard"), ITEMS, st.just(0)),
        st.tuples(st.just("pop"), st.just(0), TIMES),
        st.tuples(st.just("compact"), st.just(0), st.just(0)),
        st.tuples(st.just("pop two"), st.just(0), TIMES),
    ),
    max_size=60,
)


class Model:
    """(due, order of setting, item), in no particular order."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []
        self.serial = itertools.count()

    def discard(self, item: int) -> bool:
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if entry[2] != item]
        return len(self.entries) < before

    def set(self, item: int, due_ms: int) -> None:
        self.discard(item)
        self.entries.append((due_ms, next(self.serial), item))

    def pop_due(self, now_ms: int, count_max: int = 1_000) -> list[int]:
        due = sorted(entry for entry in self.entries if entry[0] <= now_ms)[:count_max]
        self.entries = [entry for entry in self.entries if entry not in due]
        return [item for _, _, item in due]


@given(STEPS)
@examples(400, derandomize=True)
def test_agrees_with_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines = Deadlines()
    model = Model()
    for step, item, time_ms in steps:
        if step == "set":
            deadlines.set(item, time_ms)
            model.set(item, time_ms)
        elif step == "discard":
            assert deadlines.discard(item) == model.discard(item)
        elif step == "pop":
            assert deadlines.pop_due(time_ms) == model.pop_due(time_ms)
        elif step == "compact":
            deadlines._compact()
        else:
            assert deadlines.pop_due(time_ms, 2) == model.pop_due(time_ms, 2)
        deadlines.check()
        assert len(deadlines) == len(model.entries)
        assert deadlines.next_due() == min((due for due, _, _ in model.entries), default=None)
        # Whoever stores it and sets it again in this order gets the same order back.
        assert list(deadlines) == [
            item for _, _, item in sorted(model.entries, key=lambda entry: entry[1])
        ]
        for due_ms, _, there in model.entries:
            assert there in deadlines
            assert deadlines.due_of(there) == due_ms
    assert deadlines.pop_due(100) == model.pop_due(100)
    assert not deadlines


@given(st.integers(0, 1 << 32))
@settings(max_examples=10, derandomize=True)
def test_in_order_after_a_large_heap_was_compacted(seed: int) -> None:
    random = Random(seed)
    deadlines: Deadlines = Deadlines()
    expected: dict[int, tuple[int, int]] = {}  # item -> due, order of setting
    now_ms = compacted = 0
    for serial in range(6_000):
        item, due_ms = random.randrange(600), now_ms + random.randrange(10_000)
        before = deadlines._queued
        deadlines.set(item, due_ms)
        compacted += deadlines._queued < before
        expected[item] = due_ms, serial
        if random.random() < 0.01:
            now_ms += 100
            due = sorted((at, item) for item, at in expected.items() if at[0] <= now_ms)
            assert deadlines.pop_due(now_ms) == [item for _, item in due]
            for _, item in due:
                del expected[item]
    assert compacted
    deadlines.check()
    last = sorted(expected, key=expected.__getitem__)
    assert deadlines.pop_due(now_ms + 10_000) == last


def test_moved_again_and_again_it_stays_small() -> None:
    deadlines: Deadlines = Deadlines()
    for time_ms in range(20_000):
        deadlines.set(time_ms % 10, 100_000 - time_ms)
    assert len(deadlines._heap) <= deadlines._queued <= module._COMPACT_FROM + 1
    deadlines.check()
    assert deadlines.pop_due(100_000) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_a_large_heap_without_waste_is_left_alone() -> None:
    deadlines: Deadlines = Deadlines()
    for item in range(5_000):
        deadlines.set(item, 5_000 - item)
    assert len(deadlines._heap) == 5_000
    assert deadlines.pop_due(10) == list(range(4_999, 4_989, -1))
    deadlines.check()


def test_equal_times_keep_the_order_of_the_last_setting() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.set(7, 1)
    deadlines.set(8, 1)
    deadlines.set(7, 2)
    deadlines.set(7, 1)
    assert deadlines.pop_due(1) == [8, 7]


def test_what_is_due_at_one_time_comes_out_in_parts() -> None:
    deadlines = Deadlines()
    for offset in range(10):
        deadlines.set(offset, 5 + offset // 9)
    deadlines.discard(3)
    parts = [deadlines.pop_due(5, 4) for _ in range(3)]
    assert parts == [[0, 1, 2, 4], [5, 6, 7, 8], []]
    deadlines.check()
    assert deadlines.next_due() == 6
