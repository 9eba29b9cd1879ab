"""Tickets of the zbus dialect: how each outcome reads on the wire (specification, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zbus.core.errors import BrokerError, Refusal
from zbus.core.outcomes import (
    Declared,
    Done,
    Outcome,
    Raw,
    Routed,
)
from zbus.core.ticket import Ticket
from zbus.faces.guard import CALLED_TYPES
from zbus.faces.native import containers
from zbus.faces.native.info import encode_document, group_info, topic_info
from zbus.faces.native.params import Params
from zbus.faces.peer import Answering, Peer

if TYPE_CHECKING:
    from zbus.faces.native.face import NativeFace

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
    Refusal.FENCED: 503,
    Refusal.DAMAGED: 500,
}

JSON = b"content-type: application/json\r\n"
TEXT = b"content-type: text/plain\r\n"


_LATER = (Refusal.FULL, Refusal.OVERLOADED, Refusal.STOPPING, Refusal.FENCED)
"""What a second later may be granted."""

TEXTS: dict[Refusal, str] = {
    Refusal.TOPIC_UNKNOWN: "404: Topic({}) Not Found",
    Refusal.GROUP_UNKNOWN: "404: ConsumeGroup({}) Not Found",
    Refusal.OFFSET_UNKNOWN: "404: Message Not Found: offset={}",
    Refusal.EXCLUSIVE: "ConsumeGroup({}) exclusive, forbbiden",
}
"""The dialect's own words, the original's spelling included."""


class Status(int):
    """What a service of this dialect said beside its reply."""

    __slots__ = ()


def status_of(routed: Routed) -> int:
    """The status of what was routed, by whichever dialect."""
    said = routed.opaque
    return int(said) if isinstance(said, Status) else 500 if routed.failed else 200


def error_text(error: BrokerError) -> bytes:
    """The body of a refusal."""
    if error.name and error.refusal in TEXTS:
        return TEXTS[error.refusal].format(error.name).encode()
    prefix = "Bad Format, " if error.refusal is Refusal.ILLEGAL else ""
    return f"{STATUS[error.refusal]}: {prefix}{error.text}".encode()


class NativeAnswering(Answering):
    """A ticket of this dialect. `quiet` requests (ack off) get no reply at all."""

    __slots__ = ()

    face: NativeFace
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


class NativeReply(NativeAnswering, Ticket):
    """The same as a ticket that is nothing else. `id` is the request's; if it is empty, one is made
    for the reply."""

    __slots__ = ("data", "face", "id", "ordered", "params", "peer", "quiet")

    implied = False  # where a message goes tells its id, if it was given none

    def __init__(
        self, face: NativeFace, params: Params, peer: Peer, id: bytes, quiet: bool = False
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
            peer.take_turn(self)


class DeclareReply(NativeReply):
    """Of a declare: what it is now, as far as whoever asked may see it."""

    __slots__ = ("grant",)

    def __init__(self, face: NativeFace, params: Params, peer: Peer, id: bytes) -> None:
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


class SettledReply(NativeReply):
    """Of a nack or extend: how many deliveries it was about."""

    __slots__ = ("count",)

    count: int

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self.tell(200, b"count: %d\r\n" % self.count, b"%d" % self.face.broker.now_ms)
        else:
            super().answer(outcome)


class CallReply(NativeReply):
    """Of a call: what the service routed back."""

    __slots__ = ()

    def __init__(self, face: NativeFace, params: Params, peer: Peer, id: bytes) -> None:
        super().__init__(face, params, peer, id)
        peer.open_waits += 1

    def answer(self, outcome: Outcome) -> None:
        self.peer.open_waits -= 1
        if isinstance(outcome, Routed):
            lines = b"id: %b\r\nsender: %b\r\n%b" % (outcome.id, outcome.sender, outcome.headers)
            self.send(self.params.compose(status_of(outcome), lines, outcome.body, CALLED_TYPES))
        else:
            super().answer(outcome)
