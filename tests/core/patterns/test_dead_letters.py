"""Messages that are given up are stored in the dead-letter topic, each of them once."""

from __future__ import annotations

import attrs
import pytest

from tests.core.patterns.test_completions import crashes
from tests.core.support import Box, CrashJournal, Probe, again, cool, ranges
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.model.errors import fenced
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.patterns.dead_letters import AGAIN_MS, origin_of, without_lines
from zbus.storage.port import Verdict

LEASE_MS = 10_000
DYING = GroupOptions(lease=True, window=100, lease_ms=LEASE_MS, attempts_max=2, dead_letter="Dead")


def prepared(durability: str = "disk", count: int = 1) -> Box:
    """So many messages of In were handed out to g for the first time."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("Dead", durability=durability), "r", GroupOptions())
    box.declare(TopicOptions("In", durability=durability), "g", DYING)
    messages = [Message(b"id%d" % n, b"a.b", b"k", b"x-y: z\r\n", b"%d" % n) for n in range(count)]
    for message in messages:
        row = make_row(message.id, message.headers, message.body, message.tag, message.key)
        box.broker.put(box.partition("In"), Probe(), row)
    box.settle()
    assert len(box.take(topic="In")) == count
    return box


def expire(box: Box) -> None:
    box.settle(LEASE_MS)
    box.settle()


def life(box: Box, offset: int = 0) -> MessageState:
    return box.group("g", "In").backlogs[0].life(offset)


def dead(box: Box) -> list[bytes]:
    return box.take("r", topic="Dead")


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_the_last_attempt_ends_by_time(durability: str) -> None:
    box = prepared(durability)
    expire(box)
    assert box.take(topic="In") == [b"0"]
    expire(box)
    assert life(box) is MessageState.DONE
    assert box.group("g", "In").backlogs[0].dead == 1
    pull = box.pull("r", topic="Dead")
    box.settle()
    (record,) = pull.records
    message = record.message
    assert (message.id, message.tag, message.key, message.body) == (b"id0", b"a.b", b"k", b"0")
    assert message.headers == (
        b"x-y: z\r\ndead_topic: In\r\ndead_group: g\r\ndead_partition: 0\r\ndead_offset: 0\r\n"
        b"dead_attempts: 2\r\ndead_reason: expired\r\n"
    )
    assert origin_of(message.headers) == "In"
    assert without_lines(message.headers) == b"x-y: z\r\n"
    expire(box)
    assert dead(box) == []


def test_given_back_for_the_last_time() -> None:
    box = prepared()
    for _ in range(2):
        probe = Probe()
        box.broker.nack(probe, box.group("g", "In"), box.partition("In"), ranges([0]))
        box.settle()
        assert probe.fine
        box.take(topic="In")
    assert dead(box) == [b"0"]


def test_many_at_once_in_order() -> None:
    box = prepared(count=50)
    expire(box)
    assert len(box.take(topic="In")) == 50
    expire(box)
    assert dead(box) == [b"%d" % n for n in range(50)]


def test_it_is_read_from_storage() -> None:
    box = prepared()
    expire(box)
    box.take(topic="In")
    cool(box)
    expire(box)
    assert dead(box) == [b"0"]


def test_it_dies_twice_and_is_stored_once() -> None:
    """It could not be stored, and its partition was read again meanwhile."""
    box = prepared()
    expire(box)
    assert box.take(topic="In") == [b"0"]
    assert isinstance(box.journal, CrashJournal)
    box.journal.full = True
    box.settle(LEASE_MS - AGAIN_MS // 2)
    box.broker.nack(Probe(), box.group("g", "In"), box.partition("In"), ranges([0]))
    box.settle()
    box.broker._tick.hooks.fence(box.partition("In"), fenced("In", 0, "it is a test"))
    for _ in range(6):
        box.settle(AGAIN_MS // 2)
    box.journal.full = False
    box.settle(AGAIN_MS)
    box.settle(AGAIN_MS)
    assert (dead(box), life(box)) == ([b"0"], MessageState.DONE)
    assert box.group("g", "In").backlogs[0].dead == 1


@pytest.mark.parametrize("obstacle", ["no topic", "a full disk"])
def test_it_waits_until_it_can_be_stored(obstacle: str) -> None:
    box = prepared()
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    expire(box)
    assert box.take(topic="In") == [b"0"]
    if obstacle == "no topic":
        box.broker.remove_topic(Probe(), box.topic("Dead"))
    else:
        journal.full = True
    for _ in range(3):
        expire(box)
        assert box.take(topic="In") == []
        assert life(box) is MessageState.LEASED
    if obstacle == "no topic":
        box.declare(TopicOptions("Dead", durability="disk"), "r", GroupOptions())
    journal.full = False
    box.settle(AGAIN_MS)
    assert dead(box) == [b"0"]
    assert life(box) is MessageState.DONE


def test_an_acknowledgement_in_the_last_moment() -> None:
    box = prepared()
    box.broker.remove_topic(Probe(), box.topic("Dead"))
    expire(box)
    box.take(topic="In")
    expire(box)
    box.ack(0, topic="In")
    box.declare(TopicOptions("Dead", durability="disk"), "r", GroupOptions())
    expire(box)
    assert dead(box) == []
    assert life(box) is MessageState.DONE


@pytest.mark.parametrize("synced", range(6))
def test_a_crash_leaves_it_in_one_place(synced: int) -> None:
    """Whatever was synced, and whatever was not, it is dead once in the end."""
    box = prepared()
    assert isinstance(box.journal, CrashJournal)
    expire(box)
    assert box.take(topic="In") == [b"0"]
    box.settle(10)
    box.turn(LEASE_MS)
    for _ in range(synced):
        box.turn()
        box.journal.release(1)
    box.turn(10)
    for after in crashes(box):
        for _ in range(3):
            after.settle()
            after.take(topic="In")
            after.settle(LEASE_MS)
        assert dead(after) == [b"0"]
        assert life(after) is MessageState.DONE
        assert dead(again(after)) == []


@pytest.mark.parametrize("fate", [Verdict.LOST, Verdict.CONFLICT])
def test_its_partition_is_read_again_before_it_is_stored(fate: Verdict) -> None:
    """It stays leased for nobody until it is decided where it is."""
    box = LateBox()
    box.declare(TopicOptions("Dead", durability="disk"), "r", GroupOptions())
    box.settle()
    box.declare(TopicOptions("T", durability="disk"), "g", attrs.evolve(DYING, attempts_max=1))
    box.put(b"0")
    box.settle()
    assert box.take() == [b"0"]
    box.settle(10)
    box.turn(LEASE_MS)
    box.turn()
    box.fail(fate=fate)
    for _ in range(10):
        while ("T", 0) in box.late.waiting:
            box.late.step(("T", 0))
        box.run_posted()
        box.turn(500)
    assert box.partition().fenced is None
    assert box.partition("Dead").visible == 0
    for _ in range(3):
        box.settle(LEASE_MS)
    assert dead(box) == [b"0"]
    assert box.take() == []


def test_without_a_dead_letter_topic_it_is_dropped() -> None:
    box = prepared()
    options = attrs.evolve(DYING, dead_letter="")
    box.declare(TopicOptions("In", durability="disk"), "g", options)
    expire(box)
    box.take(topic="In")
    expire(box)
    assert life(box) is MessageState.DONE
    assert box.group("g", "In").backlogs[0].dead == 1
    assert dead(box) == []
