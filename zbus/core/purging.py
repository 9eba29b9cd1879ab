"""Emptying a group or a topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from zbus.core.errors import BrokerError, Refusal
from zbus.core.group import Group
from zbus.core.outcomes import Outcome
from zbus.core.retention import begin
from zbus.core.ticket import Silent, Ticket
from zbus.core.topic import Partition, Topic

if TYPE_CHECKING:
    from zbus.core.broker import Broker


def purge_group(broker: Broker, ticket: Ticket, group: Group) -> None:
    """Forget everything the group has still to do."""
    for partition in group.topic.partitions:
        group.backlogs[partition.index].seek(partition.end)
        broker.tick.change(partition, group)
    broker.tick.confirm_all(group.topic, ticket)


def purge_topic(broker: Broker, ticket: Ticket, topic: Topic) -> None:
    """Forget everything stored; offsets go on from where they are."""
    for group in topic.groups.values():
        purge_group(broker, Silent(), group)
    # What this turn has staged so far is part of what is purged, so it is written first.
    for partition in topic.partitions:
        partition.purged_to = partition.end
        broker.tick.confirm(partition, _Discard(broker, partition))
    broker.tick.confirm_all(topic, ticket)


class _Discard(Ticket):
    """The second half of purging a partition: its cursors are durable behind what is purged."""

    __slots__ = ("_broker", "_first", "_partition")

    def __init__(self, broker: Broker, partition: Partition) -> None:
        super().__init__()
        self._broker = broker
        self._partition = partition
        self._first = partition.purged_to

    def answer(self, outcome: Outcome) -> None:
        partition = self._partition
        if isinstance(outcome, BrokerError):
            # The cursors are not durable: what they have not passed must stay, until they are.
            if outcome.refusal is Refusal.FULL:
                again = partial(_Discard, self._broker, partition)
                self._broker.retention.refused(partition, again)
            return
        if self._broker.topic(partition.topic.name) is not partition.topic:
            return  # removed in the meantime, and its lane with it
        begin(self._broker.retention, partition, self._first)
        self._broker.recorder.discard(partition, self._broker.now_ms)
