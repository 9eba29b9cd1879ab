"""A journal without room for anything, acknowledgements included: they are refused, and written as
soon as there is room, whether or not they are sent again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core.support import EPOCH_MS, Box, CrashJournal, Probe, again, refusal, same_state
from tests.storage.support import Loop, SmallDisk
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.topics.delta import snapshot
from zbus.storage.format.batch import Batch
from zbus.storage.port import JournalFull, Lane

LEASES = GroupOptions(lease=True, lease_ms=60_000)


class NoRoom(CrashJournal):
    """Takes nothing at all while `shut`."""

    shut = False
    tried = 0

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self.shut:
            self.tried += 1
            raise JournalFull("no space left")
        super().append(lane, after, batches)


def shut_box() -> tuple[Box, NoRoom]:
    """Three messages in T, two of them leased by g; then no room."""
    journal = NoRoom()
    box = Box(journal)
    box.declare(TopicOptions("T", durability="disk"), "g", LEASES)
    box.put(b"0", b"1", b"2")
    box.settle()
    assert box.take(count=2) == [b"0", b"1"]
    box.settle(10)
    journal.shut = True
    return box, journal


def settled(box: Box, probe: Probe) -> Probe:
    box.settle()
    return probe


def is_full(probe: Probe) -> bool:
    return refusal(probe).refusal is Refusal.FULL


def test_an_ack_without_room_is_refused_and_may_be_sent_again() -> None:
    box, journal = shut_box()
    refused = [box.ack(0), box.put(b"x"), box.ack(0)]
    box.settle()
    assert all(map(is_full, refused))
    assert box.partition().end == 3
    journal.shut = False
    later = box.ack(0)
    box.settle()
    assert later.fine
    same_state(box, again(box))
    recovered = again(box)
    recovered.settle(61_000)
    assert recovered.take() == [b"1", b"2"]


def test_what_was_refused_is_written_when_there_is_room() -> None:
    box, journal = shut_box()
    assert is_full(settled(box, box.ack(0)))
    assert box.take() == [b"2"], "consumers are served on"
    box.settle()
    tried = journal.tried
    for _ in range(100):
        box.settle(100)
    assert tried + 8 <= journal.tried <= tried + 22, "about once a second"
    journal.shut = False
    box.settle(2_000)
    same_state(box, again(box))
    assert box.broker.next_due() != box.now_ms, "and then there is peace"


def test_traffic_elsewhere_does_not_put_off_the_next_try() -> None:
    """Whatever is written all the time: what was refused is tried about once a second."""
    box, journal = shut_box()
    assert is_full(settled(box, box.ack(0)))
    journal.shut = False
    box.declare("Busy", "g")
    for _ in range(8):
        assert settled(box, box.put(b"x", topic="Busy")).fine
        box.settle(250)
    assert not box.broker._tick.behind
    same_state(box, again(box))


def test_the_next_message_takes_along_what_was_refused() -> None:
    box, journal = shut_box()
    refused = box.ack(1)
    box.settle()
    assert is_full(refused)
    journal.shut = False
    put = box.put(b"3")
    box.settle()
    assert put.fine
    assert put.offset == 3
    same_state(box, again(box))


def test_room_for_changes_only_lets_them_in_before_messages() -> None:
    box, journal = shut_box()
    assert is_full(settled(box, box.ack(1)))
    journal.shut, journal.full = False, True
    ack, put = box.ack(0), box.put(b"x")
    box.settle()
    assert ack.fine
    assert is_full(put)
    same_state(box, again(box))


def test_a_purge_without_room_takes_nothing_away() -> None:
    box, journal = shut_box()
    purge = Probe()
    box.broker.purge_topic(purge, box.topic())
    box.settle()
    assert is_full(purge)
    assert box.partition().first == 0
    journal.shut = False
    purge = Probe()
    box.broker.purge_topic(purge, box.topic())
    box.settle()
    assert purge.fine
    assert box.partition().first == 3
    same_state(box, again(box))


def test_a_purge_without_room_is_done_whole_when_there_is_some() -> None:
    """It is not asked for again, and the topic keeps all for ever otherwise."""
    box, journal = shut_box()
    purge = Probe()
    box.broker.purge_topic(purge, box.topic())
    box.settle()
    assert is_full(purge)
    for _ in range(5):
        box.settle(1_000)
    assert box.partition().first == 0
    journal.shut = False
    for _ in range(3):
        box.settle(1_000)
    partition = box.partition()
    assert (partition.first, partition.end) == (3, 3)
    assert len(partition.stored.segments) == 1
    assert settled(box, box.put(b"new")).fine
    assert box.take() == [b"new"]
    same_state(box, again(box))
    assert not len(box.broker._retention._timer), "and then there is peace"


def test_a_topic_that_goes_is_not_tried_again() -> None:
    box, journal = shut_box()
    assert is_full(settled(box, box.ack(1)))
    removed = Probe()
    box.broker.remove_topic(removed, box.topic())
    box.settle()
    assert removed.fine
    tried = journal.tried
    box.settle(10_000)
    assert journal.tried == tried
    assert box.broker.next_due() is None


@pytest.mark.parametrize("shut", [0, 1])
def test_a_change_of_all_partitions_needs_room_where_it_is_decided(shut: int) -> None:
    """A removal that partition 0 did not write must not be confirmed: a crash would bring the group
    back. What a new group begins with must find room in all."""

    class Half(NoRoom):
        def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
            if self.shut and lane[1] == shut:
                raise JournalFull("no space left")
            CrashJournal.append(self, lane, after, batches)

    journal = Half()
    box = Box(journal)
    box.declare(TopicOptions("T", partitions=3, durability="disk"), "g", LEASES)
    box.settle()
    journal.shut = True
    removed = Probe()
    box.broker.remove_group(removed, box.group())
    box.settle()
    assert removed.fine if shut else is_full(removed)
    declared = box.declare(box.topic().options, "late", LEASES)
    box.settle()
    assert is_full(declared)
    journal.shut = False
    box.settle(2_000)
    assert list(again(box).topic().groups) == ["late"]


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_topic_comes_with_all_its_partitions_or_not_at_all(durability: str) -> None:
    class Half(NoRoom):
        def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
            if self.shut and lane[1] == 1:
                raise JournalFull("no space left")
            CrashJournal.append(self, lane, after, batches)

    journal = Half()
    box = Box(journal)
    options = TopicOptions("T", partitions=3, durability=durability)
    journal.shut = True
    declared = box.declare(options, "g", LEASES)
    put = box.put(b"a", index=0)
    box.settle()
    assert is_full(declared)
    assert is_full(put)
    assert box.broker.topic("T") is None
    journal.shut = False
    assert settled(box, box.declare(options, "g", LEASES)).fine
    assert settled(box, box.put(b"a", index=0)).offset == 0
    same_state(box, again(box))


def test_a_topic_is_not_taken_away_for_want_of_one_of_its_partitions() -> None:
    """A crash within a declare has left one lane of two. It is a topic like any other since."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=2, durability="disk"), "g", LEASES)
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    half = box.journal.crash(lambda lane, unsynced: unsynced if lane[1] == 0 else 0)
    journal = NoRoom()
    for batch in half.written["T", 0]:
        assert isinstance(batch, Batch)
        journal.append(("T", 0), batch.header.previous_crc, [batch])
    box = Box(journal)
    journal.shut = True
    assert is_full(settled(box, box.put(b"a", index=1)))
    assert box.broker.topic("T") is not None
    journal.shut = False
    box.settle(2_000)
    assert settled(box, box.put(b"a", index=1)).fine
    same_state(box, again(box))


def test_changes_without_end_on_a_full_disk(tmp_path: Path) -> None:
    """They take room that has an end, and are there after a restart."""
    disk, loop = SmallDisk(120_000), Loop()
    journal = loop.local(tmp_path, disk, reserve_bytes=40_000)
    box = Box(journal, segment_bytes_max=13 << 10)
    box.declare(TopicOptions("T", durability="os"), "g", LEASES)
    while (put := box.put(b"x" * 2_000)).open:
        box.settle()
        if not put.fine:
            break
    assert is_full(put)
    end = box.partition().end
    assert end > 15
    box.take(count=1)
    written = disk.written
    for count in range(2_600):
        extended = box.extend(0, EPOCH_MS + 100_000 + count)
        box.settle()
        assert extended.fine, count
    assert disk.written - written > 130_000, "more than there is room for"
    assert is_full(settled(box, box.put(b"x" * 2_000)))
    ack = box.ack(0)
    box.settle()
    assert ack.fine
    known = snapshot(box.partition())
    journal.close()
    assert loop.failures == []
    found = Box(loop.local(tmp_path))
    assert found.partition().end == end
    assert snapshot(found.partition()) == known
    found.journal.close()
