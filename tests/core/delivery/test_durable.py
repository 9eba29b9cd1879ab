"""Deliveries of groups with a limit of attempts: nobody sees one that a crash may forget."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core.commit.test_state_full import NoRoom
from tests.core.support import Box, CrashJournal, Probe, PullProbe, again, refusal
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Refusal
from zbus.core.model.message import Message
from zbus.core.model.pull_options import PullOptions
from zbus.core.model.ticket import Silent
from zbus.core.topics.outcomes import Delivered
from zbus.core.verbs.puts import FRONT

LEASES = GroupOptions(lease=True, lease_ms=1_000, attempts_max=2)


def limited(journal: CrashJournal, durability: Any, **options: Any) -> Box:
    """A group g with a limit of attempts, and two messages."""
    box = Box(journal)
    topic = TopicOptions("T", durability=durability)
    box.declare(topic, "g", attrs.evolve(LEASES, **options))
    box.put(b"0", b"1")
    box.settle(1_000)
    return box


def test_an_attempt_is_written_when_it_is_told() -> None:
    box = limited(CrashJournal(), "os")
    assert box.pull().open
    pull = box.pull()
    box.broker.finish()
    assert pull.bodies == [b"1"]
    assert again(box).group().backlogs[0].attempts == {0: 1, 1: 1}


def test_on_disk_nobody_sees_a_message_before_the_sync() -> None:
    journal = CrashJournal()
    box = limited(journal, "disk")
    pull = box.pull()
    for _ in range(3):
        box.turn(10)
    assert pull.open
    assert not pull.answers
    box.settle()
    assert pull.bodies == [b"0"]
    lease_ms = box.group().backlogs[0].leased.due_of(0) - box.now_ms
    assert lease_ms == 1_000, "it begins when it is told"


@pytest.mark.parametrize(("durability", "options"), [("memory", {}), ("disk", {"attempts_max": 0})])
def test_others_do_not_wait(durability: str, options: dict[str, Any]) -> None:
    box = limited(CrashJournal(), durability, **options)
    pull = box.pull()
    box.turn()
    assert pull.bodies == [b"0"]


def test_what_cannot_be_written_was_no_attempt() -> None:
    journal = NoRoom()
    box = limited(journal, "disk")
    journal.shut = True
    for _ in range(3):
        pull = box.pull()
        box.settle(2_000)
        assert refusal(pull).refusal is Refusal.FULL
        assert not box.group().backlogs[0].attempts
    journal.shut = False
    box.settle(2_000)
    pull = box.pull()
    box.settle()
    assert [(record.message.body, record.attempts) for record in pull.records] == [(b"0", 1)]


def test_who_has_left_before_is_told_nothing() -> None:
    journal = CrashJournal()
    box = limited(journal, "disk", on_loss="front")
    pull = box.pull()
    box.turn()
    pull.session.closed = True
    box.broker.leave(pull.session)
    box.settle()
    assert not pull.answers
    assert not pull.open
    later = box.pull()
    box.settle()
    assert [(record.message.body, record.attempts) for record in later.records] == [(b"0", 1)]


def test_a_topic_that_is_removed_before_it_was_told() -> None:
    box = limited(CrashJournal(), "disk")
    pull = box.pull()
    box.turn()
    topic = box.broker.topic("T")
    assert topic is not None
    box.broker.remove_topic(Silent(), topic)
    box.settle()
    assert refusal(pull).refusal is Refusal.TOPIC_UNKNOWN
    box.broker.check()


def test_a_stream_is_told_each_part_in_order() -> None:
    box = limited(CrashJournal(), "disk")
    session = box.session()
    pull = PullProbe(session, PullOptions(credit=3))
    box.broker.pull(box.group(), pull, None)
    box.turn()
    assert not pull.answers
    box.settle()
    assert pull.bodies == [b"0", b"1"]
    box.put(b"2")
    box.settle()
    assert pull.bodies == [b"0", b"1", b"2"]
    assert not pull.open


def test_a_deadline_does_not_end_what_was_handed_out() -> None:
    box = limited(CrashJournal(), "disk")
    pull = PullProbe(box.session())
    box.broker.pull(box.group(), pull, box.now_ms + 5)
    for _ in range(3):
        box.turn(10)
    assert pull.open
    box.settle()
    assert pull.bodies == [b"0"]


def test_a_group_may_want_it_without_a_limit() -> None:
    box = limited(CrashJournal(), "disk", attempts_max=0, attempts_kept=True)
    pull = box.pull()
    box.turn()
    assert not pull.answers
    box.settle()
    assert pull.bodies == [b"0"]


def test_what_expires_meanwhile_is_not_told() -> None:
    box = limited(CrashJournal(), "disk")
    chunk = Chunk()
    chunk.add(b"", b"", b"gone", expires_ms=box.now_ms + 50)
    box.broker.drop_waiting(Silent(), box.group())
    box.broker.put_all(box.topic().partitions[0], Silent(), chunk)
    box.settle()
    pull = PullProbe(box.session())
    box.broker.pull(box.group(), pull, None)
    box.turn()
    box.turn(60)
    box.settle()
    assert not pull.answers
    assert pull.open, "it waits on"
    box.put(b"next")
    box.settle()
    assert pull.bodies == [b"next"]


@pytest.mark.parametrize("which", [0, 1])
def test_a_stream_of_which_one_part_expires_meanwhile_waits_on(which: int) -> None:
    box = limited(CrashJournal(), "disk")
    box.take()
    box.ack(0)
    box.ack(1)
    box.settle(1_000)
    expires_ms = [0, 0]
    expires_ms[which] = box.now_ms + 1_050
    for body, until_ms in zip((b"2", b"3"), expires_ms, strict=True):
        chunk = Chunk()
        chunk.add(b"", b"", body, expires_ms=until_ms)
        box.broker.put_all(box.partition(), Silent(), chunk)
    box.settle(1_000)
    pull = PullProbe(box.session(), PullOptions(credit=2))
    box.broker.pull(box.group(), pull, None)
    box.turn()
    box.turn(60)
    box.settle()
    assert pull.bodies == [[b"2", b"3"][1 - which]]
    assert pull.open
    box.put(b"next")
    box.settle()
    assert pull.bodies[1:] == [b"next"]
    assert not pull.open


def test_a_lease_is_not_over_before_it_was_told() -> None:
    journal = CrashJournal()
    box = limited(journal, "disk", attempts_max=1)
    pull = box.pull()
    for _ in range(3):
        box.turn(1_000)
    assert not pull.answers
    assert box.group().backlogs[0].attempts == {0: 1}, "nobody else has it"
    box.settle()
    assert [(record.message.body, record.attempts) for record in pull.records] == [(b"0", 1)]
    lease_ms = box.group().backlogs[0].leased.due_of(0) - box.now_ms
    assert lease_ms == 1_000, "it begins when it is told"


@pytest.mark.parametrize("on_loss", ["keep", "front"])
@pytest.mark.parametrize("late", [False, True])
def test_what_nobody_has_seen_is_where_it_was(on_loss: str, late: bool) -> None:
    """Whoever took one of them before the other, and whatever was put in front of them."""
    journal = NoRoom()
    box = limited(journal, "disk", on_loss=on_loss)
    chunk = Chunk.of([Message(b"", body=b"front")])
    box.broker.put_all(box.partition(), Probe(), chunk, FRONT)
    box.put(b"delayed", due_ms=box.now_ms + 10)
    box.settle(1_000)
    journal.shut = not late
    pulls = [box.pull(wait=True) for _ in range(4)]
    box.turn()
    if late:  # their leases are over before they are written
        for pull in pulls:
            box.broker.leave(pull.session)
        box.turn(2_000)
    box.settle()
    journal.shut = False
    box.settle(2_000)
    assert not any(isinstance(answer, Delivered) for pull in pulls for answer in pull.answers)
    assert not box.group().backlogs[0].attempts
    assert box.take() == [b"front", b"0", b"1", b"delayed"]
