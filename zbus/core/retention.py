"""How much of a log is kept: by age, bytes, count, or until all groups are done with it.

Whole segments are forgotten, the oldest first; the newest stays. The limits by age, bytes and
count are hard: a group that has not got that far falls off the beginning of the log. Its cursor
moves to what is left, what it lost is counted, and its next delivery says how many that were. The
limit "all groups are done" is soft: nobody loses anything.

Nothing goes round looking. A partition is looked at a while after something was written to it, or
when its oldest segment is old enough. So that small limits mean something, a segment ends when it
is a good part of what is to be kept: a look ends it, and so does the recorder as it writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from zbus.core.dispatch import Dispatch
from zbus.core.errors import BrokerError, Refusal
from zbus.core.outcomes import Outcome
from zbus.core.recorder import Recorder
from zbus.core.tick import LOOK_MS
from zbus.core.ticket import Ticket
from zbus.core.timers import Timers

if TYPE_CHECKING:
    from zbus.core.topic import Partition, Topic

LOOKS_PER_TURN_MAX = 64
WORKS_PER_TURN_MAX = 4
"""Looks that found something to do: each may make a file and sync another."""

SEGMENTS_PER_LOOK_MAX = 1_000
BYTES_PER_LOOK_MAX = 256 << 20
"""Removing a large file takes milliseconds, and nobody is served meanwhile."""

SEGMENT_BYTES_MIN = 64 << 10
"""Smaller segments are not ended for the sake of bytes and count, or because all is done."""

SEGMENTS_SMALL_MAX = 32
SEGMENT_BYTES_BURST = 1 << 20
"""With so many segments, smaller ones are not ended: a burst makes no thousands of files before
the next look."""

CHECKPOINT_BYTES_PER_MS = 64
"""A segment whose checkpoint is large ends by age so much later: on an idle partition, remembering
many ids must not be a load."""

_SHARE = 4
"""A segment ends when it alone is one part in so many of what is to be kept."""

Measure = Callable[[], tuple[int, int]]
"""Bytes of a segment and the time it begins with (epoch milliseconds)."""

_base = attrgetter("base")


class Extent:
    """One stored segment. What only its file can tell is found out when it is asked for first."""

    __slots__ = ("_begun_ms", "_bytes", "_measure", "base")

    def __init__(self, base: int, begun_ms: int = 0, measure: Measure | None = None) -> None:
        self.base = base  # the offset it begins with
        self._begun_ms = begun_ms
        self._bytes = 0
        self._measure = measure

    @property
    def begun_ms(self) -> int:
        """No message before this segment is younger."""
        self._know()
        return self._begun_ms

    @property
    def bytes(self) -> int:
        """Of an ended segment."""
        self._know()
        return self._bytes

    def end(self, bytes: int) -> None:
        """The next segment was begun."""
        self._know()
        self._bytes = bytes

    def _know(self) -> None:
        if self._measure is not None:
            self._bytes, self._begun_ms = self._measure()
            self._measure = None


def expendable(partition: Partition, now_ms: int) -> int:
    """The offset before which the topic's options let go of everything: where some segment
    begins that is whole and durable."""
    options = partition.topic.options
    segments = partition.segments
    keep = 0  # segments before this one may go
    last = bisect_right(segments, partition.visible, key=_base) - 1
    if last <= 0:
        return 0
    if options.retention_ms:
        oldest_ms = now_ms - options.retention_ms
        while keep < last and segments[keep + 1].begun_ms <= oldest_ms:
            keep += 1
    if options.retention_bytes:
        left = options.retention_bytes - partition.segment_bytes
        newest = len(segments) - 1
        while newest > keep and left > 0:
            newest -= 1
            left -= segments[newest].bytes
        if left <= 0:
            keep = max(keep, newest)
    if options.retention_count:
        offset = partition.visible - options.retention_count
        keep = max(keep, bisect_right(segments, offset, key=_base) - 1)
    if options.retention_done and (done := _done(partition)) is not None:
        keep = max(keep, bisect_right(segments, done, key=_base) - 1)
    gone = size = 0
    while gone < min(keep, last, SEGMENTS_PER_LOOK_MAX) and size < BYTES_PER_LOOK_MAX:
        size += segments[gone].bytes
        gone += 1
    return segments[gone].base


def is_large(partition: Partition, end: int) -> bool:
    """The newest segment, with messages before `end`, is a good part of what is to be kept."""
    options = partition.topic.options
    count = end - partition.segments[-1].base
    if count <= 0 or _is_small(partition):
        return False
    return bool(
        (options.retention_bytes and partition.segment_bytes * _SHARE >= options.retention_bytes)
        or (options.retention_count and count * _SHARE >= options.retention_count)
    )


def _is_small(partition: Partition) -> bool:
    """A checkpoint must stay a small part of its segment."""
    few = len(partition.segments) < SEGMENTS_SMALL_MAX
    least = SEGMENT_BYTES_MIN if few else SEGMENT_BYTES_BURST
    return partition.segment_bytes < least + _SHARE * partition.checkpoint_bytes


def _is_ripe(partition: Partition, now_ms: int) -> bool:
    """The newest segment holds messages, and is to end now."""
    options = partition.topic.options
    if partition.visible <= partition.segments[-1].base:
        return False
    if options.retention_ms and now_ms >= _ends_ms(partition):
        return True
    if options.retention_done and not _is_small(partition):
        done = _done(partition)
        if done is not None and done >= partition.visible:
            return True
    return is_large(partition, partition.visible)


def _ends_ms(partition: Partition) -> int:
    """When the newest segment is old enough to end."""
    share_ms = max(LOOK_MS, partition.topic.options.retention_ms // _SHARE)
    if _is_small(partition):
        share_ms = max(share_ms, partition.checkpoint_bytes // CHECKPOINT_BYTES_PER_MS)
    return partition.segments[-1].begun_ms + share_ms


def _done(partition: Partition) -> int | None:
    """All groups have finished what is before this offset; None = there is no group."""
    groups = partition.topic.groups.values()
    return min((group.backlogs[partition.index].floor() for group in groups), default=None)


class Retention:
    """See the module. `Tick.looks` says when which partition is to be looked at."""

    def __init__(self, recorder: Recorder, dispatch: Dispatch, timers: Timers) -> None:
        self._recorder = recorder
        self._dispatch = dispatch
        self._tick = dispatch.tick
        self._tick.looks = timers.timer(self._due)
        self.begin()
        # There was no room to say where it begins; makes the ticket that waits for it.
        self._refused: dict[Partition, Callable[[], Ticket]] = {}

    def begin(self) -> None:
        """A turn begins: there is work for it again."""
        self._looks_left, self._works_left = LOOKS_PER_TURN_MAX, WORKS_PER_TURN_MAX

    def _due(self, partition: Partition) -> None:
        """A partition is to be looked at; so many in a turn that others get their turn."""
        now_ms = self._tick.now_ms
        if self._looks_left <= 0 or self._works_left <= 0:
            self._tick.looks.set(partition, now_ms)
            return
        self._looks_left -= 1
        self._works_left -= self._look(partition, now_ms)

    def restore(self, topic: Topic) -> None:
        """A topic was recovered."""
        for group in topic.groups.values():
            group.untold = any(backlog.untold for backlog in group.backlogs)
        for partition in topic.partitions:
            segments = partition.segments
            if len(segments) > 1 and segments[1].base <= partition.first:
                self._recorder.trim(partition)  # a crash came before
            if topic.retains:
                self._tick.look_at(partition)

    def look_at(self, partition: Partition) -> None:
        self._tick.look_at(partition)

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        for partition in topic.partitions:
            self._tick.looks.discard(partition)
            self._refused.pop(partition, None)

    def refused(self, partition: Partition, ticket: Callable[[], Ticket]) -> None:
        """The disk is full: try again, with such a ticket."""
        self._refused.setdefault(partition, ticket)
        self._tick.look_at(partition)

    def advance(self, partition: Partition, first: int) -> None:
        """Messages below `first` are no more: groups that have not finished them fall off."""
        for group in partition.topic.groups.values():
            if group.backlogs[partition.index].fall_off(first):
                group.untold = True
                self._tick.change(partition, group)
                self._dispatch.activate(group)  # its window may have opened

    def _look(self, partition: Partition, now_ms: int) -> bool:
        """Whether there was something to do."""
        refused = self._refused.pop(partition, None)
        if refused is not None:
            self._tick.confirm(partition, refused())
        if not partition.segments or not partition.topic.retains:
            return refused is not None
        ripe = _is_ripe(partition, now_ms)
        if ripe:
            self._recorder.roll(partition, now_ms)
        first = expendable(partition, now_ms)
        forgets = first > max(partition.first, partition.purged_to)
        if forgets:
            # As with a purge, what is forgotten is removed when it is durable that it is.
            partition.purged_to = first
            self.advance(partition, first)
            self._tick.confirm(partition, _Trim(self, self._recorder, partition))
        self._look_again(partition, now_ms)
        return ripe or forgets or refused is not None

    def _look_again(self, partition: Partition, now_ms: int) -> None:
        """Time passes without anything being written."""
        if partition.visible < partition.end:
            self._tick.look_at(partition)  # what is on its way to the disk counts later
        kept_ms = partition.topic.options.retention_ms
        if not kept_ms:
            return
        segments = partition.segments
        due = []
        if len(segments) > 1:
            due.append(segments[1].begun_ms + kept_ms)
        if partition.end > segments[-1].base:
            due.append(_ends_ms(partition))
        if due and partition not in self._tick.looks:
            self._tick.looks.set(partition, max(min(due), now_ms + LOOK_MS))


class _Trim(Ticket):
    """The second half of forgetting: it is durable where the partition begins."""

    __slots__ = ("_first", "_partition", "_recorder", "_retention")

    def __init__(self, retention: Retention, recorder: Recorder, partition: Partition) -> None:
        super().__init__()
        self._retention = retention
        self._recorder = recorder
        self._partition = partition
        self._first = partition.purged_to  # it may be more when this is durable

    def answer(self, outcome: Outcome) -> None:
        partition = self._partition
        if isinstance(outcome, BrokerError):
            if outcome.refusal is Refusal.FULL:
                again = partial(_Trim, self._retention, self._recorder, partition)
                self._retention.refused(partition, again)
            return  # else the topic is gone
        if partition.removed:
            return
        begin(self._retention, partition, self._first)
        self._recorder.trim(partition)
        self._retention.look_at(partition)  # there may be more to forget


def begin(retention: Retention, partition: Partition, first: int) -> None:
    """The partition begins where it was durably said to. A group that was declared since then may
    have been given an older place."""
    partition.first = max(partition.first, min(first, partition.visible))
    retention.advance(partition, partition.first)
