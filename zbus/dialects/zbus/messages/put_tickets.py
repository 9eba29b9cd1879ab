"""Tickets of puts: where messages went, and how durable they are (specification, section 5.1)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from zbus.core.api import (
    DELAY_MS_MAX,
    Broker,
    Duplicate,
    Outcome,
    Partition,
    Row,
    Stored,
    Ticket,
    Topic,
    implied_id,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.produce_with_ack import Settles
from zbus.dialects.zbus.replies import NativeReply
from zbus.dialects.zbus.request.json_frames import quoted, stored_as_json
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.request.put_kinds import PutKind
from zbus.dialects.zbus.request.stored import RequestLines
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.connection import Connection
from zbus.wire.replies import KEEP_ALIVE

_STORED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" + KEEP_ALIVE + b"%b%bid: "


class Rare(NamedTuple):
    """What few messages have."""

    partition: int | None = None  # None = by key, or whichever has its turn
    delay_ms: int | None = None
    deliver_at_ms: int | None = None  # epoch
    ttl_ms: int | None = None
    attempts_max: int = 0
    expected_offset: int | None = None

    @classmethod
    def of(cls, params: Params) -> Rare | None:
        """What a head says of it; None = nothing."""
        found = cls(
            params.number(b"partition"),
            params.duration(b"delay"),
            params.time(b"deliver_at"),
            params.duration(b"ttl"),
            params.number(b"max_attempts") or 0,
            params.number(b"expected_offset"),
        )
        return None if found == NOT_RARE else found

    def place(self, topic: Topic, key: bytes) -> Partition:
        """Where it goes. Raises BadRequest if there is no such partition, or it is not certain."""
        if self.partition is None:
            if self.expected_offset is not None and not key and len(topic.partitions) > 1:
                text = "expected_offset needs a partition or key: this topic has several partitions"
                raise BadRequest(400, f"400: Bad Format, {text}")
            return topic.partition_for(key)
        if self.partition >= len(topic.partitions):
            count = len(topic.partitions)
            raise BadRequest(404, f"404: Partition({self.partition}) Not Found, there are {count}")
        return topic.partitions[self.partition]

    def times(self, broker: Broker) -> tuple[int, int]:
        """When the message is due and when it expires; 0 = at once, never."""
        now_ms = broker.now_ms
        # The sender goes by a clock outside, which may have been set since the broker's was.
        due_ms = self.deliver_at_ms + broker.request_clock.ahead_ms() if self.deliver_at_ms else 0
        if due_ms > now_ms + DELAY_MS_MAX:
            raise BadRequest(400, "400: Bad Format, deliver_at is more than ten years ahead")
        if self.delay_ms is not None:
            due_ms = due_after(broker, self.delay_ms)
        if due_ms <= now_ms:
            due_ms = 0
        return (
            due_ms,
            0 if self.ttl_ms is None else broker.request_clock.received_ms() + self.ttl_ms,
        )


NOT_RARE = Rare()


def due_after(broker: Broker, delay_ms: int) -> int:
    """When a message is due that waits for this long; 0 = at once."""
    due_ms = broker.request_clock.received_ms() + delay_ms if delay_ms else 0
    return due_ms if due_ms > broker.now_ms else 0


class PutPlan(Protocol):
    """`zbus.dialects.zbus.messages.produce.Produce`, as those know it that it uses."""

    dialect: Context
    broker: Broker
    params: Params
    topic_key: str
    id: bytes
    tag: bytes
    key: bytes
    body: bytes
    once: bytes
    idempotent: bool
    rare: Rare | None
    settles: Settles | None
    timeout_ms: int | None
    request_lines: RequestLines
    quiet: bool

    def put_row(self, partition: Partition, peer: Connection, row: Row) -> None: ...

    def put(
        self,
        topic: Topic,
        peer: Connection,
        id: bytes,
        lines: bytes,
        body: bytes,
        tag: bytes,
        key: bytes,
        once: bytes,
        rare: Rare | None,
    ) -> None: ...

    def with_sender(self, peer: Connection, lines: bytes, minimal_headers: bool) -> bytes: ...

    def sender_lines(self, peer: Connection, minimal_headers: bool) -> bytes: ...


class PutReply(NativeReply):
    """Of a produce."""

    __slots__ = ()

    implied = True

    def answer(self, outcome: Outcome) -> None:
        if type(outcome) is Stored:
            lines = b""
        elif type(outcome) is Duplicate:
            lines = b"duplicate: %d\r\n" % outcome.count
        else:
            super().answer(outcome)
            return
        self.id = self.id or implied_id(outcome.partition.index, self.offset)
        body = b"%d" % self.dialect.broker.now_ms
        self.respond(200, self.stored_lines(outcome.partition) + lines, body)

    def stored_lines(self, partition: Partition) -> bytes:
        """Where it went."""
        return partition_lines(self.dialect.settings, partition) + b"offset: %d\r\n" % self.offset


def partition_lines(settings: ZbusSettings, partition: Partition) -> bytes:
    """How durable a put is, and in which of several partitions it is."""
    topic = partition.topic
    lines = b"durability: %b\r\n" % settings.effective_durability(topic.options.durability).encode()
    if len(topic.partitions) > 1:
        lines += b"partition: %d\r\n" % partition.index
    return lines


class BatchReply(PutReply):
    """Of a produce of many messages: the first one's offset, and how many there are."""

    __slots__ = ("count",)

    def __init__(
        self, dialect: Context, params: Params, peer: Connection, id: bytes, quiet: bool
    ) -> None:
        super().__init__(dialect, params, peer, id, quiet)
        self.count = 0

    def stored_lines(self, partition: Partition) -> bytes:
        return super().stored_lines(partition) + b"count: %d\r\n" % self.count


class Puts(Ticket):
    """Puts of one kind that are neighbours in the log, of as many peers: they have one fate, so
    they are one ticket, and what their replies have in common is made once.

    A request without an id is answered in its order. It is in here as long as all such requests of
    its peer are; another one makes each a reply of its own (`part`).
    """

    __slots__ = ("ids", "kind", "parted", "peers", "plan")

    def __init__(self, plan: PutPlan, kind: PutKind, peer: Connection, id: bytes) -> None:
        self.open = True
        self.offset = -1
        self.plan = plan  # of the first
        self.kind = kind
        self.peers: list[Connection] = []
        self.ids: list[bytes] = []  # the requests'; empty = none given
        self.parted: dict[int, PutReply] = {}  # by position, those that left
        self.add(peer, id)

    def add(self, peer: Connection, id: bytes) -> None:
        """A put of this peer goes along."""
        self.peers.append(peer)
        self.ids.append(id)
        peer.open_tickets += 1
        if self.kind.multiplexed:
            peer.multiplexed = True
        elif not id:
            peer.together = self

    def part(self, peer: Connection) -> None:
        """Something else is to be answered to this peer after its puts."""
        peer.together = None
        plan, rows = self.plan, enumerate(zip(self.peers, self.ids, strict=True))
        for at in [at for at, (other, id) in rows if other is peer and not id]:
            peer.open_tickets -= 1  # the reply counts itself
            self.parted[at] = PutReply(plan.dialect, plan.params, peer, b"", plan.quiet)

    def answer(self, outcome: Outcome) -> None:
        kind = self.kind
        if type(outcome) is not Stored or self.parted or kind.silent:
            self._answer_each(outcome)
            return
        partition = outcome.partition
        index, offset = partition.index, self.offset
        now = b"%d" % self.plan.broker.now_ms
        where = partition_lines(self.plan.dialect.settings, partition)
        if kind.json:
            start, where, end = stored_as_json(kind.line, where, now)
        else:
            start = _STORED % (len(now), kind.cover, kind.line)
            where, end = b"\r\n%boffset: " % where, b"\r\n\r\n" + now
        for peer, id in zip(self.peers, self.ids, strict=True):
            id = id or b"%d-%d" % (index, offset)
            if kind.json:
                id = quoted(id)
            data = b"%b%b%b%d%b" % (start, id, where, offset, end)
            offset += 1
            peer.open_tickets -= 1
            if peer.together is self:
                peer.together = None
            try:
                if peer.out or peer.framing is not None:
                    peer.write(data)
                    continue
                # The first of this turn, and mostly the only one: as in `write`, without a call.
                peer._ready(peer)
                peer.out.append(data)
                peer.out_bytes += len(data)
            except Exception as error:  # one who cannot be told must not keep others from it
                peer.quarantine(error)

    def failed(self, error: Exception) -> None:
        for peer in self.peers:
            peer.quarantine(error)

    def _answer_each(self, outcome: Outcome) -> None:
        """Each by a reply of its own."""
        plan = self.plan
        for at, (peer, id) in enumerate(zip(self.peers, self.ids, strict=True)):
            reply = self.parted.get(at)
            try:
                if reply is None:
                    if peer.together is self:
                        peer.together = None
                    peer.open_tickets -= 1
                    reply = PutReply(plan.dialect, plan.params, peer, id, plan.quiet)
                reply.offset = self.offset + at
                reply.settle(outcome)
            except Exception as error:
                peer.quarantine(error)
