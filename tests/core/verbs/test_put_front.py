"""Messages that are put before all that is ready."""

from __future__ import annotations

from functools import partial

import pytest

from tests.core.support import Box, CrashJournal, Probe, again, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Refusal
from zbus.core.topics.outcomes import Changed, Duplicate, Stored
from zbus.core.verbs.puts import FRONT
from zbus.storage.port import Lane, Verdict

LEASING = GroupOptions(lease=True, window=100)


def filled(durability: str = "disk", dedupe_ms: int = 0) -> Box:
    """Two groups, and three messages of which the one has the first."""
    box = Box(CrashJournal())
    topic = TopicOptions("T", durability=durability, dedupe_ms=dedupe_ms)
    box.declare(topic, "g", LEASING)
    box.declare(topic, "other", GroupOptions())
    box.settle()
    box.put(b"0", b"1", b"2")
    box.settle()
    assert box.take(count=1) == [b"0"]
    return box


def put_front(box: Box, *bodies: bytes, id: bytes = b"", due_ms: int = 0) -> Probe:
    chunk, probe = Chunk(), Probe()
    for body in bodies:
        chunk.add(id, b"", body, due_ms=due_ms)
    box.broker.put_all(box.partition(), probe, chunk, FRONT)
    return probe


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_they_come_first_in_every_group(durability: str) -> None:
    box = filled(durability)
    probe = put_front(box, b"a", b"b")
    box.settle()
    assert isinstance(probe.answers[0], Stored)
    put_front(box, b"c")
    box.put(b"3")
    box.settle()
    assert box.take() == [b"c", b"a", b"b", b"1", b"2", b"3"]
    assert box.take("other") == [b"c", b"a", b"b", b"0", b"1", b"2", b"3"]


def test_a_group_that_has_read_everything() -> None:
    box = filled()
    box.take()
    waiting = box.pull(wait=True)
    put_front(box, b"a")
    box.settle()
    assert waiting.bodies == [b"a"]
    assert box.take() == []


def late(*bodies: bytes) -> LateBox:
    """On an engine that answers when it is asked to; the group has read everything."""
    box = LateBox()
    box.put(*bodies)
    box.settle()
    return box


def test_what_is_not_written_yet_is_not_handed_out() -> None:
    box = late(b"0")
    probe = put_front(box, b"a")
    first, waiting = box.pull(wait=True), box.pull(wait=True)
    box.turn()
    assert (probe.open, first.bodies, waiting.open) == (True, [b"0"], True)
    box.settle()
    assert waiting.bodies == [b"a"]


def test_what_was_not_written_leaves_no_place() -> None:
    box = late(b"0", b"1")
    probe = put_front(box, b"a")
    box.turn()
    box.late.step(("T", 0), Verdict.FULL)
    box.late.step(("T", 0))
    box.settle()
    assert refusal(probe).refusal in (Refusal.FULL, Refusal.FENCED)
    assert box.take() == [b"0", b"1"]


def test_after_a_restart() -> None:
    box = filled()
    put_front(box, b"a", b"b")
    box.settle()
    assert box.take(count=1) == [b"a"]
    box.ack(3)
    box = again(box)
    assert box.take() == [b"b", b"1", b"2"]
    assert box.take("other") == [b"a", b"b", b"0", b"1", b"2"]


def _kept(most: int, lane: Lane, unsynced: int) -> int:
    return min(most, unsynced)


def test_a_crash_between_message_and_place_keeps_both_or_none() -> None:
    """Both are one write."""
    box = filled()
    put_front(box, b"a")
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    journal = box.journal
    for kept in range(3):
        after = Box(journal.crash(partial(_kept, kept)))
        bodies = after.take("other")
        assert bodies in ([b"a", b"0", b"1", b"2"], [b"0", b"1", b"2"], [b"0", b"1", b"2", b"a"])


def test_what_is_due_later_has_its_turn_then() -> None:
    box = filled()
    put_front(box, b"a", due_ms=box.now_ms + 1_000)
    box.settle()
    assert box.take() == [b"1", b"2"]
    box.settle(1_000)
    assert box.take() == [b"a"]


def test_one_that_was_stored_before_stays_where_it_is() -> None:
    box = filled(dedupe_ms=60_000)
    put_front(box, b"a", id=b"same")
    box.settle()
    put_front(box, b"b")
    probe = put_front(box, b"a", id=b"same")
    box.settle()
    assert isinstance(probe.answers[0], Duplicate)
    assert box.take() == [b"b", b"a", b"1", b"2"]


def test_dropping_what_waits_keeps_what_is_leased() -> None:
    box = filled()
    put_front(box, b"a")
    box.put(b"later", due_ms=box.now_ms + 1_000)
    box.settle()
    assert box.take(count=1) == [b"a"]
    probe = Probe()
    box.broker.drop_waiting(probe, box.group())
    box.settle()
    assert probe.answers == [Changed(3)]
    box.settle(2_000)
    assert box.take() == []
    box.nack(0)
    box.settle()
    box = again(box)
    assert box.take() == [b"0"]
    assert len(box.take("other")) == 5, "another group has its own"
