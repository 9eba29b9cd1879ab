"""Backlog against a model that is obviously right, and what it tells a journal against itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import zip_longest

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.core.cursor.armed import MOVERS, ArmedBacklog
from tests.core.cursor.backlog_model import BacklogModel, OneMessage
from tests.limits import examples
from zbus.core.cursor import due_queue as overdue
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.journal import apply, changes, snapshot
from zbus.core.cursor.ranges import finish_all, finish_tried
from zbus.core.cursor.state import EntryState, StateChange
from zbus.core.model.message_state import TRANSITIONS, MessageState

_TOLD_APART = {MessageState.DEAD: MessageState.DONE, MessageState.DELETED: MessageState.DONE}
STEPS = {(before, _TOLD_APART.get(after, after)) for (before, _), after in TRANSITIONS.items()}
"""The rows of the table, as far as a backlog can tell lives apart."""

TIMES = st.integers(1, 30)
PICKS = st.integers(0, 1000)


def drain(backlog: Backlog, end: int) -> list[int]:
    order = []
    for now_ms in (0, 1 << 60):
        backlog.wake(now_ms, end)
        while (offset := backlog.next(end)) is not None:
            order.append(offset)
            assert backlog.finish(offset)
            backlog.check()
    return order


def from_snapshot(backlog: Backlog) -> Backlog:
    fresh = ArmedBacklog()
    apply(fresh, snapshot(backlog, "g"))
    fresh.check()
    return fresh


def test_every_row_of_the_table_has_code() -> None:
    assert {step for steps in MOVERS.values() for step in steps} == {
        step for _, step in TRANSITIONS
    }


class BacklogMachine(RuleBasedStateMachine):
    """`shadow` is what recovery would have after each tick that was told."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog: Backlog = ArmedBacklog()
        self.model = BacklogModel()
        self.shadow = Backlog()
        self.log_first = 0  # the log has what comes from there
        self.told_end = 0  # where the log ended when `changes` was called last
        self.before: list[MessageState] = []
        self.now_ms = 0

    def time(self, ms: int) -> int:
        """The time of a step. Here it goes back, too."""
        return ms

    def pick(self, number: int, *lives: MessageState) -> int | None:
        """One of the offsets in these lives."""
        offsets = self.model.offsets(*lives)
        return offsets[number % len(offsets)] if offsets else None

    def stepped(self) -> None:
        """Every change of life since the last call is a row of the table."""
        after = [self.backlog.life(offset) for offset in range(self.model.end)]
        pairs = zip_longest(self.before, after, fillvalue=MessageState.READY)
        assert {pair for pair in pairs if pair[0] is not pair[1]} <= STEPS
        self.before = after

    def jumped(self) -> None:
        """Lives changed in ways that are no steps."""
        self.before = [self.backlog.life(offset) for offset in range(self.model.end)]

    # -- what groups do -------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.grow(3)

    @precondition(lambda self: self.model.end < 16)
    @rule(count=st.integers(1, 5))
    def grow(self, count: int) -> None:
        self.model.log += [OneMessage() for _ in range(count)]
        self.stepped()

    @rule()
    def take_and_finish(self) -> None:
        offset = self.backlog.next(self.model.end)
        assert offset == self.model.next(self.model.end)
        if offset is not None:
            assert self.backlog.finish(offset)
            assert self.model.finish(offset)
        self.stepped()

    @rule(deadline_ms=TIMES)
    def take_and_lease(self, deadline_ms: int) -> None:
        offset = self.backlog.next(self.model.end)
        if offset is not None:
            self.lease(offset, deadline_ms)

    @rule(number=PICKS, deadline_ms=TIMES)
    def lease_any(self, number: int, deadline_ms: int) -> None:
        offset = self.pick(number, MessageState.READY)
        if offset is not None:
            self.lease(offset, deadline_ms)

    def lease(self, offset: int, deadline_ms: int) -> None:
        deadline_ms = self.time(deadline_ms)
        attempts = self.backlog.lease(offset, deadline_ms)
        assert attempts == self.model.lease(offset, deadline_ms)
        self.stepped()

    @precondition(lambda self: self.model.end)
    @rule(number=PICKS)
    def finish_any(self, number: int) -> None:
        offset = number % self.model.end
        assert self.backlog.finish(offset) == self.model.finish(offset)
        self.stepped()

    @rule(number=PICKS, count=st.integers(0, 40))
    def finish_tried(self, number: int, count: int) -> None:
        offset = number % (self.model.end + 3)
        offsets = range(offset, offset + count)
        assert finish_tried(self.backlog, [offsets]) == self.model.finish_tried(offsets)
        self.stepped()

    @rule(number=PICKS, count=st.integers(0, 40))
    def finish_all(self, number: int, count: int) -> None:
        offset = number % (self.model.end + 1)
        offsets = range(offset, min(offset + count, self.model.end))
        assert finish_all(self.backlog, offsets) == self.model.finish_all(offsets)
        self.stepped()

    @rule(number=PICKS)
    def finish_leased_or_delayed(self, number: int) -> None:
        offset = self.pick(number, MessageState.LEASED, MessageState.DELAYED)
        if offset is not None:
            assert self.backlog.finish(offset)
            assert self.model.finish(offset)
        self.stepped()

    @precondition(lambda self: self.model.end)
    @rule(number=PICKS, deadline_ms=TIMES)
    def extend(self, number: int, deadline_ms: int) -> None:
        offset = number % self.model.end
        deadline_ms = self.time(deadline_ms)
        extended = self.backlog.extend(offset, deadline_ms)
        assert extended == self.model.extend(offset, deadline_ms)
        self.stepped()

    @rule(number=PICKS, deadline_ms=TIMES)
    def extend_alone(self, number: int, deadline_ms: int) -> None:
        """Nothing else happens to it in the same tick, so only the extension can be told."""
        self.tell()
        offset = self.pick(number, MessageState.LEASED)
        if offset is not None:
            deadline_ms = self.time(deadline_ms)
            assert self.backlog.extend(offset, deadline_ms)
            assert self.model.extend(offset, deadline_ms)
        self.stepped()
        self.tell()

    @rule(number=PICKS, due_ms=TIMES)
    def delay(self, number: int, due_ms: int) -> None:
        offset = self.pick(number, MessageState.READY, MessageState.LEASED)
        if offset is not None:
            due_ms = self.time(due_ms)
            self.backlog.delay(offset, due_ms)
            self.model.delay(offset, due_ms)
        self.stepped()

    @rule(number=PICKS)
    def put_front(self, number: int) -> None:
        offset = self.pick(number, MessageState.READY, MessageState.LEASED, MessageState.DELAYED)
        if offset is not None:
            self.backlog.put_front(offset)
            self.model.put_front(offset)
        self.stepped()

    @rule(number=PICKS)
    def again(self, number: int) -> None:
        offset = self.pick(number, MessageState.READY, MessageState.DELAYED, MessageState.DONE)
        if offset is not None and offset >= self.log_first:
            self.backlog.again(offset)
            self.model.again(offset)
        self.stepped()

    @rule(number=PICKS)
    def put_end(self, number: int) -> None:
        offset = self.pick(number, MessageState.READY, MessageState.LEASED, MessageState.DELAYED)
        if offset is not None:
            self.backlog.put_end(offset, self.model.end)
            self.model.put_end(offset)
        self.stepped()

    @rule(now_ms=TIMES)
    def wake(self, now_ms: int) -> None:
        now_ms = self.now_ms = self.time(now_ms)
        self.backlog.wake(now_ms, self.model.end)
        self.model.wake(now_ms)
        assert not self.backlog.next_wake() or self.backlog.next_wake() > now_ms
        self.stepped()

    @rule()
    def drop_waiting(self) -> None:
        assert self.backlog.drop_waiting(self.model.end) == self.model.drop_waiting()
        self.jumped()

    @rule(number=PICKS)
    def seek(self, number: int) -> None:
        cursor = number % (self.model.end + 1)
        self.backlog.seek(cursor)
        self.model.seek(cursor)
        self.jumped()

    @rule(number=PICKS)
    def rewind(self, number: int) -> None:
        cursor = number % (self.model.end + 1)
        if cursor < self.backlog.cursor:
            self.backlog.rewind(cursor)
            self.model.rewind(cursor)
        self.jumped()

    @rule()
    def become_a_copy(self) -> None:
        """Another group starts where this one stands, and is looked at from here on."""
        other = ArmedBacklog()
        other.copy_from(self.backlog)
        self.backlog = other
        self.model.become_a_copy()
        self.shadow = Backlog()
        self.jumped()

    @rule(number=PICKS)
    def fall_off(self, number: int) -> None:
        """The log begins later. A change says only how much was lost: recovery is told the rest."""
        first = number % (self.told_end + 1)
        self.log_first = max(self.log_first, first)
        expected = self.backlog.skipped, self.backlog.unreported
        lost = self.model.fall_off(first)
        assert self.backlog.fall_off(first) == lost
        assert (self.backlog.skipped, self.backlog.unreported) == tuple(n + lost for n in expected)
        assert self.backlog.fall_off(first) == 0
        self.shadow.fall_off(first)
        self.jumped()

    # -- what a journal does --------------------------------------------------------------

    @rule()
    def tell(self) -> None:
        change = changes(self.backlog, "g")
        apply(self.shadow, change)
        self.told_end = self.model.end
        told = snapshot(self.backlog, "g")
        assert snapshot(self.shadow, "g") == told
        self.shadow.check()
        apply(self.shadow, change)
        assert snapshot(self.shadow, "g") == told, "applied twice"
        again = changes(self.backlog, "g")
        assert not again.entries
        assert not again.reset

    @rule()
    def refuse(self) -> None:
        """There is no room for what was put since the last tick."""
        change = StateChange(None, (changes(self.backlog, "g"),))
        self.backlog.truncate(self.told_end)
        self.model.truncate(self.told_end)
        (truncated,) = change.truncated(self.told_end).groups
        apply(self.shadow, truncated)
        assert snapshot(self.shadow, "g") == snapshot(self.backlog, "g")
        assert not changes(self.backlog, "g").entries
        self.before = self.before[: self.told_end]
        self.jumped()

    @rule()
    def recover(self) -> None:
        self.backlog = from_snapshot(self.backlog)
        self.shadow = from_snapshot(self.backlog)
        self.told_end = self.model.end

    # -- what always holds ----------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        backlog, model = self.backlog, self.model
        backlog.check()
        assert [backlog.life(offset) for offset in range(model.end)] == model.lives()
        assert backlog.ready_count(model.end) == len(model.offsets(MessageState.READY))
        assert len(backlog.leased) == len(model.offsets(MessageState.LEASED))
        assert len(backlog.delayed) == len(model.offsets(MessageState.DELAYED))
        assert backlog.next_wake() == model.next_wake()
        counted = {offset: m.attempts for offset, m in enumerate(model.log) if m.attempts}
        assert backlog.attempts == counted
        assert backlog.floor() <= model.floor(), "something below the floor is not finished"
        # `next` may tidy up, so it looks at a copy: it has to be right without that, too.
        looked = copy.deepcopy(backlog)
        assert looked.next(model.end) == model.next(model.end)
        assert looked.floor() == model.floor()
        visible = model.end // 2
        if (offset := model.next(visible)) is None or model.cursor() <= visible:
            assert copy.deepcopy(backlog).next(visible) == offset

    @invariant()
    def a_snapshot_behaves_the_same(self) -> None:
        order = self.model.drain()
        assert drain(copy.deepcopy(self.backlog), self.model.end) == order
        assert drain(from_snapshot(self.backlog), self.model.end) == order

    @invariant()
    def entries_tell_no_more_than_there_is(self) -> None:
        entries = snapshot(self.backlog, "g").entries
        assert len({entry.offset for entry in entries}) == len(entries)
        assert all(
            entry.offset >= self.backlog.cursor
            for entry in entries
            if entry.state is EntryState.DONE
        ), "an acknowledgement below the cursor costs something"


BacklogMachine.TestCase.settings = examples(50, derandomize=True, stateful_step_count=40)
TestBacklog = BacklogMachine.TestCase


class LongMachine(BacklogMachine):
    """The same, for longer."""


LongMachine.TestCase.settings = settings(BacklogMachine.TestCase.settings, max_examples=300)
TestBacklogForLonger = pytest.mark.check(LongMachine.TestCase)


class LotsMachine(BacklogMachine):
    """What is due becomes ready two at a time. The others count as delayed meanwhile, and whoever
    begins with a snapshot has to look first what is due: so those rules are left out."""

    def __init__(self) -> None:
        super().__init__()
        overdue.LOT = 2  # type: ignore[misc]

    def teardown(self) -> None:
        overdue.LOT = _LOT  # type: ignore[misc]

    def time(self, ms: int) -> int:
        return self.now_ms + ms

    def recover(self) -> None:
        """Not here."""

    def become_a_copy(self) -> None:
        """Not here."""

    @rule(times=st.lists(TIMES, max_size=6), now_ms=TIMES)
    def delay_and_wake(self, times: list[int], now_ms: int) -> None:
        """Many are due at once."""
        for number, due_ms in enumerate(times):
            self.delay(number, due_ms)
        self.wake(now_ms)

    @invariant()
    def agrees(self) -> None:
        backlog, model = self.backlog, self.model
        backlog.check()
        assert [backlog.life(offset) for offset in range(model.end)] == model.lives()
        waiting = len(model.offsets(MessageState.READY, MessageState.DELAYED))
        assert backlog.ready_count(model.end) + len(backlog.delayed) == waiting
        looked = copy.deepcopy(backlog)
        assert looked.next(model.end) == model.next(model.end)
        assert looked.floor() == model.floor()

    @invariant()
    def a_snapshot_behaves_the_same(self) -> None:
        assert drain(copy.deepcopy(self.backlog), self.model.end) == self.model.drain()


_LOT = overdue.LOT
LotsMachine.TestCase.settings = BacklogMachine.TestCase.settings
TestLots = LotsMachine.TestCase


@pytest.fixture
def lots_of_two() -> Iterator[None]:
    overdue.LOT = 2  # type: ignore[misc]
    yield
    overdue.LOT = _LOT  # type: ignore[misc]


@pytest.mark.usefixtures("lots_of_two")
def test_what_is_overdue_keeps_its_place() -> None:
    backlog = Backlog()
    for offset in range(6):
        backlog.delay(offset, 10)
    assert backlog.wake(10, 6) == 2
    assert len(backlog.delayed) == 4
    assert not backlog.in_order
    backlog.lease(6, 99)
    backlog.put_end(6, 7)
    assert backlog.next_wake() == 10 + overdue.LOOK_MS
    assert drain(copy.deepcopy(backlog), 8) == [0, 1, 2, 3, 4, 5, 6, 7]
    # What becomes due meanwhile goes behind, and is not made ready before its turn.
    backlog.delay(7, 11)
    assert backlog.wake(60, 8) == 0
    assert drain(copy.deepcopy(backlog), 9) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    # In front is in front.
    backlog.put_front(5)
    assert backlog.floor() == 0
    assert drain(backlog, 9) == [5, 0, 1, 2, 3, 4, 6, 7, 8]
    assert backlog.in_order
    assert backlog.next_wake() == 0


def test_what_is_not_written_yet_is_looked_behind_as_far_as_the_cursor_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not further: each message would cost as much as all that wait at the end."""
    backlog = Backlog(10)
    for offset in range(5):
        backlog.put_end(offset, 1_000)
    backlog.put_front(20)
    waiting = backlog.ready.in_line
    looked = iter(waiting.items())
    monkeypatch.setattr(type(waiting), "items", lambda _: looked)
    assert backlog.next(15) == 10
    assert len(list(looked)) == 4


@pytest.mark.usefixtures("lots_of_two")
def test_what_is_overdue_follows_the_end_of_a_log_that_was_cut() -> None:
    backlog = Backlog()
    for offset in range(4):
        backlog.delay(offset, 10)
    backlog.wake(10, 9)
    backlog.truncate(5)
    assert drain(backlog, 7) == [4, 0, 1, 2, 3, 5, 6]


@pytest.mark.usefixtures("lots_of_two")
def test_overdue_for_ever_the_ranks_stay_few() -> None:
    backlog = Backlog()
    count = 3 * overdue.RANKS_MAX
    for number in range(count):
        backlog.delay(number, number + 1)
        backlog.wake(number + 1, number + 1)
        if number % 64 == 0:
            backlog.check()
    assert len(backlog.ready.overdue.ranks) <= overdue.RANKS_MAX
    assert drain(backlog, count) == list(range(count))


def test_what_was_put_behind_a_message_that_found_no_room_is_at_the_end() -> None:
    backlog = Backlog()
    backlog.lease(0, 10)
    backlog.put_end(0, 4)  # behind offset 3, which is staged
    backlog.truncate(3)  # and finds no room
    order = []
    while (offset := backlog.next(4)) is not None:  # another one is there by now
        backlog.finish(offset)
        order.append(offset)
    assert order == [1, 2, 0, 3]
