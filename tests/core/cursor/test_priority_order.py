"""Priorities: what a group hands out, against the book of what is ready.

The rule is short: the first in the log of the highest priority; of ten deliveries one is the first
in the log of all.
"""

from __future__ import annotations

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.core.support import Box, CrashJournal, Probe, again, cool, ranges
from tests.core.upkeep.test_fencing import LateBox
from tests.limits import examples
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.priority_order import SHARE, PriorityOrder, priority_of
from zbus.core.cursor.state import GroupOptions
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState

LEASE_MS = 5_000
DELAY_MS = 3_000
URGENT = GroupOptions(lease=True, lease_ms=LEASE_MS, window=1_000, order="priority")
NUMBERS = st.integers(0, 99)


def put(box: Box, *priorities: int) -> None:
    for priority in priorities:
        lines = b"x-priority: 9\r\n" + (b"priority: %d\r\n" % priority if priority else b"")
        row = make_row(b"", lines, b"%d" % priority, b"", b"")
        box.broker.put(box.partition(), Probe(), row)
    box.settle()


def boxed(options: GroupOptions = URGENT) -> Box:
    box = Box(CrashJournal())
    box.declare("T", "g", options)
    box.settle()
    return box


class PriorityMachine(RuleBasedStateMachine):
    """Everything that becomes of messages, and a book of what is ready."""

    @initialize()
    def begin(self) -> None:
        self.box = boxed()
        self.priorities: list[int] = []
        self.ready: set[int] = set()
        self.leased: dict[int, int] = {}  # until when
        self.delayed: dict[int, int] = {}
        self.turn = 0
        self.ordered = True

    @rule(priorities=st.lists(st.sampled_from([0, 0, 1, 5, 9]), max_size=6))
    def put(self, priorities: list[int]) -> None:
        end = len(self.priorities)
        self.priorities += priorities
        self.ready |= set(range(end, len(self.priorities)))
        put(self.box, *priorities)

    @rule(count=st.integers(1, 4))
    def pull(self, count: int) -> None:
        """One at a time, or some."""
        probe = self.box.pull(count=count)
        self.box.settle()
        for _ in range(20):
            if probe.open:
                self.box.settle()
        for record in probe.records:
            self.turn += 1
            if self.ordered:
                best = min(self.ready, key=lambda offset: (-self.priorities[offset], offset))
                expected = best if self.turn % SHARE else min(self.ready)
                assert record.offset == expected, (record.offset, expected, self.turn)
            self.ready.remove(record.offset)
            self.leased[record.offset] = self.box.now_ms + LEASE_MS
        assert len(probe.records) == count or not self.ready

    def _leased(self, number: int) -> int:
        return sorted(self.leased)[number % len(self.leased)] if self.leased else -1

    @rule(number=NUMBERS)
    def ack(self, number: int) -> None:
        offset = self._leased(number)
        if offset >= 0:
            assert self.box.ack(offset).open
            del self.leased[offset]
            self.box.settle()

    @rule(number=NUMBERS, front=st.booleans(), delayed=st.booleans())
    def nack(self, number: int, front: bool, delayed: bool) -> None:
        offset = self._leased(number)
        if offset >= 0:
            due_ms = delayed and self.box.now_ms + DELAY_MS
            self.box.nack(offset, front=front, due_ms=due_ms or 0)
            del self.leased[offset]
            if due_ms:
                self.delayed[offset] = due_ms
            else:
                self.ready.add(offset)
            self.box.settle()

    @rule(ms=st.sampled_from([1, DELAY_MS, LEASE_MS]))
    def time_passes(self, ms: int) -> None:
        self.box.settle(ms)
        for waiting in (self.leased, self.delayed):
            for offset in [o for o, until_ms in waiting.items() if until_ms <= self.box.now_ms]:
                del waiting[offset]
                self.ready.add(offset)

    @rule()
    def restart(self) -> None:
        self.box.settle()
        self.box = again(self.box, 900)
        self.turn = 0

    @rule()
    def forget_chunks(self) -> None:
        cool(self.box)

    @rule()
    def switch(self) -> None:
        """The count of deliveries begins anew."""
        self.ordered = not self.ordered
        order = "priority" if self.ordered else ""
        assert self.box.declare("T", "g", attrs.evolve(URGENT, order=order)).open
        self.box.settle()
        self.turn = 0

    @rule(number=NUMBERS)
    def empty(self, number: int) -> None:
        if number < 10:
            self.box.broker.purge_group(Probe(), self.box.group())
            self.ready.clear()
            self.leased.clear()
            self.delayed.clear()
            self.box.settle()


def test_the_highest_priority_goes_first_and_none_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbus.core.log.GROWS_TO", Size(bytes_max=600, count_max=4))
    run_state_machine_as_test(PriorityMachine, settings=examples(60, stateful_step_count=40))


@pytest.mark.parametrize(
    ("lines", "priority"),
    [
        (b"", 0),
        (b"priority: 7\r\n", 7),
        (b"a: b\r\npriority: 9\r\nc: d\r\n", 9),
        (b"x-priority: 9\r\n", 0),
        (b"priority: 12\r\n", 0),
        (b"priority: u=1\r\n", 0),
        (b"priority: \r\n", 0),
        (b"priority: 5", 0),
    ],
)
def test_the_priority_of_stored_lines(lines: bytes, priority: int) -> None:
    assert priority_of(lines) == priority


def test_with_more_messages_than_are_compared_the_others_wait_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbus.core.cursor.backlog.PARKED_MAX", 3)
    box = boxed()
    put(box, 0, 0, 1, 9, 5)
    assert [box.take(count=1) for _ in range(5)] == [[b"1"], [b"9"], [b"5"], [b"0"], [b"0"]]
    assert box.take(count=1) == []


def test_a_message_alone_goes_at_once_and_what_comes_later_is_compared() -> None:
    box = boxed()
    pull = box.pull(wait=True)
    put(box, 0)
    assert pull.bodies == [b"0"]
    put(box, 1, 2)
    assert box.take() == [b"2", b"1"]


def test_one_of_ten_deliveries_is_the_oldest_message() -> None:
    box = boxed()
    put(box, 0, 1, *[9] * 24)
    found = [box.take(count=1)[0] for _ in range(26)]
    assert [at for at, body in enumerate(found, 1) if body != b"9"] == [10, 20]
    assert (found[9], found[19]) == (b"0", b"1")


def test_what_was_chosen_and_has_to_be_read_comes_when_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbus.core.log.GROWS_TO", Size(bytes_max=600, count_max=1))
    box = LateBox()
    box.declare("T", "g", URGENT)
    box.settle()
    for priority in (1, 9, 5):
        put(box, priority)
    assert box.take(count=1) == [b"9"]
    cool(box)
    pulls = [box.pull(wait=True) for _ in range(2)]
    box.turn()
    assert [pull.open for pull in pulls] == [True, True]
    box.settle()
    assert [pull.bodies for pull in pulls] == [[b"5"], [b"1"]]


def test_what_waits_for_its_turn_is_found_by_who_asks_for_one_partition_and_by_a_redrive() -> None:
    """Nothing is in line then: all of it was looked at, and is parked."""
    box = boxed(attrs.evolve(URGENT, window=2))
    put(box, 1, 9, 5)
    assert box.take(count=1) == [b"9"]
    of_partition = box.pull(wait=True, partition=0)
    box.settle()
    assert of_partition.bodies == [b"5"]
    waiting = box.pull(wait=True, partition=0)
    box.settle()
    assert waiting.open
    box.ack(1)
    box.settle()
    assert waiting.bodies == [b"1"]


def test_nothing_goes_past_what_waits() -> None:
    backlog, order = Backlog(), PriorityOrder()
    chunk = Chunk.of([Message(b"", headers=b"priority: 1\r\n"), Message(b"")])
    assert order.admits_alone(backlog, 0, chunk, 0)
    assert not order.admits(backlog, 0, chunk, 0)
    assert not order.admits_alone(backlog, 1, chunk, 1)
    assert order.next(backlog) == 0


def test_what_is_settled_while_it_waits_is_not_handed_out() -> None:
    box = boxed()
    put(box, 1, 9, 5)
    assert box.take(count=1) == [b"9"]
    box.broker.delete(Probe(), [box.group()], box.partition(), ranges([2]))
    box.settle()
    assert box.group().backlogs[0].life(2) is MessageState.DONE
    assert box.take() == [b"1"]
