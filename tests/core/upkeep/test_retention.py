"""What of a log is forgotten, when, and who is told."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest

from tests.core.support import (
    Box,
    CrashJournal,
    Probe,
    PullProbe,
    Remembers,
    SlowJournal,
    again,
    cool,
    refusal,
    same_state,
)
from tests.records import records_of
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.persistence.retention import (
    BYTES_PER_LOOK_MAX,
    CHECK_MS,
    SEGMENTS_PER_LOOK_MAX,
    trim_before,
)
from zbus.core.topics.outcomes import Delivered, Peeked, Raw
from zbus.core.upkeep.retention import CHECKS_PER_TURN_MAX, WORKS_PER_TURN_MAX
from zbus.core.verbs.seek import Start
from zbus.storage.port import Lane

LEVELS = pytest.mark.parametrize("durability", ["memory", "os", "disk"])

SEGMENT_BYTES = 19_000
BODY = bytes(5_000)  # and it is the id, too: two messages fill a segment


def box_with(options: TopicOptions, *groups: str, leases: bool = False) -> Box:
    box = Box(CrashJournal(), segment_bytes_max=SEGMENT_BYTES)
    box.declare(options)
    for group in groups:
        box.declare(options, group, GroupOptions(lease=leases))
    box.settle()
    return box


def put(box: Box, count: int, ms: int = 0, index: int = 0) -> None:
    for _ in range(count):
        box.put(BODY, index=index)
        box.settle(ms)


def at_most(kept: int, lane: Lane, unsynced: int) -> int:
    return min(kept, unsynced)


def look(box: Box) -> None:
    box.settle(CHECK_MS)
    box.settle(CHECK_MS)


def first(box: Box, index: int = 0) -> int:
    return box.partition(index=index).first


def told(probe: Remembers) -> list[int]:
    return [answer.skipped for answer in probe.answers if isinstance(answer, Delivered)]


def offsets(probe: Remembers) -> list[int]:
    return [record.offset for record in probe.records]


def take(box: Box, group: str = "g", count: int = 1000) -> PullProbe:
    box.broker._tick.put_ms = 0  # as if nobody had put for a while: then answers are long
    probe = box.pull(group, count)
    box.settle()
    for _ in range(100):
        if not probe.open:
            return probe
        box.settle(1)
    raise AssertionError("the pull does not end")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 0),  # for ever
        ({"retention_count": 1}, 10),
        ({"retention_count": 2}, 8),
        ({"retention_count": 3}, 8),
        ({"retention_count": 11}, 0),
        ({"retention_bytes": 1}, 10),
        ({"retention_bytes": 30_000}, 8),
        ({"retention_bytes": 10**6}, 0),
        ({"retention_ms": 2_500}, 8),
        ({"retention_ms": 60_000}, 0),
        ({"retention_done": True}, 4),
        ({"retention_done": True, "retention_count": 3}, 8),
        ({"retention_ms": 60_000, "retention_bytes": 30_000}, 8),
    ],
)
def test_each_limit(limits: dict[str, Any], expected: int) -> None:
    """Eleven messages, two to a segment; `g` has read five."""
    box = box_with(TopicOptions("T"), "g")
    put(box, 9)
    take(box, count=5)
    box.settle(1_000)
    put(box, 2)
    assert [segment.base for segment in box.partition().stored.segments] == [0, 2, 4, 6, 8, 10]
    box.declare(attrs.evolve(box.topic().options, **limits))
    look(box)
    assert first(box) == expected
    probe = take(box)
    lost = max(0, expected - 5)
    assert (offsets(probe)[0], told(probe)[0]) == (5 + lost, lost)
    assert box.group().skipped_count() == lost


@pytest.mark.parametrize(
    "limits", [{"retention_count": 1}, {"retention_bytes": 1}, {"retention_ms": 1}]
)
def test_a_group_that_retains_holds_every_limit_back(limits: dict[str, Any]) -> None:
    """Until it is done with what would go, or wants it no longer; and over a restart."""
    options = TopicOptions("T", **limits)
    box = box_with(TopicOptions("T"), "g")
    put(box, 9)
    take(box, count=5)
    box.declare(options, "g", GroupOptions(retain=True))
    box.settle(1_000)
    put(box, 2)
    look(box)
    assert first(box) == 4, "its first segment that is not finished begins there"
    box = again(box)
    look(box)
    assert first(box) in (4, 5)
    assert box.group().skipped_count() == 0
    assert offsets(take(box, count=3)) == [5, 6, 7]
    put(box, 2, 1_000)
    look(box)
    assert first(box) == 8
    box.declare(options, "g", GroupOptions())
    put(box, 2, 1_000)
    look(box)
    assert first(box) > 8


@LEVELS
def test_a_group_that_falls_off_is_told_once(durability: str) -> None:
    options = TopicOptions("T", durability=durability, retention_count=2)
    box = Box(CrashJournal(), segment_bytes_max=SEGMENT_BYTES)
    box.declare(options, "g")
    box.declare(options, "quick")
    box.settle()
    for _ in range(110 if durability == "memory" else 3):
        put(box, 2)
        take(box, "quick")
    look(box)
    begin = first(box)
    assert begin > 0
    one = take(box, count=1)
    assert (offsets(one), told(one)) == ([begin], [begin])
    rest = take(box)
    assert (offsets(rest)[0], told(rest)) == (begin + 1, [0])
    assert box.group().skipped_count() == begin
    assert box.group("quick").skipped_count() == 0


def test_a_batch_tells_and_so_does_each_waiting_consumer_only_once() -> None:
    box = box_with(TopicOptions("T", retention_count=2), "g", leases=True)
    waiting = [box.pull(wait=True) for _ in range(3)]
    put(box, 3)
    assert [told(probe) for probe in waiting] == [[0]] * 3
    put(box, 8)
    look(box)
    assert first(box) == 8
    assert told(take(box, count=2)) == [8]
    assert told(take(box)) == [0]
    assert box.group().skipped_count() == 8, "three of them were leased, and not acknowledged"


@pytest.mark.parametrize("front", [True, False])
def test_every_kind_of_unfinished_message_counts(front: bool) -> None:
    box = box_with(TopicOptions("T"), "g", leases=True)
    put(box, 8)
    take(box, count=6)
    box.ack(0)
    box.ack(3)
    box.nack(1, front=front)
    box.nack(2, due_ms=box.now_ms + 10**6)
    box.settle()
    box.declare(attrs.evolve(box.topic().options, retention_count=1))
    look(box)
    # 0 and 3 are done; 1 was put back, 2 waits, 4 and 5 are leased. 6 and 7 are there yet.
    assert first(box) == 6
    group = box.group()
    assert (group.skipped_count(), group.leased_count(), group.delayed_count()) == (4, 0, 0)
    same_state(box, again(box, SEGMENT_BYTES))
    # Whoever works on one may say that it is done, as often as he likes.
    late = box.ack(4)
    refused = box.nack(5)
    box.settle()
    assert late.fine
    assert refusal(refused).refusal is Refusal.NOT_LEASED
    probe = take(box)
    assert (offsets(probe), told(probe)) == ([6, 7], [4])


def test_a_window_opens_when_its_leases_fall_off() -> None:
    box = box_with(TopicOptions("T"), "g")
    box.declare("T", "g", GroupOptions(lease=True, window=2, lease_ms=10**6))
    put(box, 6)
    take(box)
    waiting = box.pull(wait=True)
    box.settle()
    assert waiting.open
    box.declare(attrs.evolve(box.topic().options, retention_count=2))
    look(box)
    assert (offsets(waiting), told(waiting)) == ([4], [4])


def test_what_all_groups_have_done_goes_and_a_topic_without_groups_keeps_all() -> None:
    box = box_with(TopicOptions("T", retention_done=True))
    put(box, 6)
    look(box)
    assert first(box) == 0
    for name in ("a", "b"):
        box.declare(box.topic().options, name, GroupOptions(lease=True, lease_ms=10**6))
    box.settle()
    taken = [offsets(take(box, name)) for name in ("a", "b")]
    assert taken == [[0, 1, 2, 3, 4, 5]] * 2
    for offset in (0, 1, 2, 4, 5):
        box.ack(offset, "a")
        box.ack(offset, "b")
    look(box)
    assert first(box) == 2
    box.ack(3, "a")
    look(box)
    assert first(box) == 2
    box.ack(3, "b")
    look(box)
    assert first(box) == 6
    assert [box.group(name).skipped_count() for name in ("a", "b")] == [0, 0]


def test_a_quiet_topic_loses_its_old_messages_too() -> None:
    options = TopicOptions("T", retention_ms=8_000)
    box = box_with(options, "g")
    put(box, 1)
    begun_ms = box.now_ms
    wakes = []
    while (due_ms := box.broker.next_due()) is not None:
        wakes.append(due_ms - begun_ms)
        box.settle(due_ms - box.now_ms)
    assert first(box) == 1
    # A segment ends after a quarter of the time; then it is kept for the whole.
    assert wakes == [CHECK_MS, 2_000, 10_000, 10_000 + CHECK_MS]
    put(box, 1)
    probe = take(box)
    assert (offsets(probe), told(probe)) == ([1], [1])


def test_small_limits_end_segments_early() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", retention_count=200), "g")
    box.settle()
    for _ in range(10):
        box.put(*[bytes(1_000)] * 50)
        look(box)
    assert first(box) == 300
    box.declare(TopicOptions("T", retention_bytes=400_000))
    for _ in range(10):
        box.put(*[bytes(1_000)] * 50)
        look(box)
    assert first(box) == 800


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_nothing_is_removed_before_it_is_durable_that_it_is_gone(durability: str) -> None:
    box = box_with(TopicOptions("T", durability=durability), "g")
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    put(box, 6)
    box.declare(attrs.evolve(box.topic().options, retention_count=1))
    box.turn()
    journal.release()
    box.turn(CHECK_MS)  # checks
    box.turn()  # writes
    removed = [one for one in journal.written["T", 0] if isinstance(one, int)]
    assert removed == ([] if durability == "disk" else [4])
    for kept in range(4) if durability == "disk" else (100,):
        after = Box(journal.crash(partial(at_most, kept)))
        begin = first(after)
        assert begin in (0, 4)
        probe = take(after)
        assert offsets(probe) == list(range(begin, 6))
        assert told(probe) == [begin]
    journal.release()
    box.settle()
    assert first(box) == 4


def test_a_purge_that_is_not_durable_is_not_done_by_what_is() -> None:
    """Of two that are under way, each takes as much away as was said of it."""
    box = box_with(TopicOptions("T", durability="disk"), "g")
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    put(box, 6)
    box.declare(attrs.evolve(box.topic().options, retention_count=1))
    box.turn()
    journal.release()
    box.turn(CHECK_MS)
    box.turn()
    held = journal.held
    box.broker.purge_topic(Probe(), box.topic())
    box.turn()
    assert journal.held > held
    journal.release(held)
    assert first(box) == 4
    box.settle()
    assert first(box) == 6


def test_what_is_not_synced_is_not_forgotten() -> None:
    box = box_with(TopicOptions("T", durability="disk", retention_bytes=1), "g")
    put(box, 3)
    partition = box.partition()
    for _ in range(6):
        box.put(BODY)
        box.turn()
    assert partition.stored.segments[-1].base > partition.visible
    assert trim_before(partition, box.now_ms) <= partition.visible


def test_segments_that_are_gone_without_a_word_are_counted_at_the_start() -> None:
    box = box_with(TopicOptions("T"), "g", leases=True)
    put(box, 6)
    take(box, count=1)
    box.ack(0)
    box.settle()
    box.journal.trim(("T", 0), 4)
    after = again(box, SEGMENT_BYTES)
    assert first(after) == 4
    assert after.group().skipped_count() == 3
    probe = take(after)
    assert (offsets(probe), told(probe)) == ([4, 5], [3])
    once_more = again(after, SEGMENT_BYTES)
    assert once_more.group().skipped_count() == 3
    put(once_more, 1)
    assert told(take(once_more)) == [0]


def test_counters_outlive_restarts_and_what_was_not_told_yet_is_told_then() -> None:
    box = box_with(TopicOptions("T", retention_count=2, partitions=2), "g", "other")
    put(box, 6)
    put(box, 6, index=1)
    look(box)
    for _ in range(3):
        box = again(box, SEGMENT_BYTES)
        assert box.group().skipped_count() == 8
    assert told(take(box)) == [8]
    look(box)
    box = again(box, SEGMENT_BYTES)
    put(box, 1)
    assert told(take(box)) == [0]
    assert told(take(box, "other")) == [8]
    assert box.group().skipped_count() == 8


def test_recovery_knows_the_segments() -> None:
    box = box_with(TopicOptions("T"), "g")
    put(box, 7, ms=100)
    after = again(box, SEGMENT_BYTES)
    here, there = box.partition(), after.partition()
    assert there.stored.segments[-1].base == here.stored.segments[-1].base
    after.declare(attrs.evolve(after.topic().options, retention_count=2))
    look(after)
    assert first(after) == 5
    same_state(after, again(after, SEGMENT_BYTES))


def test_checks_share_their_turns() -> None:
    box = Box(CrashJournal(), segment_bytes_max=SEGMENT_BYTES)
    count = CHECKS_PER_TURN_MAX
    for number in range(count):
        box.declare(TopicOptions(f"T{number}", retention_count=1))
    box.settle()
    for number in range(count):
        for _ in range(3):
            box.put(BODY, topic=f"T{number}")
            box.turn()
    box.settle()
    box.turn(CHECK_MS)

    def begun() -> int:
        return sum(topic.partitions[0].purged_to > 0 for topic in box.broker.topics.values())

    assert begun() == WORKS_PER_TURN_MAX
    assert box.broker.next_due() == box.now_ms
    box.settle()
    assert begun() == count


def firsts(box: Box, checks: int) -> list[int]:
    """Where the log begins after each of the next checks."""
    found = []
    for _ in range(checks):
        box.settle(CHECK_MS)
        box.settle()
        found.append(first(box))
    return found


def test_large_segments_go_few_at_a_time() -> None:
    box = box_with(TopicOptions("T"), "g")
    put(box, 9)
    for segment in box.partition().stored.segments:
        segment.end(BYTES_PER_LOOK_MAX // 2)
    box.declare(attrs.evolve(box.topic().options, retention_count=1))
    assert firsts(box, 4) == [4, 8, 8, 8]
    assert told(take(box)) == [8]


def test_many_segments_go_some_at_a_time() -> None:
    box = Box(CrashJournal(), segment_bytes_max=1)
    box.declare("T")
    put(box, SEGMENTS_PER_LOOK_MAX + 10)
    box.declare(attrs.evolve(box.topic().options, retention_count=1))
    every = SEGMENTS_PER_LOOK_MAX
    assert firsts(box, 3) == [every, every + 9, every + 9]


def test_what_a_crash_left_to_remove_is_removed_at_the_start() -> None:
    box = box_with(TopicOptions("T"), "g")
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    put(box, 64)
    purged = Probe()
    box.broker.purge_topic(purged, box.topic())
    box.turn()
    after = Box(journal.crash(lambda lane, unsynced: unsynced), segment_bytes_max=SEGMENT_BYTES)
    assert isinstance(after.journal, CrashJournal)
    assert after.journal.written["T", 0][-1] == first(after) == 64
    assert len(after.partition().stored.segments) == 1
    after.declare(attrs.evolve(after.topic().options, retention_count=2))
    put(after, 6)
    look(after)
    assert first(after) == 64 + 4


class TestInterplay:
    def test_a_new_group_begins_at_what_is_left(self) -> None:
        box = box_with(TopicOptions("T", retention_count=2), "g")
        put(box, 6)
        look(box)
        starts = {
            "next": None,
            "zero": Start(offset=0),
            "time": Start(time_ms=0),
            "copy": Start(copy="g"),
        }
        for name, start in starts.items():
            box.declare(box.topic().options, name, start=start)
            box.settle()
            assert box.group(name).position() == [4]
            assert told(take(box, name)) == [0]
        refused = box.declare(box.topic().options, "below", start=Start(offset=3))
        box.settle()
        assert refusal(refused).refusal is Refusal.ILLEGAL

    def test_an_old_place_for_a_group_while_it_is_forgotten(self) -> None:
        box = box_with(TopicOptions("T"), "g")
        journal = box.journal
        assert isinstance(journal, CrashJournal)
        put(box, 6)
        take(box)
        box.settle(10)
        box.declare(attrs.evolve(box.topic().options, retention_count=2))
        box.turn()
        journal.release()
        box.turn(CHECK_MS)
        box.turn()  # looked and wrote; the sync is under way
        box.declare(box.topic().options, "late", start=Start(offset=1))
        box.settle()
        assert first(box) == 4
        assert box.group("late").skipped_count() == 3
        same_state(box, again(box, SEGMENT_BYTES))
        probe = take(box, "late")
        assert (offsets(probe), told(probe)) == ([4, 5], [3])

    @LEVELS
    @pytest.mark.parametrize("verb", ["purge_topic", "remove_topic", "purge_group", "remove_group"])
    def test_it_goes_away_while_it_is_forgotten(self, verb: str, durability: str) -> None:
        options = TopicOptions("T", durability=durability)
        box = box_with(options, "g")
        put(box, 6 if durability != "memory" else 220)
        box.declare(attrs.evolve(options, retention_count=1))
        box.turn()
        assert isinstance(box.journal, CrashJournal)
        box.journal.release()
        box.turn(CHECK_MS)
        subject = box.topic() if "topic" in verb else box.group()
        probe = Probe()
        getattr(box.broker, verb)(probe, subject)
        box.settle()
        look(box)
        assert probe.fine
        if verb == "remove_topic":
            box.declare(options, "g")
            box.settle()
            assert first(box) == 0
        put(box, 1)
        if verb == "remove_group":
            box.declare(box.topic().options, "g", start=Start(offset=0))
        box.settle()
        assert offsets(take(box))[-1] == box.partition().end - 1
        if durability != "memory":
            same_state(box, again(box, SEGMENT_BYTES))

    def test_reads_say_where_the_log_begins(self) -> None:
        box = box_with(TopicOptions("T", retention_count=2), "g")
        put(box, 6)
        look(box)
        partition = box.partition()
        probes = [Probe() for _ in range(3)]
        box.broker.peek(probes[0], partition, 3)
        box.broker.browse(probes[1], partition, 3, 10)
        box.broker.read(probes[2], partition, 3, 1000)
        assert {refusal(probe).refusal for probe in probes} == {Refusal.OFFSET_UNKNOWN}
        assert {refusal(probe).text for probe in probes} == {"partition 0 has offsets 4 to 6"}

    def test_a_read_that_is_overtaken(self) -> None:
        """Storage answers late, and what was asked for is gone by then."""
        journal = SlowJournal()
        journal.late = False
        box = Box(journal, segment_bytes_max=SEGMENT_BYTES, limits=Limits(cache_bytes_max=1))
        box.declare("T", "g")
        put(box, 8)
        cool(box)
        partition = box.partition()
        journal.late = True
        peek, browse, read, pull = Probe(), Probe(), Probe(), box.pull(wait=True)
        start = box.declare("T", "timed", start=Start(time_ms=0))
        box.broker.peek(peek, partition, 1)
        box.broker.browse(browse, partition, 1, 10)
        box.broker.read(read, partition, 1, 1000)
        box.declare(attrs.evolve(box.topic().options, retention_count=1))
        look(box)
        assert first(box) == 6
        journal.late = False
        journal.answer()
        box.settle()
        for probe in (peek, browse, read):
            assert refusal(probe).refusal is Refusal.OFFSET_UNKNOWN
        assert start.fine
        assert box.group("timed").position() == [6]
        assert (offsets(pull), told(pull)) == ([6], [6])

    def test_reading_what_is_there_is_not_disturbed(self) -> None:
        box = box_with(TopicOptions("T", retention_count=2), "g")
        put(box, 6)
        look(box)
        browse, read = Probe(), Probe()
        box.broker.browse(browse, box.partition(), 4, 10)
        box.broker.read(read, box.partition(), 4, 10**6)
        box.settle()
        (peeked,) = browse.answers
        (raw,) = read.answers
        assert isinstance(peeked, Peeked)
        assert [r.offset for r in records_of(peeked.pieces)] == [4]  # small portions
        assert isinstance(raw, Raw)
        assert raw.batches
