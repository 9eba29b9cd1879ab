"""`delete`, `cancel`, `fire` and `reschedule`: single messages of a group, or of all groups.

A message is named by its offset, or by its id in a topic that remembers ids. A request without a
group needs the right to consume from all: its effect could be had by consuming from each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from zbus.core.api import (
    DELAY_MS_MAX,
    BrokerError,
    Group,
    Outcome,
    Partition,
    Ranges,
    Refusal,
    Ticket,
    Topic,
    find_id,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.pull_tickets import PEEK_BYTES
from zbus.dialects.zbus.replies import CountReply, partition_unknown
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.request.stored import check_id
from zbus.dialects.zbus.topics.manage import find
from zbus.edge.connection import Connection
from zbus.wire.target import encode_header_value


class Named:
    """Which messages a request is about."""

    __slots__ = ("_id", "_partition", "_ranges")

    def __init__(self, params: Params, ranges: list[range]) -> None:
        self._ranges = ranges
        self._partition = params.number(b"partition") or 0
        id = encode_header_value(params.fields.get(b"msgid", b""))
        # A request has an id of its own. One in a URL, without an offset, is the message's.
        self._id = id or (b"" if ranges else params.id)
        if ranges and id:
            raise BadRequest(400, "400: Bad Format, offset and msgid name a message: give one")
        if not (ranges or self._id):
            raise BadRequest(400, "400: Bad Format, Missing offset")
        check_id(self._id)

    def find(self, topic: Topic, now_ms: int) -> tuple[Partition, Ranges] | BrokerError:
        """Where they are."""
        if self._id:
            found = find_id(topic, self._id, now_ms)
            if isinstance(found, BrokerError):
                return found
            partition, offset = found
            return partition, [range(offset, offset + 1)]
        if self._partition >= len(topic.partitions):
            return partition_unknown(self._partition)
        return topic.partitions[self._partition], self._ranges


class ChangedReply(CountReply):
    """Of an order about single messages. Some are read for it: until then they count as held."""

    __slots__ = ()

    def __init__(
        self, dialect: Context, params: Params, peer: Connection, id: bytes, quiet: bool = False
    ) -> None:
        super().__init__(dialect, params, peer, id, quiet)
        peer.held_bytes += PEEK_BYTES

    def answer(self, outcome: Outcome) -> None:
        self.peer.held_bytes -= PEEK_BYTES
        super().answer(outcome)


Verb: TypeAlias = "Callable[[Ticket, Sequence[Group], Partition, Ranges], None]"


class Order:
    """Plan of any of the four."""

    def __init__(self, dialect: Context, params: Params, verb: Verb) -> None:
        self.dialect = dialect
        self.params = params
        self.named = Named(params, params.ranges(b"offset"))
        self.quiet = not params.flag(b"ack")
        self.verb = verb

    @property
    def command(self) -> str:
        """Which of them."""
        return self.params.cmd.decode()

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        broker = self.dialect.broker
        reply = ChangedReply(self.dialect, self.params, peer, id, self.quiet)
        found = find(broker, self.params)
        if isinstance(found, BrokerError):
            reply.settle(found)
            return
        topic, group = found
        groups = [*topic.groups.values()] if group is None else [group]
        place = self.named.find(topic, broker.now_ms)
        if isinstance(place, BrokerError):
            reply.settle(place)
        else:
            peer.work -= sum(map(len, place[1])) * len(groups)
            self.verb(reply, groups, *place)


def delete(dialect: Context, params: Params) -> Order:
    """In every state."""
    return Order(dialect, params, partial(dialect.broker.delete, forget=params.flag(b"forget")))


def cancel(dialect: Context, params: Params) -> Order:
    """Only what is delayed."""
    return Order(dialect, params, dialect.broker.cancel)


def fire(dialect: Context, params: Params) -> Order:
    """What is delayed is due now."""
    return Order(dialect, params, partial(dialect.broker.reschedule, due_ms=0))


def reschedule(dialect: Context, params: Params) -> Order:
    """Another time; the delay counts from when the broker has the request."""
    delay_ms, deliver_at_ms = params.duration(b"delay"), params.time(b"deliver_at")
    if delay_ms is None and deliver_at_ms is None:
        raise BadRequest(400, "400: Bad Format, reschedule needs delay or deliver_at")

    broker = dialect.broker

    def verb(ticket: Ticket, groups: Sequence[Group], partition: Partition, ranges: Ranges) -> None:
        request_clock, now_ms = broker.request_clock, broker.now_ms
        # A time in a request is by a clock outside.
        due_ms = (deliver_at_ms or 0) + request_clock.ahead_ms()
        if delay_ms is not None:
            due_ms = request_clock.received_ms() + delay_ms if delay_ms else 0
        if due_ms > now_ms + DELAY_MS_MAX and delay_ms is None:
            text = "deliver_at is more than ten years ahead"
            ticket.settle(BrokerError(Refusal.ILLEGAL, text))
        else:
            broker.reschedule(ticket, groups, partition, ranges, due_ms)

    return Order(dialect, params, verb)
