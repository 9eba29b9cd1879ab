"""A journal without room refuses what is put, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.core.support import Box, CrashJournal, Probe, again, refusal, same_state
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.storage.format.batch import Batch
from zbus.storage.port import Lane, Verdict

LEASES = GroupOptions(lease=True, lease_ms=1_000)


def full_box(durability: str = "disk") -> tuple[Box, CrashJournal]:
    """Three messages in a topic with the group g, the first of them leased; then no room."""
    journal = CrashJournal()
    box = Box(journal)
    box.declare(TopicOptions("T", durability=durability), "g", LEASES)
    box.put(b"0", b"1", b"2")
    box.settle()
    assert box.take(count=1) == [b"0"]
    box.settle()
    journal.full = True
    return box, journal


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_puts_are_refused_and_the_rest_goes_on(durability: str) -> None:
    box, journal = full_box(durability)
    refused = [box.put(b"a"), box.put(b"b", b"c")]
    others = [box.ack(0), box.declare(box.topic().options, "late", LEASES)]
    others.append(box.declare("Another", "g"))
    box.settle()
    assert [refusal(put).refusal for put in refused] == [Refusal.FULL] * 2
    assert all(other.fine for other in others)
    assert box.partition().end == box.partition().visible == 3
    assert box.take() == [b"1", b"2"], "and nothing of what was refused"
    same_state(box, again(box))
    journal.full = False
    later = box.put(b"d")
    box.settle()
    assert later.fine
    assert later.offset == 3
    assert box.take() == [b"d"]
    box.settle()
    same_state(box, again(box))
    recovered = again(box)
    recovered.settle(2_000)
    assert recovered.take() == [b"1", b"2", b"d"]


def test_a_waiting_pull_sees_nothing_of_what_was_refused() -> None:
    box, journal = full_box()
    box.take()
    waiting = box.pull(wait=True)
    box.put(b"a")
    box.settle()
    assert waiting.open
    journal.full = False
    box.put(b"b")
    box.settle()
    assert waiting.bodies == [b"b"]
    assert waiting.records[0].offset == 3


def test_a_new_topic_without_room_for_its_first_message() -> None:
    journal = CrashJournal()
    journal.full = True
    box = Box(journal)
    declared = box.declare("T", "g")
    put = box.put(b"a")
    box.settle()
    assert declared.fine
    assert refusal(put).refusal is Refusal.FULL
    same_state(box, again(box))
    journal.full = False
    put = box.put(b"b")
    box.settle()
    assert put.offset == 0
    assert again(box).take() == [b"b"]
    assert box.take() == [b"b"]


def test_what_is_put_back_at_the_end_behind_refused_messages_comes_again() -> None:
    box, _ = full_box()
    assert box.take() == [b"1", b"2"]
    box.put(b"a", b"b", b"c")
    assert box.nack(0, front=False).open
    box.settle()
    box.broker.check()
    assert again(box).take() == [b"0"]
    assert box.take() == [b"0"], "its place was behind messages that never were"


def test_a_purge_in_the_tick_of_a_refusal() -> None:
    box, journal = full_box()
    box.put(b"a")
    purged = Probe()
    box.broker.purge_group(purged, box.group())
    box.put(b"b")
    box.settle()
    assert purged.fine
    assert box.group().position() == [3]
    same_state(box, again(box))
    journal.full = False
    box.put(b"c")
    box.settle()
    assert box.take() == [b"c"]


def test_one_partition_is_full_and_its_topic_goes_on() -> None:
    """What is refused is refused lane by lane; a caller hears of its own only."""

    class OneFull(CrashJournal):
        def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
            self.full = lane[1] == 1
            super().append(lane, after, batches)

    box = Box(OneFull())
    box.declare(TopicOptions("T", partitions=3, durability="os"), "g")
    puts = [box.put(b"%d" % index, index=index) for index in range(3)]
    box.settle()
    assert [put.fine for put in puts] == [True, False, True]
    assert sorted(box.take()) == [b"0", b"2"]


def test_acknowledgements_need_no_room_even_when_the_segment_ends() -> None:
    journal = CrashJournal()
    box = Box(journal, segment_bytes_max=1)
    box.declare("T", "g", LEASES)
    for number in range(50):
        box.put(b"%d" % number)
    box.settle()
    assert len(box.take()) == 50
    box.settle()
    journal.full = True
    for offset in range(0, 50, 2):
        ack = box.ack(offset)
        box.settle()
        assert ack.fine
    after = again(box)
    same_state(box, after)
    after.settle(2_000)
    assert after.take() == [b"%d" % number for number in range(1, 50, 2)]


def test_a_purge_of_what_was_refused_does_not_reach_what_comes_later() -> None:
    box, journal = full_box()
    refused = box.put(b"a", b"b")
    purged = Probe()
    box.broker.purge_topic(purged, box.topic())
    box.settle()
    assert purged.fine
    assert refusal(refused).refusal is Refusal.FULL
    journal.full = False
    put = box.put(b"c")
    box.settle()
    assert put.offset == 3
    after = again(box)
    assert after.partition().first == 3
    assert after.take() == [b"c"]
    assert box.take() == [b"c"]


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_lane_that_another_writer_was_at_is_noticed_before_anything_is_told(
    durability: str,
) -> None:
    journal = CrashJournal()
    box = Box(journal)
    box.declare(TopicOptions("T", durability=durability), "g")
    box.settle()
    journal.verdicts["T", 0] = Verdict.CONFLICT
    put = box.put(b"x")
    box.settle()
    assert refusal(put).refusal is Refusal.FENCED
    assert "partition 0 of T is recovering (another process wrote to it)" in refusal(put).text
    put = box.put(b"y")
    box.settle()
    assert (put.fine, put.offset) == (True, 0)
    assert box.take() == [b"y"]
