"""Where segments end for the sake of retention: limits hold after bursts, and a partition that
remembers much is not written again and again."""

from __future__ import annotations

from tests.core.support import Box, CrashJournal, Probe, again, same_state
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.core.persistence.retention import (
    CHECK_MS,
    CHECKPOINT_BYTES_PER_MS,
    SEGMENT_BYTES_BURST,
    SEGMENTS_SMALL_MAX,
)


def box_with(options: TopicOptions, *groups: str) -> Box:
    box = Box(CrashJournal())
    box.declare(options)
    for group in groups:
        box.declare(options, group, GroupOptions(lease=True, lease_ms=10**6))
    box.settle()
    return box


def burst(box: Box, turns: int, count: int, body: bytes) -> None:
    """So much at once that nobody looks meanwhile."""
    for _ in range(turns):
        box.broker.put_all(box.partition(), Probe(), Chunk.of([Message(b"i", body=body)] * count))
        box.settle()


def rest(box: Box) -> None:
    """Until nothing is left to do."""
    while (due_ms := box.broker.next_due()) is not None:
        box.settle(due_ms - box.now_ms)


def checks(box: Box, count: int) -> None:
    for _ in range(count):
        box.settle(CHECK_MS)


def kept_bytes(box: Box) -> int:
    state = box.partition().stored
    return sum(segment.bytes for segment in state.segments) + state.segment_bytes


def test_bytes_hold_after_a_burst() -> None:
    limit = 1_000_000
    box = box_with(TopicOptions("T", retention_bytes=limit))
    burst(box, 180, 10, bytes(10_000))
    files = len(box.partition().stored.segments)
    assert files < SEGMENTS_SMALL_MAX + 18_000_000 // SEGMENT_BYTES_BURST
    rest(box)
    assert limit <= kept_bytes(box) < limit + 2 * SEGMENT_BYTES_BURST
    same_state(box, again(box))


def test_count_holds_after_a_burst() -> None:
    box = box_with(TopicOptions("T", retention_count=1_000))
    burst(box, 12, 1_000, b"body" * 20)
    rest(box)
    partition = box.partition()
    assert 1_000 <= partition.end - partition.first <= 2_000


def test_what_all_groups_have_done_is_freed_though_the_segment_is_not_full() -> None:
    box = box_with(TopicOptions("T", retention_done=True), "a", "b")
    burst(box, 10, 10, bytes(1_000))
    for name in ("a", "b"):
        box.take(name)
    for offset in range(100):
        box.ack(offset, "a")
    checks(box, 4)
    assert box.partition().first == 0
    for offset in range(100):
        box.ack(offset, "b")
    checks(box, 4)
    assert box.partition().first == 100
    assert len(box.partition().stored.segments) == 1
    assert kept_bytes(box) < 1_000
    same_state(box, again(box))


def test_a_large_checkpoint_is_not_written_for_each_new_message() -> None:
    """An old message goes later then, but it goes."""
    options = TopicOptions("T", dedupe_ms=10**9, retention_ms=1_000)
    box = box_with(options)
    for batch in range(2):
        ids = [Message(b"%d %d" % (batch, number)) for number in range(10_000)]
        box.broker.put_all(box.partition(), Probe(), Chunk.of(ids))
        box.settle()
    checks(box, 4)
    partition = box.partition()
    assert partition.first == 20_000
    assert partition.stored.checkpoint_bytes > 800_000
    late_ms = partition.stored.checkpoint_bytes // CHECKPOINT_BYTES_PER_MS
    begun_ms = box.now_ms
    bases = set()
    while box.now_ms < begun_ms + 2 * late_ms:
        box.put(b"x")
        box.settle(1_000)
        bases.add(partition.stored.segments[-1].base)
    assert len(bases) <= 4
    checks(box, late_ms // CHECK_MS + 4)
    assert partition.first == partition.end
