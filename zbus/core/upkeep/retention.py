"""How much of a log is kept: by age, bytes, count, or until all groups are done with it.

Whole segments are forgotten, the oldest first; the newest stays. The limits by age, bytes and
count are hard: a group that has not got that far falls off the beginning of the log. Its cursor
moves to what is left, what it lost is counted, and its next delivery says how many that were. The
limit "all groups are done" is soft: no group loses anything.

There is no sweep. A partition is checked a while after something was written to it, or
when its oldest segment is old enough. `zbus.core.persistence.retention` says which segments go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.ticket import Ticket
from zbus.core.persistence.retention import CHECK_MS, next_expiry_ms, trim_before
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.outcomes import Outcome

if TYPE_CHECKING:
    from zbus.core.topics.topic import Partition, Topic

CHECKS_PER_TURN_MAX = 64
WORKS_PER_TURN_MAX = 4
"""Checks that found something to do: each may make a file and sync another."""


class Retention:
    def __init__(self, storage: Storage, runs: RunQueue, timers: Timers) -> None:
        self._storage = storage
        self._runs = runs
        self._tick = runs.tick
        self._timer = timers.timer(self._due, lambda partition: partition)
        hooks = self._tick.hooks
        hooks.make_room, hooks.keep_ring = self.make_room, self.keep_ring
        hooks.check_later = self.check_later
        self.begin()
        # There was no room to say where it begins; makes the ticket that waits for it.
        self._refused: dict[Partition, Callable[[], Ticket]] = {}

    def begin(self) -> None:
        """A turn begins: there is work for it again."""
        self._checks_left, self._works_left = CHECKS_PER_TURN_MAX, WORKS_PER_TURN_MAX

    def _due(self, partition: Partition) -> None:
        """A partition is to be checked; so many in a turn that others get their turn."""
        now_ms = self._tick.now_ms
        if self._checks_left <= 0 or self._works_left <= 0:
            self._timer.set(partition, now_ms)
            return
        self._checks_left -= 1
        self._works_left -= self._check(partition, now_ms)

    def restore(self, topic: Topic) -> None:
        """A topic was recovered."""
        for group in topic.groups.values():
            group.unreported = any(backlog.unreported for backlog in group.backlogs)
        for partition in topic.partitions:
            self.restore_partition(partition)

    def restore_partition(self, partition: Partition) -> None:
        """A partition was read."""
        self._refused.pop(partition, None)
        if partition.first:
            self._storage.trim(partition)  # a crash may have come before
        if partition.topic.retains:
            self.check_later(partition)

    def check_later(self, partition: Partition) -> None:
        """Some of the partition may have become expendable."""
        due_ms = self._tick.now_ms + CHECK_MS
        if partition not in self._timer or self._timer.due_of(partition) > due_ms:
            self._timer.set(partition, due_ms)

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        for partition in topic.partitions:
            self._timer.discard(partition)
            self._refused.pop(partition, None)

    def refused(self, partition: Partition, ticket: Callable[[], Ticket]) -> None:
        """The disk is full: try again, with such a ticket."""
        self._refused.setdefault(partition, ticket)
        self.check_later(partition)

    def advance(self, partition: Partition, first: int) -> None:
        """Messages below `first` are no more: groups that have not finished them fall off."""
        for group in partition.topic.groups.values():
            backlog = group.backlogs[partition.index]
            if backlog.fall_off(first, counted=not group.topic.options.compact):
                group.unreported = group.unreported or backlog.unreported > 0
                self._runs.changed(group, partition)  # its window may have opened

    def make_room(self, chunk: Chunk) -> bool:
        """Memory is full: the oldest messages of the partition that takes most of it go, whether or
        not a group has read them. Whether there were any."""
        found = self._storage.largest(chunk)
        return found is not None and self._drop(*found)

    def keep_ring(self, partition: Partition) -> None:
        """A partition in memory was written to: it keeps that much and no more."""
        if first := self._storage.over_limit(partition):
            self._drop(partition, first)

    def _drop(self, partition: Partition, first: int) -> bool:
        """Forget at once what is before this offset and may be delivered; whether it was any."""
        before = partition.first
        begin(self, partition, first)
        self._storage.trim(partition)
        return partition.first > before

    def _check(self, partition: Partition, now_ms: int) -> bool:
        """Whether there was something to do."""
        refused = self._refused.pop(partition, None)
        if refused is not None:
            self._tick.confirm(partition, refused())
        if not partition.topic.retains:
            return refused is not None
        ripe = self._storage.roll_segment(partition, now_ms)
        first = trim_before(partition, now_ms)
        forgets = first > max(partition.first, partition.purged_to)
        if forgets:
            self.forget_before(partition, first)
        self._check_again(partition, now_ms)
        return ripe or forgets or refused is not None

    def forget_before(self, partition: Partition, first: int) -> None:
        """As with a purge, what is forgotten is removed when it is durable that it is."""
        partition.purged_to = first
        self.advance(partition, first)
        self._tick.confirm(partition, _Trim(self, self._storage, partition))

    def _check_again(self, partition: Partition, now_ms: int) -> None:
        """Time passes without anything being written."""
        if partition.visible < partition.end:
            self.check_later(partition)  # what is on its way to the disk counts later
        if partition not in self._timer:
            due_ms = next_expiry_ms(partition)
            if due_ms is not None:
                self._timer.set(partition, max(due_ms, now_ms + CHECK_MS))


class _Trim(Ticket):
    """The second half of forgetting: it is durable where the partition begins."""

    __slots__ = ("_first", "_partition", "_retention", "_storage")

    def __init__(self, retention: Retention, storage: Storage, partition: Partition) -> None:
        super().__init__()
        self._retention = retention
        self._storage = storage
        self._partition = partition
        self._first = partition.purged_to  # it may be more when this is durable

    def answer(self, outcome: Outcome) -> None:
        partition = self._partition
        if isinstance(outcome, BrokerError):
            if outcome.refusal is Refusal.FULL:
                again = partial(_Trim, self._retention, self._storage, partition)
                self._retention.refused(partition, again)
            return  # else the topic is gone
        if partition.removed:
            return
        begin(self._retention, partition, self._first)
        self._storage.trim(partition)
        self._retention.check_later(partition)  # there may be more to forget


def begin(retention: Retention, partition: Partition, first: int) -> None:
    """The partition begins where it was durably said to. A group that was declared since then may
    have been given an older place."""
    partition.first = max(partition.first, min(first, partition.visible))
    retention.advance(partition, partition.first)
