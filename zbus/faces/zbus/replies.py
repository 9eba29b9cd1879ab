"""Tickets of the zbus dialect: how each outcome reads on the wire (specification, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zbus.core.errors import BrokerError, Refusal
from zbus.core.group import Group
from zbus.core.outcomes import (
    Declared,
    Delivered,
    Done,
    Duplicate,
    Empty,
    EmptyReason,
    Outcome,
    Peeked,
    Raw,
    Record,
    Routed,
    Stored,
)
from zbus.core.topic import Topic
from zbus.faces.guard import CALLED_TYPES, SHOWN_TYPES
from zbus.faces.peer import Peer, Reply
from zbus.faces.zbus import containers
from zbus.faces.zbus.info import encode_document, group_info, topic_info
from zbus.faces.zbus.params import Params

if TYPE_CHECKING:
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


class ZbusReply(Reply):
    """A ticket of this dialect. `quiet` requests (ack off) get no reply at all."""

    __slots__ = ("face", "params", "quiet")

    def __init__(
        self, face: ZbusFace, params: Params, peer: Peer, id: bytes, quiet: bool = False
    ) -> None:
        # In full, without calls to the classes above: there is one for every request.
        given = id or params.id
        self.open = True
        self.offset = -1
        self.peer = peer
        self.id = given or face.broker.new_id()
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

    def tell(self, status: int, lines: bytes = b"", body: bytes = b"") -> None:
        """The final answer."""
        self.send(b"" if self.quiet else self.params.reply(status, self.id, lines, body))

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
            containers.tell_raw(self, outcome)
        else:
            raise AssertionError(f"unexpected outcome {outcome!r}")


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


class PutReply(ZbusReply):
    """Of a produce."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if type(outcome) is not Stored:
            self.tell_other(outcome)
        elif self.quiet:
            self.send(b"")
        elif self.params.plain:
            # What all replies of a partition and turn have in common is made once.
            shared = outcome.shared or self._share(outcome)
            params = self.params
            self.send(
                b"%b%d\r\n%bid: %b%b"
                % (shared[0], self.offset, params.topic_line, self.id, shared[1])
            )
        else:
            self.tell(200, self.stored_lines(outcome), b"%d" % self.face.broker.now_ms)

    def tell_other(self, outcome: Outcome) -> None:
        """What is not simply stored."""
        if type(outcome) is Duplicate:
            lines = self.stored_lines(outcome) + b"duplicate: %d\r\n" % outcome.count
            self.tell(200, lines, b"%d" % self.face.broker.now_ms)
        else:
            super().answer(outcome)

    def _share(self, outcome: Stored) -> tuple[bytes, bytes]:
        partition = outcome.partition
        now = b"%d" % self.face.broker.now_ms
        lines = b"durability: %b\r\n" % partition.topic.options.durability.encode()
        if len(partition.topic.partitions) > 1:
            lines += b"partition: %d\r\n" % partition.index
        start = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: Keep-Alive\r\n%boffset: "
        outcome.shared = shared = (start % (len(now), lines), b"\r\n\r\n" + now)
        return shared

    def stored_lines(self, outcome: Stored | Duplicate) -> bytes:
        """The same header lines, made one by one."""
        topic = outcome.partition.topic
        lines = b"durability: %b\r\n" % topic.options.durability.encode()
        if len(topic.partitions) > 1:
            lines += b"partition: %d\r\n" % outcome.partition.index
        return lines + b"offset: %d\r\n" % self.offset


class BatchReply(PutReply):
    """Of a produce of many messages: the first one's offset, and how many there are."""

    __slots__ = ("count",)

    def __init__(self, face: ZbusFace, params: Params, peer: Peer, id: bytes, quiet: bool) -> None:
        super().__init__(face, params, peer, id, quiet)
        self.count = 0

    def answer(self, outcome: Outcome) -> None:
        if type(outcome) is Stored:
            self.tell(200, self.stored_lines(outcome), b"%d" % self.face.broker.now_ms)
        else:
            self.tell_other(outcome)

    def stored_lines(self, outcome: Stored | Duplicate) -> bytes:
        return super().stored_lines(outcome) + b"count: %d\r\n" % self.count


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
            message = outcome.message
            lines = b"id: %b\r\nsender: %b\r\n%b" % (outcome.id, outcome.sender, message.headers)
            self.send(self.params.compose(outcome.status, lines, message.body, CALLED_TYPES))
        else:
            super().answer(outcome)


_FORGOTTEN = (EmptyReason.REPLACED, EmptyReason.LEFT)
"""Pulls of the zbus protocol that end like this are never answered by the original either."""

_DELIVERY = (
    b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: Keep-Alive\r\n%bid: %b\r\n%b\r\n%b"
)


class PullReply(ZbusReply):
    """Of a consume: one message, a container of many, or why there is none. Whoever makes one
    counts it in `peer.open_waits`."""

    __slots__ = ("container", "waits")

    container: bytes  # media type; empty = the message itself
    waits: bool  # has no timeout of its own

    def answer(self, outcome: Outcome) -> None:
        if not self.open:
            self.peer.open_waits -= 1
        if type(outcome) is Delivered:
            self._deliver(outcome.group.topic, outcome.group, outcome.records, outcome.skipped)
        elif isinstance(outcome, Peeked):
            self._deliver(outcome.topic, outcome.group, outcome.records)
        elif isinstance(outcome, Empty):
            if outcome.reason in _FORGOTTEN and self.waits and self.params.headed:
                self.send(b"")
            else:
                self.tell(204, b"empty: %b\r\n" % outcome.reason.value.encode())
        else:
            super().answer(outcome)

    def _deliver(
        self, topic: Topic, group: Group | None, records: list[Record], skipped: int = 0
    ) -> None:
        params = self.params
        if self.container:
            body = containers.encode_records(self.container, topic, group, records)
            lines = b"content-type: %b\r\ncount: %d\r\n" % (self.container, len(records))
        else:
            body = records[0].message.body
            lines = containers.record_lines(topic, group, records[0])
        if skipped:
            lines += b"skipped: %d\r\n" % skipped
        if params.plain:
            data = _DELIVERY % (len(body), params.topic_line, self.id, lines, body)
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
