"""`ack`, `nack` and `extend`: what becomes of deliveries (specification, section 5.4).

Each is about one offset or many (`offset: 3,5-9,12`) of one partition, and is one change of the
group's state however many they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from zbus.core.api import BrokerError, Group, Partition, Ranges, Refusal
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.consume import GroupPlan
from zbus.dialects.zbus.replies import NativeReply, SettledReply, partition_unknown
from zbus.dialects.zbus.request.number_shapes import NumberShape, slots_of_numbers
from zbus.dialects.zbus.request.params import Params
from zbus.edge.connection import Connection
from zbus.edge.shape_plans import Filled
from zbus.wire.heads.shapes import Slots

_LOOKS_BITS = 5
"""To look at 32 offsets costs a connection as much of its turn as to change one."""

_RANGES_BITS = 1
"""To read two ranges, and to hold them against what is open, costs as much."""


class SettlePlan(GroupPlan):
    """What the three have in common: offsets of a partition."""

    __slots__ = ("looks", "offsets", "partition", "quiet")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.quiet = not params.flag(b"ack")
        self.offsets: Ranges = params.ranges(b"offset")
        self.partition = params.number(b"partition") or 0
        looks = sum(map(len, self.offsets)) >> _LOOKS_BITS
        self.looks = looks + (len(self.offsets) >> _RANGES_BITS)

    @property
    def one(self) -> int | None:
        """The offset, if it is one."""
        first = self.offsets[0]
        return first.start if len(self.offsets) == 1 and len(first) == 1 else None


class Ack(SettlePlan):
    """Settles deliveries, by whichever connection; an unknown one is settled already. So is all of
    an unknown group or partition, as in the original, unless the request is `strict`."""

    __slots__ = ("strict",)

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.strict = params.flag(b"strict")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self._settle(peer, id, self.partition, self.offsets, self.looks)

    def slots(self) -> Slots | None:
        if self.one is None:
            return None
        return slots_of_numbers(self.params, (b"partition", b"offset"))

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        numbers = {b"partition": self.partition, b"offset": self.one or 0}
        return NumberShape(self, self.params, self.settle_one, numbers, names, unshaped)

    def settle_one(self, peer: Connection, id: bytes, partition: int, offset: int) -> None:
        """What `run` does, of one offset that stands in place of the plan's."""
        self._settle(peer, id, partition, (range(offset, offset + 1),), 0)

    def _settle(self, peer: Connection, id: bytes, index: int, offsets: Ranges, looks: int) -> None:
        ticket = NativeReply(self.dialect, self.params, peer, id, self.quiet)
        found = self.find()
        if isinstance(found, BrokerError):
            if self.strict or found.refusal is Refusal.TOPIC_UNKNOWN:
                ticket.settle(found)
            else:
                ticket.respond_done()
            return
        topic, group = found
        if index < len(topic.partitions):
            count = self.dialect.broker.ack(ticket, group, topic.partitions[index], offsets)
            peer.work -= count + looks
        elif self.strict:
            ticket.settle(partition_unknown(index))
        else:
            ticket.respond_done()


class Leased(SettlePlan):
    """About messages that are leased now. Those that are not are passed over; 404 if none is."""

    __slots__ = ()

    def begin(
        self, peer: Connection, id: bytes, index: int
    ) -> tuple[SettledReply, Group, Partition] | None:
        """The ticket, and what it is about; None (and answered) without such a one."""
        ticket = SettledReply(self.dialect, self.params, peer, id, self.quiet)
        found = self.find()
        if isinstance(found, BrokerError):
            ticket.settle(found)
            return None
        topic, group = found
        if index >= len(topic.partitions):
            ticket.settle(partition_unknown(index))
            return None
        return ticket, group, topic.partitions[index]


class Nack(Leased):
    """Gives deliveries back."""

    __slots__ = ("delay_ms", "front")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.front = params.flag(b"front")
        self.delay_ms = params.duration(b"delay") or 0

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self._settle(peer, id, self.partition, self.offsets, self.delay_ms, self.looks)

    def slots(self) -> Slots | None:
        if self.one is None:
            return None
        return slots_of_numbers(self.params, (b"partition", b"offset", b"delay"))

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        numbers = {
            b"partition": self.partition,
            b"offset": self.one or 0,
            b"delay": self.delay_ms,
        }
        return NumberShape(self, self.params, self.settle_one, numbers, names, unshaped)

    def settle_one(
        self, peer: Connection, id: bytes, partition: int, offset: int, delay_ms: int
    ) -> None:
        """What `run` does, of one offset and a delay that stand in place of the plan's."""
        self._settle(peer, id, partition, (range(offset, offset + 1),), delay_ms, 0)

    def _settle(
        self, peer: Connection, id: bytes, index: int, offsets: Ranges, delay_ms: int, looks: int
    ) -> None:
        begun = self.begin(peer, id, index)
        if begun is None:
            return
        ticket, group, partition = begun
        broker = self.dialect.broker
        due_ms = broker.request_clock.received_ms() + delay_ms if delay_ms else 0
        ticket.count = broker.nack(ticket, group, partition, offsets, self.front, due_ms)
        peer.work -= ticket.count + looks


class Extend(Leased):
    """Moves the end of leases."""

    __slots__ = ("lease_ms",)

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.lease_ms = params.duration(b"group_lease")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self._settle(peer, id, self.partition, self.offsets, self.lease_ms, self.looks)

    def slots(self) -> Slots | None:
        if self.one is None:
            return None
        return slots_of_numbers(self.params, (b"partition", b"offset"))

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        numbers = {b"partition": self.partition, b"offset": self.one or 0}
        call = partial(self.settle_one, lease_ms=self.lease_ms)
        return NumberShape(self, self.params, call, numbers, names, unshaped)

    def settle_one(
        self, peer: Connection, id: bytes, partition: int, offset: int, lease_ms: int | None
    ) -> None:
        """What `run` does, of one offset and a lease that stand in place of the plan's; None = a
        lease as the group has it."""
        self._settle(peer, id, partition, (range(offset, offset + 1),), lease_ms, 0)

    def _settle(
        self,
        peer: Connection,
        id: bytes,
        index: int,
        offsets: Ranges,
        lease_ms: int | None,
        looks: int,
    ) -> None:
        begun = self.begin(peer, id, index)
        if begun is None:
            return
        ticket, group, partition = begun
        broker = self.dialect.broker
        lease_ms = group.options.lease_ms if lease_ms is None else lease_ms
        deadline_ms = broker.request_clock.received_ms() + lease_ms
        ticket.count = broker.extend(ticket, group, partition, offsets, deadline_ms)
        peer.work -= ticket.count + looks
