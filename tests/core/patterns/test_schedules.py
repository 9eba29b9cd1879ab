"""Schedules across a power cut, and while logs are read again; what they do otherwise:
`tests/conformance/test_schedules.py`."""

from __future__ import annotations

import pytest

from tests.core.patterns.test_completions import crashes
from tests.core.support import Box, CrashJournal, Probe, ranges
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.patterns.schedules import CRON
from zbus.core.topics.topic import Group
from zbus.dialects.zbus.messages.cron import TIMES
from zbus.storage.port import Lane, Verdict

HOUR_MS = 3_600_000
OUT: Lane = ("Out", 0)
SCHEDULES: Lane = ("cron.Out", 0)


def scheduled(box: Box) -> int:
    """A message each hour into `Out`; when the first one is due."""
    box.broker.schedules.times = TIMES
    box.declare(TopicOptions("Out", durability="disk"), "r", GroupOptions())
    first_ms = (box.now_ms // HOUR_MS + 1) * HOUR_MS
    row = make_row(b"id", CRON + b"0 * * * *\r\n", b"x", due_ms=first_ms)
    box.broker.schedules.put(Probe(), box.topic("Out"), row)
    box.settle(10)
    return first_ms


def group_of(box: Box) -> Group:
    return next(iter(box.topic("cron.Out").groups.values()))


def times(box: Box) -> list[int]:
    """What the occurrences stand for that have come since the last call."""
    box.settle()
    pull = box.pull("r", 100, "Out")
    box.settle(1)
    box.broker.leave_group(pull.session, box.group("r", "Out"))
    lines = [line for one in pull.records for line in one.message.headers.split(b"\r\n")]
    return [int(line.split()[1]) for line in lines if line.startswith(b"cron_time")]


@pytest.mark.parametrize("synced", range(4))
@pytest.mark.parametrize("fired", [False, True])
def test_a_power_cut_leaves_an_occurrence_and_its_next_time_or_neither(
    synced: int, fired: bool
) -> None:
    """However late the next start is, each time comes once, and the next is the expression's."""
    box = Box(CrashJournal())
    assert isinstance(box.journal, CrashJournal)
    first_ms = scheduled(box)
    due_ms = first_ms
    if fired:
        due_ms = box.now_ms + 5_001
        place = (box.partition("cron.Out"), ranges([0]), due_ms)
        box.broker.reschedule(Probe(), [group_of(box)], *place)
        box.settle()
    box.turn(due_ms - box.now_ms)
    for _ in range(synced):
        box.journal.release(1)
        box.turn()
    for after in crashes(box):
        after.broker.schedules.times = TIMES
        after.settle(40_000)  # a lease that was kept is over
        came = times(after)
        after.settle(first_ms - after.now_ms if fired else HOUR_MS)
        came += times(after)
        # That it was fired is not known any more, if nothing of it is stored.
        assert came[0] in ((due_ms, first_ms - HOUR_MS) if fired else (due_ms,))
        assert came[1:] == [first_ms if fired else first_ms + HOUR_MS]


def test_an_occurrence_that_was_stored_though_its_put_was_lost() -> None:
    box = LateBox()
    first_ms = scheduled(box)
    box.turn(first_ms - box.now_ms)
    while OUT not in box.late.waiting:
        box.turn()
    box.late.step(OUT, Verdict.LOST, True)
    box.late.step(OUT)
    box.run_posted()
    assert box.partition("Out").fenced is not None
    box.settle()
    box.settle(5_000)
    assert times(box) == [first_ms]


def test_schedules_that_cannot_be_read_for_longer_than_a_lease() -> None:
    box = LateBox()
    first_ms = scheduled(box)
    box.turn(first_ms - box.now_ms)
    for _ in range(3):
        box.turn()
    while len(box.late.waiting[SCHEDULES]) > 2:
        box.late.step(SCHEDULES)
    while box.partition("cron.Out").fenced is None:
        box.late.step(SCHEDULES, Verdict.LOST, True)
        box.run_posted()
    while OUT in box.late.waiting:
        box.late.step(OUT)
        box.run_posted()
    assert box.partition("Out").visible == 1
    for _ in range(35):
        box.turn(1_000)
    for _ in range(5):
        while SCHEDULES in box.late.waiting:
            box.late.step(SCHEDULES)
        box.run_posted()
        box.turn()
    box.settle(5_000)
    assert times(box) == [first_ms]


def test_another_time_that_was_refused_is_no_time() -> None:
    box = LateBox()
    first_ms = scheduled(box)
    probe, later_ms = Probe(), first_ms + 24 * HOUR_MS + 1_234
    place = (box.partition("cron.Out"), ranges([0]), later_ms)
    box.broker.reschedule(probe, [group_of(box)], *place)
    box.turn()
    box.late.step(SCHEDULES, Verdict.LOST)
    box.late.run()
    box.run_posted()
    box.settle()
    box.settle(3_000)
    assert isinstance(probe.answers[-1], BrokerError)
    box.settle(first_ms - box.now_ms)
    assert times(box) == [first_ms]


def test_a_full_disk_and_then_a_start() -> None:
    """What was tried again stands for the last time that has passed, not for that of a try."""
    box = Box(CrashJournal())
    first_ms = scheduled(box)
    box.broker.refuse_puts(BrokerError(Refusal.FULL, "no space left"), None)
    box.settle(first_ms - box.now_ms)
    box.settle(3_000)
    assert isinstance(box.journal, CrashJournal)
    journal = box.journal.crash(lambda lane, unsynced: unsynced)
    after = Box(journal, now_ms=first_ms + 10 * HOUR_MS)
    after.broker.schedules.times = TIMES
    after.settle(40_000)
    assert times(after) == [first_ms + 10 * HOUR_MS]


def test_times_of_schedules_that_are_cancelled_are_forgotten() -> None:
    box = Box(CrashJournal())
    first_ms = scheduled(box)
    group, partition = group_of(box), box.partition("cron.Out")
    box.broker.reschedule(Probe(), [group], partition, ranges([0]), first_ms + 5)
    box.settle()
    assert group.moved == {0: first_ms + 5}
    box.broker.cancel(Probe(), [group], partition, ranges([0]))
    box.settle()
    assert group.moved == {}
