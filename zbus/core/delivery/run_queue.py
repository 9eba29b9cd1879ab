"""Which groups have something to do now, and when the others will.

A group is *active* when something happened that may give it work: a new pull, new messages, a lease
that ended, a portion read back from storage. Active groups are served once a turn, after it was
written (`zbus.core.delivery.dispatch`). Whatever changes a backlog says so here.

Tests: `tests/core/delivery/test_dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from zbus.core.commit.tick import Tick
from zbus.core.fanout.follow import FanOut
from zbus.core.model.errors import BrokerError
from zbus.core.model.ticket import Ticket
from zbus.core.timing.timers import Timers
from zbus.core.topics.topic import Group, Partition

Dead: TypeAlias = "Callable[[Group, int, int, str], None]"
"""Called with group, partition and offset of a message that is dead, and why."""

Reopening: TypeAlias = "Callable[[Ticket, Group, Mapping[int, range]], Ticket | BrokerError]"
"""Called before a group is handed messages again that it may have finished, by partition: gives the
ticket by which that is to be confirmed, or why it cannot be done now."""


class RunQueue:
    """`wake` is called with a group and a partition in which leases or delays have ended."""

    __slots__ = ("active", "dead", "following", "reopening", "tick", "wakes")

    def __init__(
        self,
        tick: Tick,
        following: FanOut,
        timers: Timers,
        wake: Callable[[tuple[Group, int]], None],
    ) -> None:
        self.tick = tick
        self.following = following
        self.active: list[Group] = []
        self.wakes = timers.timer(wake, lambda place: place[0])
        self.dead: Dead = give_up  # of groups with a dead-letter topic
        self.reopening: Reopening = lambda ticket, group, offsets: ticket

    def activate(self, group: Group) -> None:
        """It may have work, and is served in this turn."""
        if not group.active:
            group.active = True
            self.active.append(group)

    def schedule(self, group: Group, index: int) -> None:
        """See to it that the backlog is woken when its next lease or delay ends."""
        backlog = group.backlogs[index]
        wake_ms = backlog.next_wake()
        if wake_ms and (not backlog.wake_ms or wake_ms < backlog.wake_ms):
            backlog.wake_ms = wake_ms
            self.wakes.set((group, index), wake_ms)

    def schedule_at(self, group: Group, index: int, due_ms: int) -> None:
        """The same, of a lease or delay that ends then."""
        if not 0 < group.backlogs[index].wake_ms <= due_ms:
            self.schedule(group, index)

    def changed(self, group: Group, partition: Partition) -> None:
        """The group's backlog in this partition is not what it was: it is written, and there may
        be something for those who wait."""
        if not group.backlogs[partition.index].dirty:
            self.tick.change(partition, group)
        if not group.active:
            self.activate(group)

    def finished(self, group: Group, partition: Partition) -> None:
        """Messages that no client has leased are finished: what was behind one of their keys may be
        next."""
        self.tick.change(partition, group)
        if group.ordered or group.limits:
            self.activate(group)

    def moved(self, group: Group, partition: Partition) -> None:
        """The same, where leases or delays may be others than before."""
        self.schedule(group, partition.index)
        self.changed(group, partition)

    def passed(self, partition: Partition, offset: int, due_ms: int) -> None:
        """A group passes a message that is not due: subscribers get it then, too."""
        if partition.topic.followed is not None:
            self.following.delay(partition.topic.followed, partition.index, offset, due_ms)

    def forget(self, group: Group) -> None:
        """The group is gone."""
        for index in range(len(group.backlogs)):
            self.wakes.discard((group, index))


def give_up(group: Group, index: int, offset: int, reason: str) -> None:
    """It is dead, and nothing is kept of it."""
    group.backlogs[index].give_up(offset)
