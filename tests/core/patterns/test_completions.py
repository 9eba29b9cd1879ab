"""Putting messages that settle deliveries: both are there after a crash, or neither."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest

from tests.core.support import Box, CrashJournal, Probe, again, ranges, refusal
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Refusal
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.patterns.completions import AGAIN_MS, Source
from zbus.core.topics.outcomes import Stored
from zbus.core.verbs.seek import Start
from zbus.storage.port import Lane

LEASING = GroupOptions(lease=True, window=100, lease_ms=10_000)


def prepared(
    durability: str = "disk", count: int = 3, segment_bytes: int = 64 << 20, partitions: int = 1
) -> Box:
    """All messages of `In` are leased by g; nothing is in `Out`."""
    box = Box(CrashJournal(), segment_bytes_max=segment_bytes)
    box.declare(TopicOptions("In", durability=durability, partitions=partitions), "g", LEASING)
    box.declare(TopicOptions("Out", durability=durability), "r", LEASING)
    for index in range(partitions):
        box.put(*[b"%d" % number for number in range(count)], topic="In", index=index)
    box.settle()
    assert len(box.take(topic="In")) == count * partitions
    box.settle(10)
    return box


def source(box: Box, *offsets: int, index: int = 0, group: str = "g") -> Source:
    return Source(box.group(group, "In"), box.partition("In", index), ranges(offsets))


def transform(box: Box, *bodies: bytes, sources: Sequence[Source]) -> Probe:
    probe = Probe()
    chunk = Chunk.of([Message(body, body=body) for body in bodies])
    box.broker._completions.put(box.partition("Out"), probe, chunk, sources)
    return probe


def until(box: Box, due_ms: int) -> Source:
    """Offset 0 comes again then."""
    return source(box, 0)._replace(
        due_ms=due_ms, attempts=box.group("g", "In").backlogs[0].attempts[0]
    )


def give_back(box: Box) -> None:
    box.broker.nack(Probe(), box.group("g", "In"), box.partition("In"), ranges([0]))


def lives(box: Box, count: int = 3, index: int = 0) -> list[MessageState]:
    return [box.group("g", "In").backlogs[index].life(offset) for offset in range(count)]


def crashes(box: Box) -> Iterator[Box]:
    """All that a power cut may leave now."""
    assert isinstance(box.journal, CrashJournal)
    journal = box.journal
    counts = {lane: len(log) - journal.synced.get(lane, 0) for lane, log in journal.written.items()}
    for chosen in itertools.product(*[range(count + 1) for count in counts.values()]):
        kept = dict(zip(counts, chosen, strict=True))
        after = Box(journal.crash(partial(_kept, kept)), now_ms=box.now_ms)
        after.broker.begin(box.now_ms)  # what is due comes before the end of the first turn
        yield after


def _kept(kept: dict[Lane, int], lane: Lane, unsynced: int) -> int:
    return kept[lane]


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_the_result_is_stored_and_the_deliveries_are_settled(durability: str) -> None:
    box = prepared(durability)
    probe = transform(box, b"a", b"b", sources=[source(box, 0, 2)])
    box.settle()
    assert probe.fine
    assert probe.offset == 0
    assert box.take("r", topic="Out") == [b"a", b"b"]
    assert lives(box) == [MessageState.DONE, MessageState.LEASED, MessageState.DONE]
    box.settle(20_000)
    assert box.take(topic="In") == [b"1"]


def test_deliveries_of_several_groups_and_partitions() -> None:
    box = prepared(partitions=2)
    box.declare(TopicOptions("In", partitions=2, durability="disk"), "h", LEASING)
    box.settle()
    sources = [source(box, 0), source(box, 1, 2, index=1)]
    probe = transform(box, b"a", sources=sources)
    box.settle()
    assert probe.fine
    assert lives(box) == [MessageState.DONE, MessageState.LEASED, MessageState.LEASED]
    assert lives(box, index=1) == [MessageState.LEASED, MessageState.DONE, MessageState.DONE]


@pytest.mark.parametrize("segment_bytes", [200, 64 << 20])
@pytest.mark.parametrize("synced", range(6))
def test_a_crash_leaves_both_or_neither(synced: int, segment_bytes: int) -> None:
    """The power goes after so many syncs, and each log keeps any part of what was not synced."""
    box = prepared(segment_bytes=segment_bytes)
    assert isinstance(box.journal, CrashJournal)
    probe = transform(box, b"a", sources=[source(box, 0, 1)])
    for _ in range(synced):
        box.turn()
        box.journal.release(1)
    box.turn(10)
    seen = set()
    for after in crashes(box):
        after.settle()
        stored = after.topic("Out").depth()
        settled = [life is MessageState.DONE for life in lives(after)]  # leases may be lost
        assert settled == [stored, stored, False]
        assert stored or probe.open, "it was answered, and is not there"
        seen.add(stored)
        # What takes the place of what was lost settles nothing.
        after.put(b"another", topic="Out")
        after.settle()
        last = again(again(after))
        last.settle()
        assert [life is MessageState.DONE for life in lives(last)] == settled
    assert seen == ({0, 1} if probe.open else {1})


def shortened(durability: str = "disk") -> Box:
    """`Out` has this level. A power cut may take any of the messages of `In`."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("In", durability="os"), "g", LEASING)
    box.declare(TopicOptions("Out", durability=durability), "r", LEASING)
    box.settle()
    for number in range(3):
        box.put(b"%d" % number, topic="In")
        box.turn()
    assert len(box.take(topic="In")) == 3
    box.settle()
    return box


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("durability", ["os", "disk"])
def test_what_takes_the_place_of_a_lost_source_is_not_settled(durability: str, turns: int) -> None:
    """A power cut may take a message of level `os` and leave the result that settles it. Another
    message has its offset then, and the next start must not take it for the one that was lost."""
    box = shortened(durability)
    transform(box, b"a", sources=[source(box, 0, 1)])
    box.settle()
    ends = set()
    for after in crashes(box):
        assert isinstance(after.journal, CrashJournal)
        if after.broker.topic("In") is None or "g" not in after.topic("In").groups:
            continue
        end = after.partition("In").end
        ends.add(end)
        after.put(b"another", topic="In")
        for _ in range(turns):
            after.turn(1)
            after.journal.release(1)
        for last in crashes(after):
            last.settle()
            if last.partition("In").end > end:
                assert last.group("g", "In").backlogs[0].life(end) is not MessageState.DONE
    assert ends >= {0, 1, 2, 3}


def cut(box: Box, kept: Mapping[Lane, int]) -> Box:
    """The power goes: these logs keep so many batches at most, all others all they have."""
    assert isinstance(box.journal, CrashJournal)
    journal = box.journal
    found = journal.crash(
        lambda lane, more: min(more, max(0, kept.get(lane, more) - journal.synced.get(lane, 0)))
    )
    return Box(found, now_ms=box.now_ms)


def test_nor_what_takes_the_place_of_one_in_a_partition_that_was_lost() -> None:
    """A topic has grown, and the power cut takes that, too. Then it grows again."""
    grown = TopicOptions("In", durability="os", partitions=2)
    box = Box(CrashJournal())
    box.declare(TopicOptions("In", durability="os"), "g", LEASING)
    box.declare(TopicOptions("Out", durability="disk"), "r", LEASING)
    box.settle()
    assert isinstance(box.journal, CrashJournal)
    before = {lane: len(box.journal.written.get(lane, ())) for lane in (("In", 0), ("In", 1))}
    box.declare(grown, "g", LEASING)
    box.settle()
    box.put(b"0", topic="In", index=1)
    assert box.take(topic="In") == [b"0"]
    transform(box, b"a", sources=[source(box, 0, index=1)])
    box.settle()
    after = cut(box, before)
    assert len(after.topic("In").partitions) == 1
    after.declare(grown, "g", LEASING)
    after.turn(10)
    assert after.put(b"another", topic="In", index=1).open
    after.turn(10)
    assert isinstance(after.journal, CrashJournal)
    last = cut(after, {("Out", 0): after.journal.synced["Out", 0]})
    last.settle()
    assert last.partition("In", 1).end == 1
    assert last.group("g", "In").backlogs[1].life(0) is not MessageState.DONE


@pytest.mark.parametrize("delivered_before", [0, 2])
@pytest.mark.parametrize("synced", range(6))
def test_a_crash_leaves_a_result_and_a_delay_or_neither(synced: int, delivered_before: int) -> None:
    """A delivery that is given back until a time, as a schedule is."""
    box = prepared(count=1)
    assert isinstance(box.journal, CrashJournal)
    for _ in range(delivered_before):
        give_back(box)
        box.settle(10)
        assert box.take(topic="In") == [b"0"]
        box.settle(10)
    due_ms = box.now_ms + 60_000
    probe = transform(box, b"a", sources=[until(box, due_ms)])
    for _ in range(synced):
        box.turn()
        box.journal.release(1)
    box.turn(10)
    for after in crashes(box):
        after.settle()
        stored = after.topic("Out").depth()
        assert (lives(after, 1) == [MessageState.DELAYED]) == (stored == 1)
        assert stored or probe.open, "it was answered, and is not there"
        last = again(again(after))
        last.settle(30_000)
        assert last.take(topic="In") == ([] if stored else [b"0"])
        last.settle(60_000)
        assert last.take(topic="In") == [b"0"]


@pytest.mark.parametrize("synced", range(9))
@pytest.mark.parametrize("then", ["fired", "delivered", "deleted", "given back"])
def test_what_was_done_after_a_delay_is_not_undone_by_a_crash(then: str, synced: int) -> None:
    """It was completed; the note of that is not durable, and what comes after it is."""
    box = prepared(count=1)
    assert isinstance(box.journal, CrashJournal)
    due_ms = box.now_ms + 60_000
    transform(box, b"a", sources=[until(box, due_ms)])
    while lives(box, 1) != [MessageState.DELAYED]:
        box.turn()
        box.journal.release(1)
    group, partition, probe = box.group("g", "In"), box.partition("In"), Probe()
    if then == "deleted":
        box.broker.delete(probe, [group], partition, ranges([0]))
    else:
        box.broker.reschedule(probe, [group], partition, ranges([0]), 0)
        box.turn(1)
        assert then == "fired" or box.take(topic="In") == [b"0"]
    if then == "given back":
        give_back(box)
    for _ in range(synced):
        box.turn(1)
        box.journal.release(1)
    for after in crashes(box):
        after.settle(30_000)
        # What a power cut took may be before all of this, or, of a delivery, after its lease.
        ready = after.take(topic="In") == [b"0"]
        if probe.fine:
            assert ready == (then != "deleted")


def test_what_is_not_told_yet_is_settled_by_the_next_start() -> None:
    box = prepared("os")
    transform(box, b"a", sources=[source(box, 0)])
    box.broker._tick.commit()  # and no turn after it
    after = again(box)
    after.settle()
    assert lives(after) == [MessageState.DONE, MessageState.LEASED, MessageState.LEASED]
    known = after.partition("Out").completions
    assert known is not None
    assert not known.open
    after.settle(10)
    assert again(after).partition("Out").completions is None


BAD = {
    "never handed out": (lambda box: [source(box, 7)], Refusal.NOT_LEASED),
    "one of many is not leased": (lambda box: [source(box, 0, 1, 7)], Refusal.NOT_LEASED),
    "acknowledged on delivery": (lambda box: [source(box, 0, group="plain")], Refusal.ILLEGAL),
    "one source of two": (lambda box: [source(box, 0), source(box, 9)], Refusal.NOT_LEASED),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_settled_stores_nothing(bad: str) -> None:
    box = prepared()
    box.declare(TopicOptions("In", durability="disk"), "plain", GroupOptions(lease=False))
    box.settle()
    sources, why = BAD[bad]
    probe = transform(box, b"a", sources=sources(box))
    box.settle()
    assert refusal(probe).refusal is why
    assert box.topic("Out").depth() == 0
    assert lives(box) == [MessageState.LEASED] * 3
    assert not box.group("g", "In").backlogs[0].leased.settling


def test_settled_or_settling_already() -> None:
    box = prepared()
    first = transform(box, b"a", sources=[source(box, 0)])
    second = transform(box, b"b", sources=[source(box, 0)])
    assert refusal(second).refusal is Refusal.NOT_LEASED
    box.settle()
    assert first.fine
    third = transform(box, b"c", sources=[source(box, 0)])
    assert refusal(third).refusal is Refusal.NOT_LEASED
    assert box.topic("Out").depth() == 1


def test_a_full_disk_refuses_the_result_and_leaves_the_lease() -> None:
    box = prepared()
    assert isinstance(box.journal, CrashJournal)
    box.journal.full = True
    probe = transform(box, b"a", sources=[source(box, 0)])
    box.settle()
    assert refusal(probe).refusal is Refusal.FULL
    assert lives(box) == [MessageState.LEASED] * 3
    box.journal.full = False
    probe = transform(box, b"a", sources=[source(box, 0)])
    box.settle()
    assert probe.fine
    assert lives(box)[0] is MessageState.DONE
    assert lives(again(box))[0] is MessageState.DONE


def test_a_lease_does_not_end_while_its_result_is_written() -> None:
    box = prepared()
    assert isinstance(box.journal, CrashJournal)
    probe = transform(box, b"a", sources=[source(box, 0)])
    box.turn()
    for _ in range(30):
        box.turn(AGAIN_MS)
    assert lives(box) == [MessageState.LEASED, MessageState.READY, MessageState.READY]
    box.settle()
    assert isinstance(probe.answers[-1], Stored)
    assert lives(box)[0] is MessageState.DONE


def test_while_it_is_settling_it_is_neither_given_back_nor_extended() -> None:
    box = prepared()
    transform(box, b"a", sources=[source(box, 0)])
    where = box.group("g", "In"), box.partition("In"), ranges([0])
    given_back, extended = Probe(), Probe()
    box.broker.nack(given_back, *where)
    box.broker.extend(extended, *where, box.now_ms + 1)
    assert refusal(given_back).refusal is Refusal.NOT_LEASED
    assert refusal(extended).refusal is Refusal.NOT_LEASED
    box.settle()
    assert lives(box)[0] is MessageState.DONE


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_group_that_was_moved_meanwhile_reads_it_again(partitions: int) -> None:
    box = prepared(partitions=partitions)
    probe = transform(box, b"a", sources=[source(box, 0)])
    box.turn()
    moved = Probe()
    box.broker.seek(moved, box.group("g", "In"), Start(offset=0))
    box.settle()
    assert probe.fine
    assert moved.fine
    box.settle(10)
    assert lives(box) == [MessageState.READY] * 3
    after = again(box)
    assert lives(after) == [MessageState.READY] * 3
    assert after.partition("Out").completions is None


@pytest.mark.parametrize("gone", ["group", "topic", "replaced"])
def test_the_group_goes_meanwhile(gone: str) -> None:
    box = prepared()
    probe = transform(box, b"a", sources=[source(box, 0)])
    if gone == "topic":
        box.broker.remove_topic(Probe(), box.topic("In"))
    else:
        box.broker.remove_group(Probe(), box.group("g", "In"))
    if gone == "replaced":
        box.turn(1)
        box.declare(TopicOptions("In", durability="disk"), "g", LEASING)
    box.settle()
    assert probe.fine
    box.settle(10)
    if gone == "replaced":
        assert box.take(topic="In") == [b"0", b"1", b"2"]
    assert again(box).partition("Out").completions is None


def test_stored_before_it_settles_as_well() -> None:
    """A client that got no answer asks again with the same key."""
    box = prepared()
    for offset, settled in ((0, MessageState.DONE), (1, MessageState.DONE)):
        chunk = Chunk.of([Message(b"", body=b"a", once=b"key")])
        probe = Probe()
        box.broker._completions.put(box.partition("Out"), probe, chunk, [source(box, offset)])
        box.settle()
        assert not probe.open
        assert lives(box)[offset] is settled
    assert box.topic("Out").depth() == 1
