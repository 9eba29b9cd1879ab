"""Tickets of the zbus dialect: how each outcome reads on the wire (specification, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zbus.core.chunk import Chunk, implied_id
from zbus.core.errors import BrokerError, Refusal
from zbus.core.group import Group, Pull
from zbus.core.outcomes import (
    Declared,
    Delivered,
    Done,
    Duplicate,
    Empty,
    EmptyReason,
    Outcome,
    Peeked,
    Piece,
    Raw,
    Routed,
    Stored,
)
from zbus.core.ticket import Ticket
from zbus.core.topic import Partition, Topic
from zbus.faces.guard import CALLED_TYPES, SHOWN_TYPES
from zbus.faces.peer import Answering, Peer
from zbus.faces.zbus import containers
from zbus.faces.zbus.info import encode_document, group_info, topic_info
from zbus.faces.zbus.params import Params

if TYPE_CHECKING:
    from zbus.faces.zbus.consume import Consume
    from zbus.faces.zbus.face import ZbusFace

STATUS: dict[Refusal, int] = {
    Refusal.ILLEGAL: 400,
    Refusal.TOPIC_UNKNOWN: 404,
    Refusal.GROUP_UNKNOWN: 404,
    Refusal.OFFSET_UNKNOWN: 404,
    Refusal.SESSION_UNKNOWN: 404,
    Refusal.FORBIDDEN: 403,
    Refusal.EXCLUSIVE: 401,
    Refusal.CONFLICT: 409,
    Refusal.REUSED: 422,
    Refusal.TOO_MANY: 429,
    Refusal.TOO_LARGE: 413,
    Refusal.FULL: 507,
    Refusal.OVERLOADED: 503,
    Refusal.UNANSWERED: 504,
    Refusal.STOPPING: 503,
    Refusal.DAMAGED: 500,
}

JSON = b"content-type: application/json\r\n"
TEXT = b"content-type: text/plain\r\n"


_LATER = (Refusal.FULL, Refusal.OVERLOADED, Refusal.STOPPING)
"""What a second later may be granted."""

TEXTS: dict[Refusal, str] = {
    Refusal.TOPIC_UNKNOWN: "404: Topic({}) Not Found",
    Refusal.GROUP_UNKNOWN: "404: ConsumeGroup({}) Not Found",
    Refusal.OFFSET_UNKNOWN: "404: Message Not Found: offset={}",
    Refusal.EXCLUSIVE: "ConsumeGroup({}) exclusive, forbbiden",
}
"""The dialect's own words, the original's spelling included."""


def error_text(error: BrokerError) -> bytes:
    """The body of a refusal."""
    if error.name and error.refusal in TEXTS:
        return TEXTS[error.refusal].format(error.name).encode()
    prefix = "Bad Format, " if error.refusal is Refusal.ILLEGAL else ""
    return f"{STATUS[error.refusal]}: {prefix}{error.text}".encode()


class ZbusAnswering(Answering):
    """A ticket of this dialect. `quiet` requests (ack off) get no reply at all."""

    __slots__ = ()

    face: ZbusFace
    params: Params
    quiet: bool

    def tell(self, status: int, lines: bytes = b"", body: bytes = b"") -> None:
        """The final answer."""
        id = self.id or self.face.broker.new_id()
        self.send(b"" if self.quiet else self.params.reply(status, id, lines, body))

    def tell_error(self, error: BrokerError) -> None:
        lines = b"retry-after: 1\r\n" if error.refusal in _LATER else b""
        if error.refusal is Refusal.CONFLICT:
            lines = b"offset: %b\r\n" % error.name.encode()
        self.tell(STATUS[error.refusal], lines, error_text(error))

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self.tell_error(outcome)
        elif isinstance(outcome, Done):
            self.tell(200, body=b"%d" % self.face.broker.now_ms)
        elif isinstance(outcome, Raw):
            lines, body = containers.encode_raw(outcome)
            self.tell(200, lines, body)
        else:
            raise AssertionError(f"unexpected outcome {outcome!r}")


class ZbusReply(ZbusAnswering, Ticket):
    """The same as a ticket that is nothing else. `id` is the request's; if it is empty, one is made
    for the reply."""

    __slots__ = ("data", "face", "id", "ordered", "params", "peer", "quiet")

    implied = False  # where a message goes tells its id, if it was given none

    def __init__(
        self, face: ZbusFace, params: Params, peer: Peer, id: bytes, quiet: bool = False
    ) -> None:
        # In full, without calls to the classes above: there is one for every request.
        self.open = True
        self.offset = -1
        self.peer = peer
        given = id or params.id
        self.id = given if given or self.implied else face.broker.new_id()
        self.data = None
        self.face = face
        self.params = params
        self.quiet = quiet and params.headed  # plain HTTP waits for an answer to everything
        peer.open_tickets += 1
        if params.headed:
            self.ordered = False
            peer.headed = True
        elif given:
            self.ordered = False
        else:
            # Only a request that can be recognised by id may be answered out of turn.
            self.ordered = True
            if peer.turns is None:
                peer.take_turn(self)
            else:
                peer.turns.append(self)


class DeclareReply(ZbusReply):
    """Of a declare: what it is now, as far as whoever asked may see it."""

    __slots__ = ("grant",)

    def __init__(self, face: ZbusFace, params: Params, peer: Peer, id: bytes) -> None:
        super().__init__(face, params, peer, id)
        self.grant = peer.grant

    def answer(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Declared):
            super().answer(outcome)
            return
        document = (
            topic_info(outcome.topic, self.face.settings, self.grant)
            if outcome.group is None or not self.params.group_wished
            else group_info(outcome.group)
        )
        self.tell(200, JSON, encode_document(document))


_STORED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: Keep-Alive\r\n%boffset: "


class PutReply(ZbusReply):
    """Of a produce."""

    __slots__ = ()

    implied = True

    @staticmethod
    def settle_stored(tickets: Sequence[PutReply], stored: Stored) -> None:  # type: ignore[override]
        """What all replies of a partition and turn have in common is made once."""
        partition = stored.partition
        index = partition.index
        now = b"%d" % tickets[0].face.broker.now_ms
        start, end = _STORED % (len(now), partition_lines(partition)), b"\r\n\r\n" + now
        for ticket in tickets:
            assert ticket.open, "a ticket is settled once"
            ticket.open = False
            params = ticket.params
            if ticket.quiet:
                ticket.send(b"")
            elif params.plain:
                offset = ticket.offset
                id = ticket.id or b"%d-%d" % (index, offset)
                ticket.send(b"%b%d\r\n%bid: %b%b" % (start, offset, params.topic_line, id, end))
            else:
                ticket.answer(stored)

    def answer(self, outcome: Outcome) -> None:
        if type(outcome) is Stored:
            lines = b""
        elif type(outcome) is Duplicate:
            lines = b"duplicate: %d\r\n" % outcome.count
        else:
            super().answer(outcome)
            return
        self.id = self.id or implied_id(outcome.partition.index, self.offset)
        body = b"%d" % self.face.broker.now_ms
        self.tell(200, self.stored_lines(outcome.partition) + lines, body)

    def stored_lines(self, partition: Partition) -> bytes:
        """Where it went."""
        return partition_lines(partition) + b"offset: %d\r\n" % self.offset


def partition_lines(partition: Partition) -> bytes:
    """How durable a put is, and in which of several partitions it is."""
    topic = partition.topic
    lines = b"durability: %b\r\n" % topic.options.durability.encode()
    if len(topic.partitions) > 1:
        lines += b"partition: %d\r\n" % partition.index
    return lines


class BatchReply(PutReply):
    """Of a produce of many messages: the first one's offset, and how many there are."""

    __slots__ = ("count",)

    def __init__(self, face: ZbusFace, params: Params, peer: Peer, id: bytes, quiet: bool) -> None:
        super().__init__(face, params, peer, id, quiet)
        self.count = 0

    @staticmethod
    def settle_stored(tickets: Sequence[Ticket], stored: Stored) -> None:
        for ticket in tickets:
            ticket.settle(stored)

    def stored_lines(self, partition: Partition) -> bytes:
        return super().stored_lines(partition) + b"count: %d\r\n" % self.count


class SettledReply(ZbusReply):
    """Of a nack or extend: how many deliveries it was about."""

    __slots__ = ("count",)

    count: int

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self.tell(200, b"count: %d\r\n" % self.count, b"%d" % self.face.broker.now_ms)
        else:
            super().answer(outcome)


class CallReply(ZbusReply):
    """Of a call: what the service routed back."""

    __slots__ = ()

    def __init__(self, face: ZbusFace, params: Params, peer: Peer, id: bytes) -> None:
        super().__init__(face, params, peer, id)
        peer.open_waits += 1

    def answer(self, outcome: Outcome) -> None:
        self.peer.open_waits -= 1
        if isinstance(outcome, Routed):
            lines = b"id: %b\r\nsender: %b\r\n%b" % (outcome.id, outcome.sender, outcome.headers)
            self.send(self.params.compose(outcome.status, lines, outcome.body, CALLED_TYPES))
        else:
            super().answer(outcome)


_FORGOTTEN = (EmptyReason.REPLACED, EmptyReason.LEFT)
"""Pulls of the zbus protocol that end like this are never answered by the original either."""

_DELIVERY = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: Keep-Alive\r\n%bid: %b\r\n"
_DELIVERED = _DELIVERY + b"%b\r\n%b"
_PLAIN = _DELIVERY + b"offset: %d\r\norigin_id: %b\r\ntimestamp: %d\r\n%b%b\r\n%b"


def encode_delivery(params: Params, id: bytes, lines: bytes, body: bytes) -> bytes:
    """What `Params.reply` does, for the usual 200."""
    return _DELIVERED % (len(body), params.topic_line, id, lines, body)


def encode_taken(params: Params, id: bytes, group: Group, chunk: Chunk, at: int) -> bytes:
    """The same for one message of a topic with one partition, handed out for the first time."""
    body = chunk.bodies[at]
    if not chunk.plain:
        lines = containers.message_lines(group.topic, group, 0, chunk, at, 0)
        return encode_delivery(params, id, lines, body)
    offset = chunk.first + at  # what `message_lines` does, nearly always, without a call
    return _PLAIN % (
        len(body),
        params.topic_line,
        id,
        offset,
        chunk.ids[at] or b"0-%d" % offset,
        chunk.time_ms if chunk.times is None else chunk.times[at],
        chunk.headers[at],
        containers.group_line(group.name),
        body,
    )


class PullReply(ZbusAnswering, Pull):
    """Of a consume: one message, a container of many, or why there is none."""

    __slots__ = ("data", "face", "id", "ordered", "params", "peer", "plan", "quiet")

    def __init__(self, plan: Consume, peer: Peer, id: bytes) -> None:
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
        self.face = plan.face
        self.params = params
        peer.open_tickets += 1
        peer.open_waits += 1
        if params.headed:
            self.ordered = False
            peer.headed = True
        elif given:
            self.ordered = False
        else:
            self.ordered = True
            if peer.turns is None:
                peer.take_turn(self)
            else:
                peer.turns.append(self)

    def answer(self, outcome: Outcome) -> None:
        if not self.open:
            self.peer.open_waits -= 1
        if type(outcome) is Delivered:
            self._deliver(outcome.group.topic, outcome.group, outcome.pieces, outcome.skipped)
        elif isinstance(outcome, Peeked):
            self._deliver(outcome.topic, outcome.group, outcome.pieces)
        elif isinstance(outcome, Empty):
            waits = self.plan.timeout_ms is None  # has no timeout of its own
            if outcome.reason in _FORGOTTEN and waits and self.params.headed:
                self.send(b"")
            else:
                self.tell(204, b"empty: %b\r\n" % outcome.reason.value.encode())
        else:
            super().answer(outcome)

    def _deliver(
        self, topic: Topic, group: Group | None, pieces: list[Piece], skipped: int = 0
    ) -> None:
        params, container = self.params, self.plan.container
        if container:
            body = containers.encode_pieces(container, topic, group, pieces)
            count = sum([piece.stop - piece.start for piece in pieces])
            lines = b"content-type: %b\r\ncount: %d\r\n" % (container, count)
        else:
            index, chunk, at, _, attempts = pieces[0]
            body = chunk.bodies[at]
            lines = containers.message_lines(topic, group, index, chunk, at, attempts)
        if skipped:
            lines += b"skipped: %d\r\n" % skipped
        if params.plain:
            data = encode_delivery(params, self.id, lines, body)
        else:
            data = params.reply(200, self.id, lines, body, SHOWN_TYPES)
        if self.open:
            self.peer.write(data)  # one of several for this pull's credit
        else:
            self.send(data)


class PeekReply(PullReply):
    """Of a consume at an offset: the message may have to be read from storage, and until then it
    counts as held, so that a peer cannot ask for any number at once."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        self.peer.held_bytes -= PEEK_BYTES
        super().answer(outcome)


PEEK_BYTES = 64 << 10
