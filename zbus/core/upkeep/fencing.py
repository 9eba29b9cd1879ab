"""Partitions whose storage failed: closed, read again, and opened, while all others go on.

A partition is *serving*, *fenced* or *reopening*. It is fenced when a write failed, or when its
outcome is unknown: another process wrote to the log, or the answer of storage was lost. Then the
state in memory may be wrong. Requests get an error that asks for a retry; nothing is delivered from
the partition, and nothing is written to it. Recovery begins at once, but at most once a second, and
the partition serves as soon as it is done.

Requests need not check for this: what they stage for a fenced partition is refused at the end of
their turn, as a whole, and dropped by the recovery. Pulls wait, as at the end of a log.

Partition 0 decides about its topic (`zbus.core.commit.topic_changes`): with it the whole topic is
recovered. A bug that leaves a partition half changed ends the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from zbus.core.commit import topic_changes as deciding
from zbus.core.delivery.pulls import WaitingPulls
from zbus.core.model.errors import INTERNAL, BrokerError, fenced, group_unknown
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.changes import Changes
from zbus.core.topics.topic import NO_CHUNK, Group, Partition, Session, Topic
from zbus.core.upkeep.retention import Retention

RETRY_MS = 1_000
"""How often it is tried again to read what could not be read."""


class Verbs(Protocol):
    """What the broker does with partitions and groups."""

    def begin_partition(self, partition: Partition) -> None: ...

    def dissolve(self, group: Group, gone: BrokerError) -> None: ...

    def take_up(self, group: Group) -> None: ...

    def remove_topic(self, ticket: Ticket, topic: Topic) -> None: ...

    def leave(self, session: Session) -> object: ...

    @property
    def complete(self) -> Callable[[], None]: ...


class Fencing:
    def __init__(
        self,
        verbs: Verbs,
        pulls: WaitingPulls,
        wake: Callable[[tuple[Group, int]], None],
        storage: Storage,
        retention: Retention,
        changes: Changes,
        timers: Timers,
    ) -> None:
        self._verbs = verbs
        self._pulls = pulls
        self._runs = pulls.runs
        self._tick = tick = pulls.runs.tick
        self._wake = wake  # of a group and partition, see `RunQueue`
        self._storage = storage
        self._retention = retention
        self._changes = changes
        self._retries = timers.timer(self._reopen, lambda partition: partition)
        self._opened_ms: dict[Partition, int] = {}  # when it was read again last
        self.to_drop: list[Session] = []  # to be dropped at the end of the turn
        self.drop: Callable[[Session], object] = verbs.leave  # or by the owner of the connection
        tick.hooks.fence = self.fence
        tick.faults.cost = self._cost

    def fence(self, partition: Partition, why: BrokerError) -> None:
        """Serve nothing of the partition until it was read again."""
        topic = partition.topic
        for one in topic.partitions if partition.index == 0 else [partition]:
            one.fenced = why
            one.epoch += 1
            one.visible = one.first  # so nothing of it can be delivered
        self._runs.following.end(topic, why)
        again_ms = self._opened_ms.get(partition, -RETRY_MS) + RETRY_MS
        if again_ms <= self._tick.now_ms:
            self._reopen(partition)
        else:
            self._retries.set(partition, again_ms)  # it may fail each time: the disk is full

    def _cost(self, culprit: object) -> None:
        """A mistake of the program came to light there (`zbus.core.model.containment`). What the
        broker knows of it may be wrong, so it is dropped or read again."""
        if isinstance(culprit, Session):
            culprit.stalled = True  # it is given nothing more
            self.to_drop.append(culprit)
        elif isinstance(culprit, Partition):
            self._read_again(culprit)
        elif isinstance(culprit, Group):
            zero = culprit.topic.partitions[0]
            self._pulls.cancel(culprit, fenced(*zero.lane, INTERNAL))
            self._read_again(zero)
        elif isinstance(culprit, Topic):
            self._read_again(culprit.partitions[0])

    def _read_again(self, partition: Partition) -> None:
        topic = partition.topic
        if not partition.removed:
            # Of a topic that no client was told of yet, all or nothing is there.
            one = partition if topic.born else topic.partitions[0]
            self._tick.hooks.fence(one, fenced(*one.lane, INTERNAL))

    def drop_doomed(self) -> None:
        """The sessions from which a fault of this turn came."""
        to_drop, self.to_drop = self.to_drop, []
        for session in to_drop:
            self._tick.faults.guard(partial(self.drop, session))

    def undo(self) -> None:
        """Topics whose beginning was not written were never there."""
        while self._tick.not_created:
            topic, _ = self._tick.not_created.popitem()
            if not topic.partitions[0].removed:
                self._verbs.remove_topic(Silent(), topic)

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        for partition in topic.partitions:
            self._retries.discard(partition)
            self._opened_ms.pop(partition, None)

    def _reopen(self, partition: Partition) -> None:
        topic = partition.topic
        zero = topic.partitions[0]
        if partition is not zero and zero.fenced is not None:
            return  # it is read with that
        partitions = topic.partitions if partition is zero else [partition]
        epochs = [one.epoch for one in partitions]
        why = partition.fenced
        assert why is not None, "it serves"

        def ready() -> bool:
            if zero.removed:
                return False
            if [one.epoch for one in partitions] != epochs:
                return False  # partition 0 was fenced meanwhile: all of it is read again
            if partition is not zero and topic.emptying:
                # Whether it is emptied is being decided; what it holds is known after that.
                self._retries.set(partition, self._tick.now_ms + 1)
                return False
            refused = partitions
            while refused:  # a refused request may be repeated at once: that is refused, too
                for one in refused:
                    self._tick.refuse(one, why)
                refused = [one for one in partitions if one.puts or one.confirms]
            return True

        self._storage.reopen(partitions, ready, partial(self._reopened, partitions))

    def _reopened(self, partitions: list[Partition], outcome: BrokerError | list[Group]) -> None:
        topic = partitions[0].topic
        if isinstance(outcome, BrokerError):
            if topic.born:
                self._retries.set(partitions[0], self._tick.now_ms + RETRY_MS)
            else:
                self._verbs.remove_topic(Silent(), topic)  # no client was told that there is one
            return
        topic.born = True
        for group in outcome:
            self._verbs.dissolve(group, group_unknown(group.name))
        for partition in partitions:
            self._serve(partition)
        self._verbs.complete()  # before a lease that ended meanwhile makes it ready, or dead
        for group in topic.groups.values():
            group.unreported = any(backlog.unreported for backlog in group.backlogs)
            if group.origin is not None:
                deciding.notify(self._tick, group)
            self._verbs.take_up(group)
            for partition in partitions:  # before others are put behind what is due
                self._wake((group, partition.index))
        self._changes.note(self._tick.now_ms)

    def _serve(self, partition: Partition) -> None:
        """It was read again."""
        index = partition.index
        self._retries.discard(partition)
        self._opened_ms[partition] = self._tick.now_ms
        partition.fenced = None
        self._verbs.begin_partition(partition)
        self._retention.restore_partition(partition)
        for group in partition.topic.groups.values():
            group.chunks[index] = NO_CHUNK
            self._runs.schedule(group, index)
            self._runs.activate(group)
