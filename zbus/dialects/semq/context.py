"""What the commands of this dialect are given: the dialect around them, and the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from zbus.core.api import BrokerError, Refusal
from zbus.dialects.semq.dead import DeadRows
from zbus.dialects.semq.delivering import Delivering
from zbus.dialects.semq.frames import PLATFORM_LINE, encode_push, lines_of
from zbus.dialects.semq.inquiries import Inquiries
from zbus.dialects.semq.links import Links
from zbus.dialects.semq.mailboxes import Mailboxes
from zbus.dialects.semq.settings import SemqSettings
from zbus.edge.connection import Connection
from zbus.edge.dialect import Context, Parts
from zbus.edge.http_reply import TEXT, PlainHead, PlainReply, guarded
from zbus.edge.status import STATUS, retry_line
from zbus.option import listed
from zbus.semq.protocol.words import Fields, Malformed, is_platform, read_address

T = TypeVar("T")

UNKNOWN: Final = "unknown"
OFFLINE: Final = "offline"
"""`reason` of a 404: there is no such node, or it is not here now."""

_JSON: Final = b"content-type: application/json\r\n"

_REASONS: Final = {
    Refusal.TOPIC_UNKNOWN: UNKNOWN,
    Refusal.FORBIDDEN: "forbidden",
    Refusal.TOO_LARGE: "too-large",
    Refusal.UNFIT: "unfit",
    Refusal.TOO_MANY: "too-many",
    Refusal.THROTTLED: "throttled",
    Refusal.FULL: "full",
}


class Refused(Exception):
    """A frame is refused, and its sender gets the reason."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class SemqContext(Context[SemqSettings]):
    """One broker, and what the requests of this dialect share around it."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, SemqSettings)
        broker, settings = self.broker, self.settings
        self.body_bytes_max = min(settings.body_bytes_max, broker.limits.message_bytes_max)
        self.mailboxes = Mailboxes(broker, listed(settings.semq_nodes), settings.identity)
        self.links = Links(broker)
        self.asking = Inquiries(broker, self.mailboxes, self.links, settings.semq_interval_ms)
        self.dead = DeadRows(broker, self.mailboxes)
        self.delivering = Delivering(
            broker, self.mailboxes, self.links, self.asking, self.dead, self.body_bytes_max
        )


class SemqReply(PlainReply):
    """Of any request: it repeats its id. One without is answered in its order."""

    __slots__ = ()

    def ok(self, fields: Mapping[str, str]) -> None:
        self.answer_with(200, lines_of(fields))

    def document(self, document: object) -> None:
        self.answer_with(200, _JSON, msgspec.json.encode(document))

    def answer_with(self, status: int, lines: bytes, body: bytes = b"") -> None:
        self.respond(status, b"id: %b\r\n%b" % (self.id, lines) if self.id else lines, body)

    def refuse(self, status: int, reason: str, text: str, lines: bytes = b"") -> None:
        given = b"%breason: %b\r\n%b" % (TEXT, reason.encode(), lines)
        self.answer_with(status, given, f"{status}: {text}".encode())

    def respond_refusal(self, error: BrokerError) -> None:
        reason = _REASONS.get(error.refusal, error.refusal.value.replace(" ", "-"))
        self.refuse(STATUS[error.refusal], reason, error.text, retry_line(error))


class SemqCall:
    """One request while it is done."""

    __slots__ = ("asked", "body", "context", "fields", "given", "id", "link", "peer")

    def __init__(
        self,
        context: SemqContext,
        asked: PlainHead,
        given: Mapping[str, str],
        peer: Connection,
        id: bytes,
        body: bytes,
    ) -> None:
        self.context = context
        self.asked = asked
        self.given = given  # all fields, by name
        self.fields = Fields(given)
        self.peer = peer
        self.id = id
        self.body = body
        self.link = context.links.of(peer)  # of a connection that has said hello

    def reply(self) -> SemqReply:
        return SemqReply(self.asked, self.peer, self.id)

    def source(self) -> str:
        """The sending node: that of its connection, or one it may speak for; not the platform."""
        text = self.fields.text("src")
        if self.link is None:
            if not text:
                raise Malformed("src is missing: this connection has said no hello")
        elif not text:
            return self.link.node
        node = text.partition("/")[0]
        if self.link is not None and node != self.link.node:
            raise Refused(403, "forbidden", f"this connection is of {self.link.node}: not its src")
        self.refuse_platform(node)
        return read_address(text).node

    def refuse_platform(self, node: str) -> None:
        """Refuse a node that claims to be the platform."""
        if is_platform(node):
            text = f"{node} is a platform (type 0), and only the platform speaks for it"
            raise Refused(403, "forbidden", text)

    def notifier(self, command: str = "", node: str = "") -> Telling:
        """What answers with a control message, now or later."""
        return Telling(self, command, node)


class Telling:
    """The answer to a control message is one as well: a connection of a node is pushed it, and over
    plain HTTP it is the reply, which has its turn from now on."""

    __slots__ = ("_call", "_command", "_lines", "_reply")

    def __init__(self, call: SemqCall, command: str, node: str) -> None:
        self._call = call
        self._command = command
        self._lines = PLATFORM_LINE + lines_of({"dst": node})
        self._reply = call.reply() if call.link is None else None

    def notify(self, fields: Mapping[str, str]) -> None:
        links, link = self._call.context.links, self._call.link
        lines = self._lines + lines_of(fields)
        if self._reply is not None:
            self._reply.answer_with(200, b"cmd: %b\r\n%b" % (self._command.encode(), lines))
        elif link is not None and link in links.online(link.node):
            links.push(link, encode_push(self._command, lines))

    def done(self) -> None:
        """No answer, but to a request that waits for a reply of HTTP."""
        if self._reply is not None:
            self._reply.ok({})

    @property
    def twice(self) -> bool:
        """It may be sent in parts."""
        return self._reply is None

    def guarded(self, call: Callable[[T], None]) -> Callable[[T], None]:
        """As that of a reply."""
        return guarded(
            call, self._call.peer.quarantine if self._reply is None else self._reply.failed
        )
