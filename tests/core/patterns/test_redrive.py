"""Dead messages go back, each of them once; what cannot go stays as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.patterns.test_completions import crashes
from tests.core.support import Box, CrashJournal, Probe, again, ranges, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.patterns.redrive import PORTION
from zbus.core.topics.outcomes import Moved
from zbus.core.topics.topic import Topic
from zbus.storage.port import Verdict

DEAD = b"dead_topic: %b\r\ndead_group: g\r\ndead_reason: expired\r\n"


def prepared(
    *origins: bytes, durability: str = "disk", attempts_max: int = 0, order: str = ""
) -> Box:
    """A dead message from each of these topics; In and Other are there."""
    box = Box(CrashJournal())
    options = GroupOptions(lease=True, window=9_999, attempts_max=attempts_max, order=order)
    for name in ("In", "Other", "Dead"):
        box.declare(TopicOptions(name, durability=durability), "g", options)
    for number, origin in enumerate(origins):
        message = Message(b"id%d" % number, headers=b"x: y\r\n" + DEAD % origin)
        where = box.partition("Dead")
        body = b"%d" % number
        box.broker.put(where, Probe(), make_row(message.id, message.headers, body, b"tag", b"key"))
    box.settle()
    return box


def redrive(
    box: Box,
    *offsets: int,
    count: int = 1_000,
    target: Callable[[str], Topic | None] | None = None,
) -> Probe:
    probe = Probe()
    partition = box.partition("Dead") if offsets else None
    where = box.group("g", "Dead"), target or box.broker.topic, count, partition, ranges(offsets)
    box.broker.redrive(probe, *where)
    return probe


def moved(probe: Probe) -> tuple[int, int]:
    assert not probe.open
    (outcome,) = probe.answers
    assert isinstance(outcome, Moved)
    return outcome.count, outcome.stayed


def test_they_go_where_they_come_from() -> None:
    box = prepared(b"In", b"Other", b"In")
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (3, 0)
    pull = box.pull(topic="In")
    box.settle()
    (record,) = pull.records
    message = record.message
    assert (message.id, message.headers, message.tag, message.key) == (
        b"id0",
        b"x: y\r\n",
        b"tag",
        b"key",
    )
    assert box.take(topic="In") == [b"2"]
    assert box.take(topic="Other") == [b"1"]
    assert box.take(topic="Dead") == []
    box.settle(1_000_000)
    assert box.take(topic="Dead") == []


def test_so_many_or_these() -> None:
    box = prepared(*[b"In"] * 6)
    first = redrive(box, count=2)
    box.settle()
    assert moved(first) == (2, 0)
    named = redrive(box, 0, 3, 5, 9)
    box.settle()
    assert moved(named) == (2, 0)
    assert box.take(topic="In") == [b"0", b"1", b"3", b"5"]
    assert box.take(topic="Dead") == [b"2", b"4"]


def test_all_that_a_group_with_priorities_has_compared() -> None:
    """What it has not delivered is parked, and nothing is in line."""
    box = prepared(*[b"In"] * 3, order="priority")
    assert box.take(topic="Dead", count=1) == [b"0"]
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (2, 0)
    assert box.take(topic="In") == [b"1", b"2"]


def test_what_cannot_go_stays_and_was_handed_to_nobody() -> None:
    box = prepared(b"Gone", b"In", b"No%20such")
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (1, 2)
    assert box.group("g", "Dead").backlogs[0].attempts == {}
    pull = box.pull(topic="Dead", count=9)
    box.settle()
    assert [(record.message.body, record.attempts) for record in pull.records] == [
        (b"0", 1),
        (b"2", 1),
    ]


def test_what_is_not_ready_is_not_moved() -> None:
    """Nobody has read the group yet, so it is not known before what is due later."""
    box = prepared()
    box.declare(TopicOptions("Dead"), "g", GroupOptions(lease=True, filter="tag"))
    where, headers = box.partition("Dead"), DEAD % b"In"
    later, over = box.broker.now_ms + 5_000, box.broker.now_ms + 10
    for number, (tag, due_ms, expires_ms) in enumerate(
        [(b"tag", later, 0), (b"tag", 0, over), (b"other", 0, 0), (b"tag", 0, 0)]
    ):
        message = Message(b"id%d" % number, headers=headers, body=b"%d" % number, tag=tag)
        message.due_ms, message.expires_ms = due_ms, expires_ms
        box.broker.put_all(where, Probe(), Chunk.of([message]))
    box.settle(100)
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (1, 0)
    assert box.take(topic="In") == [b"3"]
    assert box.group("g", "Dead").backlogs[0].attempts == {}
    assert box.take(topic="Dead") == []
    box.settle(5_000)
    assert box.take(topic="Dead") == [b"0"]


def test_nowhere_at_all() -> None:
    box = prepared(b"In", b"In")
    probe = redrive(box, target=lambda name: None)
    box.settle()
    assert moved(probe) == (0, 2)


def test_many_take_several_turns() -> None:
    box = prepared(*[b"In"] * (2 * PORTION + 1))
    probe = redrive(box, count=10_000)
    box.turn()
    assert box.topic("In").depth() <= 2 * PORTION
    box.settle()
    assert moved(probe) == (2 * PORTION + 1, 0)
    assert box.take(topic="In", count=9_999) == [b"%d" % n for n in range(2 * PORTION + 1)]


def test_what_dies_meanwhile_waits_for_the_next_time() -> None:
    """Or a message that dies at once would go round for ever."""
    box = prepared(b"Dead2", b"Dead2")
    probe = redrive(box, target=lambda name: box.topic("Dead"))
    box.settle()
    assert moved(probe) == (2, 0)
    assert len(box.take(topic="Dead")) == 2


def test_a_full_disk_stops_it() -> None:
    box = prepared(b"In", b"In")
    assert isinstance(box.journal, CrashJournal)
    box.journal.full = True
    probe = redrive(box)
    box.settle()
    assert refusal(probe).refusal is Refusal.FULL
    box.journal.full = False
    assert box.take(topic="Dead") == [b"0", b"1"]


@pytest.mark.parametrize("tried", [False, True])
def test_of_a_group_with_order_per_key(tried: bool) -> None:
    """All of them have one key."""
    box = prepared(*[b"In"] * 3, order="key")
    if tried:
        assert len(box.take(topic="Dead")) == 3
        box.settle(20_000)
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (3, 0)
    assert box.take(topic="In") == [b"0", b"1", b"2"]
    assert box.take(topic="Dead") == []


@pytest.mark.parametrize("gone", ["group", "topic"])
def test_the_group_goes_meanwhile(gone: str) -> None:
    box = prepared(b"In", b"In")
    probe = redrive(box)
    if gone == "group":
        box.broker.remove_group(Probe(), box.group("g", "Dead"))
    else:
        box.broker.remove_topic(Probe(), box.topic("Dead"))
    box.settle()
    assert moved(probe) == (2, 0)
    assert box.take(topic="In") == [b"0", b"1"]


def test_nothing_is_there_and_a_paused_group() -> None:
    box = prepared()
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (0, 0)
    paused = GroupOptions(lease=True, paused=True)
    box.declare(TopicOptions("Dead", durability="disk"), "g", paused)
    box.settle()
    assert refusal(redrive(box)).refusal is Refusal.ILLEGAL


@pytest.mark.parametrize("attempts_max", [0, 1])
@pytest.mark.parametrize("synced", range(5))
def test_a_crash_leaves_each_in_one_place(synced: int, attempts_max: int) -> None:
    """And what was not moved can be had after a while: to be redriven was no attempt."""
    box = prepared(b"In", b"Other", attempts_max=attempts_max)
    assert isinstance(box.journal, CrashJournal)
    box.settle(10)
    redrive(box)
    for _ in range(synced):
        box.turn()
        box.journal.release(1)
    box.turn(10)
    for after in crashes(box):
        after.settle(1_000_000)
        found = [after.take(topic=name) for name in ("In", "Other", "Dead")]
        assert sorted([body for bodies in found for body in bodies]) == [b"0", b"1"]
        assert found[0] in ([], [b"0"])
        assert found[1] in ([], [b"1"])
        assert again(after).topic("Dead").partitions[0].completions is None


@pytest.mark.parametrize("fate", [Verdict.LOST, Verdict.CONFLICT])
def test_the_group_is_read_again_before_it_is_stored(fate: Verdict) -> None:
    """With the lease, which was not written, or without: it is moved once."""
    box = LateBox()
    for name in ("Out", "T"):
        box.declare(TopicOptions(name, durability="disk"), "g", GroupOptions(lease=True))
        box.settle()
    box.broker.put(box.partition(), Probe(), make_row(b"id", DEAD % b"Out", b"0"))
    box.settle()
    for _ in range(2):  # somebody who got no answer asks again
        probe = Probe()
        box.broker.redrive(probe, box.group(), box.broker.topic, 10)
        box.turn()
        box.fail(fate=fate)
        for _ in range(10):
            while ("T", 0) in box.late.waiting:
                box.late.step(("T", 0))
            box.run_posted()
            box.turn(500)
    box.settle(60_000)
    box.settle()
    assert box.take(topic="Out") == [b"0"]
    assert box.take() == []


def test_what_stays_is_not_taken_from_whoever_has_it_by_now() -> None:
    """The group was read again before the others were moved."""
    box = LateBox()
    box.declare(TopicOptions("Out", durability="disk"), "g", GroupOptions(lease=True))
    for number, origin in enumerate((b"gone", b"Out")):
        box.broker.put(box.partition(), Probe(), make_row(b"id", DEAD % origin, b"%d" % number))
    box.settle()
    probe = Probe()
    box.broker.redrive(probe, box.group(), box.broker.topic, 10)
    box.turn()
    box.fail()
    pull = box.pull(wait=True)
    while pull.open:
        while ("T", 0) in box.late.waiting:
            box.late.step(("T", 0))
        box.run_posted()
        box.turn(100)
    assert pull.bodies == [b"0"]
    box.settle()
    assert moved(probe) == (1, 1)
    assert box.group().backlogs[0].life(0) is MessageState.LEASED
    assert box.take() == []
