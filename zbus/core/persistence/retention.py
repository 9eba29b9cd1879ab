"""Which segments of a partition may be forgotten, and when the newest is to end.

Whole segments are forgotten, the oldest first; the newest stays. So that small limits mean
something, a segment ends when it is a good part of what is to be kept: a look of
`zbus.core.upkeep.retention` ends it, and so does `storage` as it writes.

Tests: `tests/core/upkeep/test_retention_segments.py`.
"""

from __future__ import annotations

from zbus.core.topics.topic import Partition

CHECK_MS = 1_000
"""`Retention` checks a partition this long after a write, and at most this often."""

SEGMENTS_PER_LOOK_MAX = 1_000
BYTES_PER_LOOK_MAX = 256 << 20
"""Removing a large file takes milliseconds, in which no client is served."""

SEGMENT_BYTES_MIN = 64 << 10
"""Smaller segments are not ended for the sake of bytes and count, or because all is done."""

SEGMENTS_SMALL_MAX = 32
SEGMENT_BYTES_BURST = 1 << 20
"""With that many segments, smaller ones are not ended: a burst makes no thousands of files before
the next look."""

CHECKPOINT_BYTES_PER_MS = 64
"""A segment whose checkpoint is large ends by age that much later: on an idle partition,
remembering many ids must not be a load."""

_SHARE = 4
"""A segment ends when it alone is one part in that many of what is to be kept."""


def trim_before(partition: Partition, now_ms: int) -> int:
    """The offset before which the topic's options let go of everything: where some segment
    begins that is whole and durable."""
    options = partition.topic.options
    state = partition.stored
    segments = state.segments
    keep = 0  # segments before this one may go
    last = segments.holding(partition.visible)
    if not last:
        return 0
    if options.retention_ms:
        oldest_ms = now_ms - options.retention_ms
        while keep < last and segments[keep + 1].begun_ms <= oldest_ms:
            keep += 1
    if options.retention_bytes:
        left = options.retention_bytes - state.segment_bytes
        newest = len(segments) - 1
        while newest > keep and left > 0:
            newest -= 1
            left -= segments[newest].bytes
        if left <= 0:
            keep = max(keep, newest)
    if options.retention_count:
        offset = partition.visible - options.retention_count
        keep = max(keep, segments.holding(offset))
    if options.retention_done and (done := partition.finished()) is not None:
        before = segments.holding(done)
        if before > keep and options.settled_ms:
            done = min(done, _shown_from(partition, now_ms - options.settled_ms))
            before = segments.holding(done)
        keep = max(keep, before)
    if (held := _held_from(partition)) is not None:
        keep = min(keep, segments.holding(held))
    gone = size = 0
    while gone < min(keep, last, SEGMENTS_PER_LOOK_MAX) and size < BYTES_PER_LOOK_MAX:
        size += segments[gone].bytes
        gone += 1
    return segments[gone].base


def _held_from(partition: Partition) -> int | None:
    """What the groups that hold retention back have not finished begins there; None = no group."""
    groups = partition.topic.groups.values()
    floors = [g.backlogs[partition.index].floor() for g in groups if g.options.retain]
    return min(floors, default=None)


def _shown_from(partition: Partition, before_ms: int) -> int:
    """The first message of which it is still known how it ended: who asks is shown the message,
    too."""
    groups = partition.topic.groups.values()
    fates = [group.backlogs[partition.index].fates for group in groups]
    lowest = [one.lowest(before_ms) for one in fates if one is not None]
    return min([offset for offset in lowest if offset is not None], default=partition.end)


def is_large(partition: Partition, end: int) -> bool:
    """The newest segment, with messages before `end`, is a good part of what is to be kept."""
    options, state = partition.topic.options, partition.stored
    count = end - state.segments[-1].base
    if count <= 0 or _is_small(partition):
        return False
    newest = partition.newest
    if newest is not None and newest.end >= partition.visible and count >= newest.count:
        return True  # as many as stay: so there is an ended segment, of which most may go
    return bool(
        (options.retention_bytes and state.segment_bytes * _SHARE >= options.retention_bytes)
        or (options.retention_count and count * _SHARE >= options.retention_count)
    )


def _is_small(partition: Partition) -> bool:
    """A checkpoint must stay a small part of its segment."""
    state = partition.stored
    few = len(state.segments) < SEGMENTS_SMALL_MAX
    least = SEGMENT_BYTES_MIN if few else SEGMENT_BYTES_BURST
    return state.segment_bytes < least + _SHARE * state.checkpoint_bytes


def is_ripe(partition: Partition, now_ms: int) -> bool:
    """The newest segment holds messages, and is to end now."""
    options, segments = partition.topic.options, partition.stored.segments
    if not segments or partition.visible <= segments[-1].base:
        return False
    if options.retention_ms and now_ms >= _ends_ms(partition):
        return True
    if options.retention_done and not _is_small(partition):
        done = partition.finished()
        if done is not None and done >= partition.visible:
            return True
    return is_large(partition, partition.visible)


def _forgotten_ms(partition: Partition) -> list[int]:
    """When each group forgets the first message of which it knows how it ended."""
    kept_ms, index = partition.topic.options.settled_ms, partition.index
    fates = [group.backlogs[index].fates for group in partition.topic.groups.values()]
    ended = [one.oldest_ms() for one in fates if one is not None]
    return [ended_ms + kept_ms for ended_ms in ended if ended_ms is not None]


def _ends_ms(partition: Partition) -> int:
    """When the newest segment is old enough to end."""
    state = partition.stored
    share_ms = max(CHECK_MS, partition.topic.options.retention_ms // _SHARE)
    if _is_small(partition):
        share_ms = max(share_ms, state.checkpoint_bytes // CHECKPOINT_BYTES_PER_MS)
    return state.segments[-1].begun_ms + share_ms


def next_expiry_ms(partition: Partition) -> int | None:
    """When time alone makes something expendable, or ends the newest segment; None = never."""
    options, segments = partition.topic.options, partition.stored.segments
    kept_ms = options.retention_ms
    due = []
    if options.retention_done and options.settled_ms and len(segments) > 1:
        due += _forgotten_ms(partition)
    if not kept_ms or not segments:
        return min(due, default=None)
    if len(segments) > 1:
        due.append(segments[1].begun_ms + kept_ms)
    if partition.end > segments[-1].base:
        due.append(_ends_ms(partition))
    return min(due, default=None)
