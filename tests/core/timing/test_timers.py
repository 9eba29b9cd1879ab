"""The heap of everything that becomes due, against a plain list."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import examples
from zbus.core.model.containment import Containment, Fault
from zbus.core.model.errors import InDoubt
from zbus.core.timing.timers import Timer, Timers

COUNT = 3  # timers


@attrs.define
class Model:
    """What is set, as (due, when it was set, timer, item), in no order."""

    entries: dict[tuple[int, str], tuple[int, int]] = attrs.field(factory=dict)
    serial: int = 0

    def set(self, timer: int, item: str, due_ms: int) -> None:
        self.serial += 1
        self.entries[timer, item] = (due_ms, self.serial)

    def discard(self, timer: int, item: str) -> bool:
        return self.entries.pop((timer, item), None) is not None

    def next_due(self) -> int | None:
        return min((due_ms for due_ms, _ in self.entries.values()), default=None)

    def run(self, now_ms: int, call: Callable[[int, str], None]) -> None:
        """One after the other; what `call` takes out is not called any more, and what it sets has
        to wait."""
        last = self.serial
        while due := [
            (place, key)
            for key, place in self.entries.items()
            if place[0] <= now_ms and place[1] <= last
        ]:
            _, key = min(due)
            del self.entries[key]
            call(*key)


class Pair:
    """The two of them do the same. `react` says what a call sets and takes out."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.kinds: list[Timer[str]] = [
            self.timers.timer(self._called_by(number)) for number in range(COUNT)
        ]
        self.model = Model()
        self.called: list[tuple[int, str]] = []
        self.react: dict[tuple[int, str], list[tuple[int, str, int | None]]] = {}

    def _called_by(self, number: int) -> Callable[[str], None]:
        def call(item: str) -> None:
            self.called.append((number, item))
            for timer, other, due_ms in self.react.get((number, item), ()):
                if due_ms is None:
                    self.kinds[timer].discard(other)
                else:
                    self.kinds[timer].set(other, due_ms)

        return call

    def set(self, timer: int, item: str, due_ms: int) -> None:
        self.kinds[timer].set(item, due_ms)
        self.model.set(timer, item, due_ms)

    def discard(self, timer: int, item: str) -> None:
        assert self.kinds[timer].discard(item) == self.model.discard(timer, item)

    def run(self, now_ms: int) -> list[tuple[int, str]]:
        expected: list[tuple[int, str]] = []

        def call(number: int, item: str) -> None:
            expected.append((number, item))
            for timer, other, due_ms in self.react.get((number, item), ()):
                if due_ms is None:
                    self.model.discard(timer, other)
                else:
                    self.model.set(timer, other, due_ms)

        self.called = []
        self.timers.run(now_ms)
        self.model.run(now_ms, call)
        assert self.called == expected
        return expected

    def compare(self) -> None:
        self.timers.check()
        assert self.timers.next_due() == self.model.next_due()
        assert self.timers.count == len(self.model.entries)
        for number, timer in enumerate(self.kinds):
            own = {item: place for (k, item), place in self.model.entries.items() if k == number}
            assert set(timer) == set(own)
            assert len(timer) == len(own)
            assert all(item in timer for item in own)
            assert all(timer.due_of(item) == due_ms for item, (due_ms, _) in own.items())
        self.timers.check()


KINDS = st.integers(0, COUNT - 1)
ITEMS = st.sampled_from("abcde")
TIMES = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KINDS, ITEMS, TIMES),
        st.tuples(st.just("set"), KINDS, ITEMS, TIMES),
        st.tuples(st.just("discard"), KINDS, ITEMS, TIMES),
        st.tuples(st.just("run"), KINDS, ITEMS, TIMES),
        st.tuples(st.just("compact"), KINDS, ITEMS, TIMES),
    ),
    max_size=60,
)
REACTIONS = st.dictionaries(
    st.tuples(KINDS, ITEMS),
    st.lists(st.tuples(KINDS, ITEMS, st.one_of(st.none(), TIMES)), min_size=1, max_size=3),
    max_size=6,
)


@examples(300)
@given(steps=STEPS, react=REACTIONS)
def test_items_are_called_when_they_are_due(
    steps: list[tuple[str, int, str, int]],
    react: dict[tuple[int, str], list[tuple[int, str, int | None]]],
) -> None:
    pair = Pair()
    pair.react = react
    for name, timer, item, time_ms in steps:
        if name == "set":
            pair.set(timer, item, time_ms)
        elif name == "discard":
            pair.discard(timer, item)
        elif name == "run":
            pair.run(time_ms)
        else:
            pair.timers.compact()
        pair.compare()


@examples(40)
@given(
    moves=st.lists(st.integers(0, 10**6), min_size=300, max_size=1_500),
    gone=st.lists(st.integers(0, 99), max_size=60),
    runs=st.lists(st.integers(0, 10**6), max_size=5),
)
def test_stale_entries_do_not_pile_up(moves: list[int], gone: list[int], runs: list[int]) -> None:
    """Items that are moved again and again: the heap is compacted, and stays a heap."""
    pair = Pair()
    longest = 0
    for time in range(4):
        for number, due_ms in enumerate(moves):
            pair.set(number % COUNT, str(number % 100), due_ms + time)
            longest = max(longest, len(pair.timers.heap))
        for number in gone:
            pair.discard(number % COUNT, str(number))
        pair.compare()
    assert longest <= 1_025
    for now_ms in sorted(runs):
        pair.run(now_ms)
        pair.compare()
    pair.run(10**7)
    pair.compare()
    assert pair.timers.count == 0


def test_a_heap_is_compacted_while_it_runs() -> None:
    """What is called sets so many others, and moves them, that the heap is rebuilt under it. What
    waits for the next run is not in the heap then."""
    timers = Timers()
    called: list[int] = []
    early: Timer[int] = timers.timer(called.append)

    def call(item: int) -> None:
        called.append(item)
        early.set(-1 - item, 0)
        for round in range(3 if item else 0):
            for other in range(500):
                busy.set(1_000 + other, 2_000 + round)

    busy: Timer[int] = timers.timer(call)
    for item in range(20):
        busy.set(item, item)
    timers.run(9)
    timers.check()
    assert called == list(range(10))
    assert len(busy) == 10 + 500
    assert len(early) == 10
    assert len(timers.heap) <= 1_025
    timers.run(1_999)
    timers.check()
    assert called == [*range(10), *range(-1, -11, -1), *range(10, 20)]
    assert len(early) == 10
    timers.run(2_001)
    assert called[30:] == list(range(-11, -21, -1))
    assert timers.next_due() == 2_002


def test_what_is_set_meanwhile_waits_for_the_next_run() -> None:
    timers = Timers()
    called: list[str] = []

    def call(item: str) -> None:
        called.append(item)
        again.set(item, 0)

    again: Timer[str] = timers.timer(call)
    again.set("a", 5)
    again.set("b", 5)
    for times in range(1, 4):
        timers.run(5)
        assert called == ["a", "b"] * times
        timers.check()
    assert timers.next_due() == 0
    assert again.discard("a")
    assert not again.discard("a")
    timers.run(5)
    assert called[6:] == ["b"]


def test_an_item_whose_call_raises_does_not_stop_the_others() -> None:
    faults = Containment()
    found: list[Fault] = []
    called: list[str] = []
    faults.report = found.append

    def call(item: str) -> None:
        called.append(item)
        if item == "bad":
            raise ValueError(item)

    timers = Timers(faults)
    timer, other = timers.timer(call, lambda item: f"owner of {item}"), timers.timer(call)
    for due_ms, item in enumerate(("a", "bad", "c")):
        timer.set(item, due_ms)
    other.set("bad", 3)
    other.set("d", 4)
    timers.run(10)
    assert called == ["a", "bad", "c", "bad", "d"]
    assert [fault.culprit for fault in found] == ["owner of bad", None]
    assert [str(fault.error) for fault in found] == ["bad", "bad"]
    timers.check()
    assert timers.next_due() is None


@pytest.mark.parametrize("error", [InDoubt("who knows"), ValueError("nobody listens")])
def test_what_must_not_be_contained_is_raised(error: Exception) -> None:
    faults = Containment()
    if isinstance(error, InDoubt):
        faults.report = lambda fault: None

    def call(_: object) -> None:
        raise error

    timers = Timers(faults)
    timers.timer(call).set("a", 1)
    with pytest.raises(type(error), match=str(error)):
        timers.run(1)
