"""`redrive`: dead messages go back to where they come from, or to the group in which they died."""

from __future__ import annotations

from zbus.core.api import DONE, BrokerError, Moved, Outcome, RemoteTopic, Topic, topic_unknown
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.consume import GroupPlan
from zbus.dialects.zbus.replies import NativeReply, partition_unknown
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.edge.connection import Connection
from zbus.protocol.parameters import REDRIVE_COUNT_DEFAULT

_MESSAGE_WORK = 50
"""What each message costs a connection of its turns, in microseconds or so."""


class RedriveReply(NativeReply):
    """Says how many were moved, and how many could not be."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Moved):
            lines = b"count: %d\r\nstayed: %d\r\n" % (outcome.count, outcome.stayed)
            self.peer.work -= outcome.count * _MESSAGE_WORK
            self.respond(200, lines, b"%d" % self.dialect.broker.now_ms)
        else:
            super().answer(outcome)


class Redrive(GroupPlan):
    """Plan of a redrive."""

    __slots__ = ("count_max", "offsets", "only_group", "partition", "to")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.offsets = params.ranges(b"offset")
        self.partition = params.number(b"partition")
        count = params.number(b"count", dialect.settings.batch_messages_max)
        self.count_max = count or min(REDRIVE_COUNT_DEFAULT, dialect.settings.batch_messages_max)
        self.to = params.text(b"to")
        self.only_group = params.flag(b"only_group")
        if self.only_group and self.to is not None:
            raise BadRequest(400, "400: Bad Format, only_group and to exclude each other")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        ticket = RedriveReply(self.dialect, self.params, peer, id)
        broker, grant = self.dialect.broker, peer.grant
        found = self.find()
        if isinstance(found, BrokerError):
            ticket.settle(found)
            return
        topic, group = found
        if self.partition is not None and self.partition >= len(topic.partitions):
            ticket.settle(partition_unknown(self.partition))
            return
        remote = self.to is not None and broker.elsewhere.has(self.to)
        if self.to is not None and broker.topic(self.to) is None and not remote:
            ticket.settle(topic_unknown(self.to))
            return

        def target(name: str) -> Topic | RemoteTopic | None:
            wanted = broker.topic(self.to or name) or broker.elsewhere.find(self.to or name)
            if wanted is None or wanted is topic:
                return None
            granted = grant is None or (grant.may("produce") and grant.sees(wanted.name))
            return wanted if granted else None

        partition = None if self.partition is None else topic.partitions[self.partition]
        if self.offsets:
            partition = partition or topic.partitions[0]

        def checked(outcome: Outcome) -> None:
            if isinstance(outcome, BrokerError):
                ticket.settle(outcome)
            else:
                these = self.count_max, partition, self.offsets, self.only_group
                broker.redrive(ticket, group, target, *these)

        if remote and self.to is not None:
            broker.elsewhere.check(self.to, "", checked)
        else:
            checked(DONE)
