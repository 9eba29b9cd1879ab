"""`ack`, `nack` and `extend`: what becomes of deliveries (specification, section 5.4).

Each is about one offset or many (`offset: 3,5-9,12`) of one partition, and is one change of the
group's state however many they are.
"""

from __future__ import annotations

from zbus.core.errors import BrokerError, Refusal
from zbus.core.topic import Group, Partition
from zbus.faces.native.consume import GroupPlan
from zbus.faces.native.context import Context
from zbus.faces.native.params import BadRequest, Params
from zbus.faces.native.replies import NativeReply, SettledReply, partition_unknown
from zbus.faces.peer import Peer

_LOOKS_BITS = 5
"""To look at 32 offsets costs a connection as much of its turn as to change one."""

_RANGES_BITS = 1
"""To read two ranges, and to hold them against what is open, costs as much."""


class Settling(GroupPlan):
    """What the three have in common: offsets of a partition."""

    __slots__ = ("looks", "offsets", "partition", "quiet")

    def __init__(self, face: Context, params: Params) -> None:
        super().__init__(face, params)
        self.quiet = not params.flag(b"ack")
        self.offsets = params.ranges(b"offset")
        if not self.offsets:
            raise BadRequest(400, "400: Bad Format, Missing offset")
        self.partition = params.number(b"partition") or 0
        looks = sum(map(len, self.offsets)) >> _LOOKS_BITS
        self.looks = looks + (len(self.offsets) >> _RANGES_BITS)


class Ack(Settling):
    """Settles deliveries, by whichever connection; an unknown one is settled already. So is all of
    an unknown group or partition, as in the original, unless the request is `strict`."""

    __slots__ = ("strict",)

    def __init__(self, face: Context, params: Params) -> None:
        super().__init__(face, params)
        self.strict = params.flag(b"strict")

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        ticket = NativeReply(self.face, self.params, peer, id, self.quiet)
        found = self.find()
        if isinstance(found, BrokerError):
            if self.strict or found.refusal is Refusal.TOPIC_UNKNOWN:
                ticket.settle(found)
            else:
                ticket.tell(200, body=b"%d" % self.face.broker.now_ms)
        elif self.partition >= len(found[0].partitions):
            if self.strict:
                ticket.settle(partition_unknown(self.partition))
            else:
                ticket.tell(200, body=b"%d" % self.face.broker.now_ms)
        else:
            topic, group = found
            partition = topic.partitions[self.partition]
            count = self.face.broker.ack(ticket, group, partition, self.offsets)
            peer.work -= count + self.looks


class Leased(Settling):
    """About messages that are leased now. Those that are not are passed over; 404 if none is."""

    __slots__ = ()

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        ticket = SettledReply(self.face, self.params, peer, id, self.quiet)
        found = self.find()
        if isinstance(found, BrokerError):
            ticket.settle(found)
            return
        topic, group = found
        if self.partition >= len(topic.partitions):
            ticket.settle(partition_unknown(self.partition))
            return
        ticket.count = self.settle(ticket, group, topic.partitions[self.partition])
        peer.work -= ticket.count + self.looks

    def settle(self, ticket: SettledReply, group: Group, partition: Partition) -> int:
        raise NotImplementedError


class Nack(Leased):
    """Gives deliveries back."""

    __slots__ = ("delay_ms", "front")

    def __init__(self, face: Context, params: Params) -> None:
        super().__init__(face, params)
        self.front = params.flag(b"front")
        self.delay_ms = params.duration(b"delay") or 0

    def settle(self, ticket: SettledReply, group: Group, partition: Partition) -> int:
        broker = self.face.broker
        due_ms = broker.outside.asked_ms() + self.delay_ms if self.delay_ms else 0
        return broker.nack(ticket, group, partition, self.offsets, self.front, due_ms)


class Extend(Leased):
    """Moves the end of leases."""

    __slots__ = ("lease_ms",)

    def __init__(self, face: Context, params: Params) -> None:
        super().__init__(face, params)
        self.lease_ms = params.duration(b"group_lease")

    def settle(self, ticket: SettledReply, group: Group, partition: Partition) -> int:
        broker = self.face.broker
        lease_ms = group.options.lease_ms if self.lease_ms is None else self.lease_ms
        deadline_ms = broker.outside.asked_ms() + lease_ms
        return broker.extend(ticket, group, partition, self.offsets, deadline_ms)
