"""Purging a topic while it is written to, or while it is removed."""

from __future__ import annotations

import pytest

from tests.core.support import Box, CrashJournal, Probe, cool, refusal
from tests.records import records_of
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.topics.outcomes import Peeked
from zbus.testing.engines import stored_lanes

LEVELS = pytest.mark.parametrize("durability", ["memory", "os", "disk"])


def purge(box: Box) -> Probe:
    probe = Probe()
    box.broker.purge_topic(probe, box.topic())
    return probe


def box_with(durability: str, partitions: int = 1) -> tuple[Box, CrashJournal]:
    journal = CrashJournal()
    box = Box(journal)
    box.declare(TopicOptions("T", durability=durability, partitions=partitions), "g")
    for index in range(partitions):
        box.put(b"0", index=index)
        box.settle()
        box.put(b"1", index=index)
        box.settle()
    return box, journal


def browse(box: Box, index: int = 0) -> list[bytes]:
    probe = Probe()
    partition = box.partition(index=index)
    box.broker.browse(probe, partition, partition.first, 1000)
    (answer,) = probe.answers
    assert isinstance(answer, Peeked)
    return [record.message.body for record in records_of(answer.pieces)]


@LEVELS
@pytest.mark.parametrize("partitions", [1, 3])
def test_everything_is_gone(durability: str, partitions: int) -> None:
    box, journal = box_with(durability, partitions)
    purged = purge(box)
    box.settle()
    assert purged.fine
    assert box.take() == []
    assert [browse(box, index) for index in range(partitions)] == [[]] * partitions
    put = box.put(b"2")
    box.settle()
    assert put.offset == 2, "offsets go on"
    if durability != "memory":
        after = Box(journal.crash(lambda lane, unsynced: unsynced))
        assert after.take() == [b"2"]
    assert box.take() == [b"2"]


@LEVELS
@pytest.mark.parametrize("partitions", [1, 3])
def test_what_is_put_after_it_in_the_same_turn_stays(durability: str, partitions: int) -> None:
    box, _ = box_with(durability, partitions)
    box.put(b"purged, too", index=partitions - 1)
    purged = purge(box)
    kept = [box.put(b"kept %d" % index, index=index) for index in range(partitions)]
    box.settle()
    assert purged.fine
    assert all(put.fine for put in kept)
    cool(box)  # so that it has to be read back
    assert sorted(box.take()) == [b"kept %d" % index for index in range(partitions)]


def test_what_is_put_while_it_waits_for_the_sync_stays() -> None:
    box, journal = box_with("disk")
    purged = purge(box)
    box.turn()
    puts = [box.put(b"a"), box.put(b"b")]
    box.turn()
    puts.append(box.put(b"c"))
    box.turn()
    assert purged.open
    journal.release(1)
    assert purged.fine
    box.settle()
    assert all(put.fine for put in puts)
    cool(box)
    assert box.take() == [b"a", b"b", b"c"]


def test_what_is_put_after_a_refusal_stays() -> None:
    box, journal = box_with("disk")
    journal.full = True
    refused = box.put(b"refused")
    purge(box)
    box.turn()
    assert refusal(refused).refusal is Refusal.FULL
    journal.full = False
    put = box.put(b"kept")
    box.turn()
    box.settle()
    assert put.fine
    assert box.take() == [b"kept"]


def test_the_topic_is_removed_while_the_purge_waits_for_the_sync() -> None:
    box, _ = box_with("disk")
    purged = purge(box)
    box.turn()
    box.broker.remove_topic(Probe(), box.topic())
    box.settle()
    assert not purged.open
    box.declare("T", "g")
    box.settle()
    box.put(b"new")
    box.settle()
    assert box.take() == [b"new"]


@LEVELS
def test_the_topic_is_purged_and_removed_in_one_turn(durability: str) -> None:
    box, journal = box_with(durability)
    purged, removed = purge(box), Probe()
    box.broker.remove_topic(removed, box.topic())
    box.settle()
    assert removed.fine
    assert refusal(purged).refusal is Refusal.TOPIC_UNKNOWN
    assert stored_lanes(journal) == []


def test_memory_is_given_back_when_all_groups_have_read() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", durability="memory"), "g", GroupOptions(lease=True))
    box.broker._memory.recent_max = 0
    body = bytes(1_000)
    for _ in range(30):
        box.put(*[body] * 100)
        box.settle()
        assert len(box.take()) == 100
        for offset in list(box.group().backlogs[0].leased):
            box.ack(offset)
    box.settle()
    partition = box.partition()
    assert partition.first > 1_000
    assert len(browse(box)) <= 1_000
    box.put(b"last")
    assert box.take() == [b"last"]
