"""Emptying a group or a topic."""

from __future__ import annotations

from functools import partial

from zbus.core.commit import topic_changes as deciding
from zbus.core.commit.tick import Tick
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.persistence.storage import Storage
from zbus.core.topics.outcomes import Changed, Outcome
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.core.upkeep.retention import Retention, begin


def purge_group(tick: Tick, ticket: Ticket, group: Group) -> None:
    """Forget everything the group has still to do."""
    partitions = group.topic.partitions
    deciding.renew(tick, group, [partition.end for partition in partitions])
    for partition in partitions:
        tick.change(partition, group)
    tick.confirm_all(group.topic, ticket)


def drop_waiting(tick: Tick, ticket: Ticket, group: Group) -> None:
    """Finish everything that the group has still to do, but what is leased. Settles with
    Changed."""
    count = 0
    for partition, backlog in zip(group.topic.partitions, group.backlogs, strict=True):
        if partition.fenced is not None:
            ticket.settle(partition.fenced)
            return
        count += backlog.drop_waiting(partition.end)
        tick.change(partition, group)
    tick.confirm_all(group.topic, ticket, Changed(count))


def purge_topic(
    tick: Tick, retention: Retention, storage: Storage, ticket: Ticket, topic: Topic
) -> None:
    """Forget everything stored; offsets go on from where they are."""
    for group in topic.groups.values():
        purge_group(tick, Silent(), group)
    # What this turn has staged so far is part of what is purged, so it is written first.
    for partition in topic.partitions:
        partition.purged_to = partition.end
    emptied = _Emptied(tick, retention, storage, topic)
    for partition in topic.partitions:
        tick.confirm(partition, _Discard(emptied, partition))
    tick.confirm_all(topic, ticket)


class _Emptied:
    """A topic that is being emptied. With several partitions, it is when partition 0 says so."""

    def __init__(self, tick: Tick, retention: Retention, storage: Storage, topic: Topic) -> None:
        self.retention = retention
        self._tick = tick
        self._storage = storage
        self.topic = topic
        self.number = 0
        self._decided = len(topic.partitions) == 1
        self._emptied_early: list[tuple[Partition, int]] = []  # before partition 0 was
        if self._decided:
            return
        topic.emptying += 1
        self.number = deciding.next_number(topic)
        topic.emptied = (self.number, *[partition.end for partition in topic.partitions])
        for partition in topic.partitions:
            partition.purges[self.number] = partition.end
            partition.topic_changed = True

    def emptied_places(self, partition: Partition, first: int) -> None:
        """What is before `first` in the partition is gone as soon as it is decided, and that is
        durable."""
        if partition.removed:
            return  # removed in the meantime, and its lanes with it
        self._emptied_early.append((partition, first))
        if partition.index == 0 and not self._decided:
            self._decided = True
            self.topic.emptying -= 1
        if not self._decided:
            return
        emptied_places, self._emptied_early = self._emptied_early, []
        for one, place in emptied_places:
            for number in [number for number in one.purges if number < self.number]:
                del one.purges[number]
            begin(self.retention, one, place)
            self._storage.discard(one, self._tick.now_ms)


class _Discard(Ticket):
    """The second half of purging a partition: its cursors are durable behind what is purged."""

    __slots__ = ("_emptied", "_first", "_partition")

    def __init__(self, emptied: _Emptied, partition: Partition) -> None:
        super().__init__()
        self._emptied = emptied
        self._partition = partition
        self._first = partition.purged_to

    def answer(self, outcome: Outcome) -> None:
        partition = self._partition
        if isinstance(outcome, BrokerError):
            # The cursors are not durable: what they have not passed must stay, until they are.
            if outcome.refusal is Refusal.FULL:
                again = partial(_Discard, self._emptied, partition)
                self._emptied.retention.refused(partition, again)
            return
        self._emptied.emptied_places(partition, self._first)
