"""A group is handed messages again that completions have finished: no crash, and nothing that is
completed later, takes them back once that was answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.core.commit.test_state_full import NoRoom
from tests.core.patterns.test_completions import (
    crashes,
    lives,
    prepared,
    source,
    transform,
)
from tests.core.support import Box, CrashJournal, Probe, again, refusal
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal, fenced
from zbus.core.model.message_state import MessageState
from zbus.core.patterns.completions import AGAIN_MS
from zbus.core.topics.outcomes import Changed, Declared
from zbus.core.verbs.seek import Start
from zbus.storage.format.batch import Batch
from zbus.storage.port import JournalFull, Lane

DYING = GroupOptions(lease=True, window=9, lease_ms=10_000, attempts_max=1, dead_letter="Dead")

Verb = Callable[[Box], Probe]


def operator(box: Box) -> Probe:
    probe = Probe()
    box.broker.again(probe, box.group("g", "In"), box.partition("In"), 0)
    return probe


def seek(box: Box) -> Probe:
    probe = Probe()
    box.broker.seek(probe, box.group("g", "In"), Start(offset=0))
    return probe


def declare(box: Box) -> Probe:
    group, topic = box.group("g", "In"), box.topic("In")
    return box.declare(topic.options, "g", group.options, Start(offset=0, moves=True))


VERBS = [operator, seek, declare]


def fine(probe: Probe) -> bool:
    return not probe.open and isinstance(probe.answers[-1], Changed | Declared)


def dying(partitions: int = 1, journal: CrashJournal | None = None) -> Box:
    """The group g of In has had a message once, and is about to give it up."""
    box = Box(journal or CrashJournal())
    box.declare(TopicOptions("Dead", durability="disk"), "g", GroupOptions(lease=True))
    box.declare(TopicOptions("In", durability="disk", partitions=partitions), "g", DYING)
    box.put(b"0", topic="In")
    box.settle()
    assert box.take("g", topic="In") == [b"0"]
    return box


def steps(box: Box, count: int) -> None:
    """Turns, with a sync done in each."""
    assert isinstance(box.journal, CrashJournal)
    for _ in range(count):
        box.journal.release(1)
        box.turn(10)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("before", range(7))
def test_a_death_takes_no_message_that_came_back(before: int, verb: Verb, partitions: int) -> None:
    """It is dead, and being handed again; the power goes at any time."""
    box = dying(partitions)
    box.turn(10_000)  # the lease is over
    steps(box, before)
    probe = verb(box)
    for _ in range(8):
        box.turn(10)
        answered = fine(probe)
        for after in crashes(box):
            after.settle(AGAIN_MS)
            if answered:
                assert after.take("g", topic="In") == [b"0"]
                after.ack(0, topic="In")
            after.settle(100_000)
            after.settle(10)
            known = again(after).topic("Dead").partitions[0].completions
            assert known is None or not known.open
        steps(box, 1)
    if probe.open or not fine(probe):
        assert verb is operator, "it is leased"
        return
    assert box.take("g", topic="In") == [b"0"]
    box.settle(5 * AGAIN_MS)
    assert box.group("g", "In").backlogs[0].life(0) is MessageState.LEASED
    assert box.topic("Dead").depth() == 1


@pytest.mark.parametrize("verb", [operator, seek])
@pytest.mark.parametrize("before", range(7))
def test_what_a_start_finds_open_takes_nothing_after_another_crash(before: int, verb: Verb) -> None:
    box = dying()
    box.turn(10_000)
    steps(box, before)
    for after in crashes(box):
        after.turn()
        probe = verb(after)
        for _ in range(6):
            after.turn(10)
            for last in crashes(after) if fine(probe) else ():
                last.settle(AGAIN_MS)
                assert last.take("g", topic="In") == [b"0"]
            steps(after, 1)


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("verb", [seek, declare])
def test_a_result_takes_no_delivery_that_is_read_again(before: int, verb: Verb) -> None:
    """And until the group is durably elsewhere, what was stored with the result is settled."""
    box = prepared()
    stored = transform(box, b"a", sources=[source(box, 0, 1)])
    steps(box, before)
    probe = verb(box)
    for _ in range(8):
        box.turn(10)
        for after in crashes(box):
            after.settle()
            found = lives(after)
            assert not fine(probe) or found == [MessageState.READY] * 3
            if not stored.open and found != [MessageState.READY] * 3:
                assert found[:2] == [MessageState.DONE] * 2
        steps(box, 1)
    assert fine(probe)
    box.settle(5 * AGAIN_MS)
    assert lives(box) == [MessageState.READY] * 3


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("between", range(6))
def test_another_result_stored_meanwhile_says_nothing_of_it(between: int, before: int) -> None:
    """One is written before the other one is closed, and durable after that."""
    box = prepared()
    transform(box, b"a", sources=[source(box, 0)])
    steps(box, between)
    transform(box, b"b", sources=[source(box, 1)])
    box.turn(10)
    steps(box, before)
    probe = operator(box)
    for _ in range(8):
        box.turn(10)
        for after in crashes(box):
            after.settle()
            assert not fine(probe) or lives(after)[0] is MessageState.READY
        steps(box, 1)


class NoRoomThere(NoRoom):
    """For the topic alone in which it died."""

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self.shut and lane[0] == "In":
            raise JournalFull("no space left")
        CrashJournal.append(self, lane, after, batches)


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_tried_again_later_takes_nothing(verb: Verb) -> None:
    """The disk had no room for what a completion says, and has some by now."""
    journal = NoRoomThere()
    box = dying(journal=journal)
    journal.shut = True
    box.settle(10_000)
    journal.shut = False
    probe = verb(box)
    for _ in range(3):
        box.turn(AGAIN_MS)  # nothing is synced
    box.settle(5 * AGAIN_MS)
    assert fine(probe)
    assert box.group("g", "In").backlogs[0].life(0) is MessageState.READY
    known = box.partition("Dead").completions
    assert known is not None
    assert not known.open


@pytest.mark.parametrize("verb", VERBS)
def test_without_room_it_is_refused_and_completed_later(verb: Verb) -> None:
    journal = NoRoomThere()
    box = dying(journal=journal)
    journal.shut = True
    box.settle(10_000)
    assert refusal_of(box, verb(box)) is Refusal.FULL
    journal.shut = False
    box.settle(5 * AGAIN_MS)
    known = box.partition("Dead").completions
    assert known is not None
    assert not known.open


@pytest.mark.parametrize("verb", VERBS)
def test_the_log_that_decided_is_read_again_meanwhile(verb: Verb) -> None:
    """Then it is completed once more, and the client gets an error that says to retry."""
    box = dying()
    box.turn(10_000)
    steps(box, 3)
    probe = verb(box)
    box.turn()
    there = box.partition("Dead")
    box.broker._tick.hooks.fence(there, fenced(*there.lane, "the disk is odd"))
    assert refusal_of(box, probe) is Refusal.FENCED
    box.settle(5 * AGAIN_MS)
    again_ = verb(box)
    box.settle(5 * AGAIN_MS)
    assert fine(again_)
    assert box.take("g", topic="In") == [b"0"]


def test_a_delivery_that_is_being_settled_with_others_is_not_handed_again() -> None:
    """The result is stored, and the log of its sources was being read: one of them is free."""
    box = prepared()
    there = box.partition("In")
    transform(box, b"a", sources=[source(box, 0, 1)])
    box.turn()
    there.fenced = fenced(*there.lane, "the disk is odd")
    steps(box, 2)
    there.fenced = None
    box.group("g", "In").backlogs[0].put_back(0)
    assert refusal_of(box, operator(box)) is Refusal.CONFLICT
    box.settle(5 * AGAIN_MS)
    assert lives(box)[:2] == [MessageState.DONE] * 2


def refusal_of(box: Box, probe: Probe) -> Refusal:
    box.settle(10)
    return refusal(probe).refusal
