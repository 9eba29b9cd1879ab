"""Tickets of pulls: how deliveries read on the wire (specification, section 5.2)."""

from __future__ import annotations

import sys
from typing import Protocol

from zbus.core.api import (
    Broker,
    Chunk,
    Delivered,
    Empty,
    EmptyReason,
    Group,
    Outcome,
    Peeked,
    Pull,
    PullOptions,
    Slice,
    Topic,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import REPLY, NativeAnswering, encode_plain
from zbus.dialects.zbus.request import batch_formats as containers
from zbus.dialects.zbus.request.header_lines import OF_BROKER_BYTES, omit
from zbus.dialects.zbus.request.params import Params
from zbus.edge.connection import LARGE_BYTES, Connection

_FORGOTTEN = (EmptyReason.REPLACED, EmptyReason.LEFT)
"""Pulls of the zbus protocol that end like this are never answered by the original either."""

_PLAIN = REPLY + b"offset: %d\r\norigin_id: %b\r\ntimestamp: %d\r\n%b%b\r\n%b"


def head_bytes_max(dialect: Context, params: Params) -> int:
    """Of a delivery: a proxy takes no more. In a frame there is no such bound."""
    if params.head.contained:
        return sys.maxsize
    return dialect.settings.message_headers_bytes_max + OF_BROKER_BYTES


_ID_BYTES, _NUMBER_BYTES = 39, 10
PLACE_BYTES_MAX = 500
"""Of the lines in `_PLAIN` that say where a message is and which group it is for."""


def lines_bytes_max(dialect: Context, params: Params) -> int:
    """Of the lines of a plain delivery, beside those that frame it and name it."""
    frame = encode_plain(params, b"", b"", b"")
    return head_bytes_max(dialect, params) - len(frame) - _ID_BYTES - _NUMBER_BYTES


def encode_taken(plan: PullPlan, id: bytes, group: Group, chunk: Chunk, at: int) -> bytes:
    """The same for one message of a topic with one partition, delivered for the first time."""
    params, body, stored = plan.params, chunk.bodies[at], chunk.headers[at]
    headers = params.form.known.get(stored)
    if headers is None:
        headers = params.form(stored)
    if not chunk.plain or len(headers) > plan.plain_bytes_max:
        lines = containers.message_lines(group.topic, group, 0, chunk, at, 0, params.form)
        lines = omit(lines, len(lines) - plan.lines_bytes_max)
        return encode_plain(params, id, lines, body)
    offset = chunk.first + at  # what `message_lines` does, nearly always, without a call
    return _PLAIN % (
        len(body),
        params.topic_line,
        id,
        offset,
        chunk.ids[at] or b"0-%d" % offset,
        chunk.time_ms if chunk.times is None else chunk.times[at],
        headers,
        containers.group_line(group.name),
        body,
    )


class PullPlan(Protocol):
    """The plan of a consume, as its tickets know it."""

    dialect: Context
    broker: Broker
    params: Params
    wants: PullOptions
    container: bytes  # media type of a reply with many messages; empty = it has one
    timeout_ms: int | None
    lines_bytes_max: int  # of a plain delivery
    plain_bytes_max: int  # of the header lines in one that has nothing else


class PullReply(NativeAnswering, Pull):
    """Of a consume: one message, a container of many, or why there is none."""

    __slots__ = ("data", "dialect", "id", "ordered", "params", "peer", "plan", "quiet")

    def __init__(self, plan: PullPlan, peer: Connection, id: bytes) -> None:
        # In full, as above.
        params = plan.params
        self.open = True
        self.session = self.key = self.peer = peer
        self.wants = wants = plan.wants
        self.credit = wants.credit
        self.handed = None
        self.postponed = self.skipped = self.quiet = False
        given = id or params.id
        self.id = given or plan.broker.new_id()
        self.data = None
        self.plan = plan
        self.dialect = plan.dialect
        self.params = params
        peer.open_tickets += 1
        peer.open_waits += 1
        if params.multiplexed:
            self.ordered = False
            peer.multiplexed = True
        elif given:
            self.ordered = False
        else:
            self.ordered = True
            peer.take_turn(self)

    def answer(self, outcome: Outcome) -> None:
        if not self.open:
            self.peer.open_waits -= 1
        if type(outcome) is Delivered:
            self._deliver(outcome.group.topic, outcome.group, outcome.pieces, outcome.skipped)
        elif isinstance(outcome, Peeked):
            self._deliver(outcome.topic, outcome.group, outcome.pieces)
        elif isinstance(outcome, Empty):
            waits = self.plan.timeout_ms is None  # has no timeout of its own
            if outcome.reason in _FORGOTTEN and waits and self.params.multiplexed:
                self.send(b"")
            else:
                self.respond(204, b"empty: %b\r\n" % outcome.reason.value.encode())
        else:
            super().answer(outcome)

    def drop(self) -> None:
        super().drop()
        self.peer.open_waits -= 1
        self.peer.open_tickets -= 1

    def _deliver(
        self, topic: Topic, group: Group | None, pieces: list[Slice], skipped: int = 0
    ) -> None:
        params, container = self.params, self.plan.container
        if container:
            body = containers.encode_pieces(container, topic, group, pieces)
            count = sum([piece.stop - piece.start for piece in pieces])
            self.peer.work -= count >> 1  # half a microsecond each
            lines = b"content-type: %b\r\ncount: %d\r\n" % (container, count)
        else:
            index, chunk, at, _, attempts = pieces[0]
            body = chunk.bodies[at]
            form = params.form
            lines = containers.message_lines(topic, group, index, chunk, at, attempts, form)
        if skipped:
            lines += b"skipped: %d\r\n" % skipped
        if params.plain:
            if (over_bytes := len(lines) - self.plan.lines_bytes_max) > 0:
                lines = omit(lines, over_bytes)
            if len(body) > LARGE_BYTES and not self.open:
                head = encode_plain(params, self.id, lines, b"", len(body))
                self.send_large(head, body)
                return
            data = encode_plain(params, self.id, lines, body)
        else:
            data = self._reply(lines, body)
        if self.open:
            self.peer.write(data)  # one of several for this pull's credit
        else:
            self.send(data)

    def _reply(self, lines: bytes, body: bytes) -> bytes:
        """A delivery in any other form than the usual: to a browser, or in a JSON frame."""
        params = self.params
        data = params.reply(200, self.id, lines, body)
        if params.head.contained:
            return data
        head_bytes = data.index(b"\r\n\r\n") + len(b"\r\n\r\n")
        over_bytes = head_bytes - head_bytes_max(self.dialect, params)
        if over_bytes <= 0:
            return data
        shorter = omit(lines, over_bytes)
        if len(lines) - len(shorter) >= over_bytes:
            return params.reply(200, self.id, shorter, body)
        return params.compose(200, b"id: %b\r\n%b" % (self.id, shorter), body)


class PeekReply(PullReply):
    """Of a consume at an offset: the message may have to be read from storage, and until then it
    counts as held, so that a peer cannot ask for any number at once."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        self.peer.held_bytes -= PEEK_BYTES
        super().answer(outcome)


PEEK_BYTES = 64 << 10
