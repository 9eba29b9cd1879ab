"""SEMQ's platform: which frames are its own, and who may what.

POST /semq, cmd: semq_send              frames of a connection, over TCP or a WebSocket at /semq
POST /semq/1:56001/?cmd=semq_send       the same as plain HTTP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import attrs

from zbus.dialects.semq import confirming, greeting, managing, polling, sending
from zbus.dialects.semq.context import Refused, SemqCall, SemqContext, SemqReply
from zbus.dialects.semq.frames import Frames
from zbus.dialects.semq.mailboxes import GROUP, PREFIX
from zbus.edge.access import Needs
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Parts, first_segment
from zbus.edge.guard import Answer, Policy
from zbus.edge.http_reply import HttpDialect, PlainHead
from zbus.edge.places import Apart, AtTopic, Place, Replies
from zbus.edge.websocket import Codec
from zbus.semq.protocol.words import PLATFORM, Fields, Malformed
from zbus.wire.heads.heads import Head, Heads
from zbus.wire.target import is_crowded, split_target

SEGMENT: Final = b"semq"
_COMMAND: Final = b"semq_"
_SENT: Final = ("semq_send", "semq_lookup")
"""At these a path leads to `dst`, at others to `node`."""

_VALUE_BYTES_MAX: Final = 16 << 10


def _mailbox(node: str) -> Needs:
    """The rights of a client that acts as this node."""
    return Needs("consume", f"{PREFIX}{node}", (GROUP,)) if node else Needs()


def _own(fields: Fields) -> Needs:
    """Of whom it is from."""
    return _mailbox(fields.text("src").partition("/")[0])


def _named(fields: Fields) -> Needs:
    """Of the node that is named."""
    return _mailbox(fields.text("node")) if fields.text("node") else _own(fields)


def _to(fields: Fields) -> Needs:
    """Of where it goes, and of whom it is from."""
    target = sending.destination_of({name: fields.text(name) for name in ("dst", "topic")})
    topic = target.user if target.node == PLATFORM else f"{PREFIX}{target.node}"
    return Needs("produce", topic, also=_own(fields))


def _operator(operation: str, fields: Fields) -> Needs:
    node = fields.text("node")
    return Needs(operation, f"{PREFIX}{node}", (GROUP,)) if node else Needs(operation)


@attrs.frozen
class Command:
    """What a `cmd` does, and what a token must be granted for it."""

    run: Callable[[SemqCall], None]
    needs: Callable[[Fields], Needs | None]
    changes: bool = True


def _of_dead(fields: Fields) -> Needs:
    return _operator("empty" if fields.text("lk1") else "query", fields)


_query: Final = partial(_operator, "query")

COMMANDS: Final[dict[str, Command]] = {
    "semq_hello": Command(greeting.hello, _named),
    "semq_bye": Command(greeting.bye, lambda fields: None),
    "heartbeat": Command(greeting.heartbeat, lambda fields: None),
    "semq_send": Command(sending.send, _to),
    "semq_ack": Command(confirming.control, _own),
    "semq_reack": Command(confirming.control, _own),
    "semq_inquiry": Command(confirming.control, _own),
    "semq_inquiry_resp": Command(confirming.control, _own),
    "semq_lookup": Command(greeting.lookup, _to),
    "semq_poll": Command(polling.poll, _named),
    "semq_stat": Command(managing.stat, _query, changes=False),
    "semq_list": Command(managing.rows, _query, changes=False),
    "semq_retry": Command(managing.retry, partial(_operator, "empty")),
    "semq_dead": Command(managing.dead, _of_dead),
}


class SemqDialect(HttpDialect):
    prefixes = frozenset((SEGMENT,))
    policy = Policy(mark=b"cmd")

    def __init__(self, parts: Parts) -> None:
        self.context = SemqContext(parts)
        self.open_codec: Callable[[], Codec] = partial(Frames, Heads(contained=True))

    def claims(self, head: Head) -> bool:
        command = head.fields.get(b"cmd", b"")
        if command.startswith(_COMMAND):
            return True
        return first_segment(head) == SEGMENT and command in (b"", b"heartbeat")

    def read(self, head: Head) -> SemqRequest:
        return SemqRequest(head, self.context, self.open_codec)

    def holds(self) -> dict[str, Callable[[], int]]:
        return {"semqLinks": self.context.links.bytes_used}

    def upkeep(self) -> None:
        self.context.mailboxes.begin()


class SemqRequest(PlainHead):
    """A head of this dialect, and how it is done."""

    def __init__(self, head: Head, context: SemqContext, open_codec: Callable[[], Codec]) -> None:
        super().__init__(head, context.guard)
        self._context = context
        self._open_codec = open_codec
        self._problem = ""
        self._token = b""
        try:
            self._given: Mapping[str, str] = self._read(head)
        except UnicodeDecodeError:
            self._given, self._problem = {}, "fields are UTF-8"
        except Malformed as error:
            self._given, self._problem = {}, str(error)
        self._command = COMMANDS.get(self._given.get("cmd", ""))
        if self._command is None and not self._problem:
            self._problem = f"there is no cmd {self._given.get('cmd', '')[:40]!r}"

    def _read(self, head: Head) -> dict[str, str]:
        """Fields, parameters of the query, and where the path leads: the first that says it."""
        given = {name.decode("ascii"): value.decode() for name, value in head.fields.items()}
        if head.target == b"/semq":
            return given
        if is_crowded(head.target):
            raise Malformed("the query has too many parameters")
        segments, pairs = split_target(head.target)
        for name, value in pairs:
            key = name.decode().lower()
            if key == "token":
                self._token = self._token or value
            elif not key.replace("_", "a").isalnum() or not key.isascii():
                raise Malformed(f"{key[:40]!r} is not a valid field name")
            elif not value.decode().isprintable() or len(value) > _VALUE_BYTES_MAX:
                raise Malformed(f"{key[:40]} has control characters, or is too long")
            else:
                given.setdefault(key, value.decode())
        if segments[:1] == [SEGMENT] and len(segments) > 1:
            target = b"/".join(segments[1:]).decode()
            if not target.isprintable():
                raise Malformed("the path has control characters")
            given.setdefault("dst" if given.get("cmd") in _SENT else "node", target)
        return given

    def url_token(self) -> bytes:
        return self._token

    def changes(self) -> bool:
        return self._command is None or self._command.changes

    def needs(self) -> Needs | None:
        if self._command is None or self._problem:
            return Needs()
        try:
            return self._command.needs(Fields(self._given))
        except Malformed:
            return Needs()  # it is told what is wrong

    def opens(self) -> Callable[[], Codec] | None:
        if self.head.target.partition(b"?")[0] != b"/semq" or "cmd" in self._given:
            return None
        return self._open_codec

    def place(self) -> Place:
        """All mailboxes are together. A message for a topic needs that topic there, too."""
        mailboxes = SEGMENT.decode()
        if self._given.get("cmd") in _SENT:
            with suppress(Malformed):  # it is told what is wrong
                target = sending.destination_of(self._given)
                if target.node == PLATFORM and target.user:
                    return Apart(mailboxes, target.user, mailboxes)
        return AtTopic(mailboxes)

    def replies(self) -> Replies:
        """A node is sent messages, and not all that it says is answered."""
        return Replies.LOOSE if b"cmd" in self.head.fields else Replies.IN_ORDER

    def plan(self) -> Plan:
        return self

    def refuse(self, answer: Answer) -> Plan:
        return _Refuse(self, answer, "refused")

    def forbid(self, why: str, known: bool) -> Plan:
        why = why or ("this token may not do that" if known else "this needs a known token")
        return _Refuse(self, Answer(403, f"403: {why}"), "forbidden")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        context, command = self._context, self._command
        context.mailboxes.begin()
        if command is None or self._problem:
            SemqReply(self, peer, id).refuse(400, "malformed", self._problem)
            return
        try:
            call = SemqCall(context, self, self._given, peer, id, body)
            if call.link is not None:
                call.source()  # whatever it says
                if self._given["cmd"] != "heartbeat":
                    context.asking.heard(call.link.node)
            command.run(call)
        except Malformed as error:
            SemqReply(self, peer, id).refuse(400, "malformed", str(error))
        except Refused as error:
            SemqReply(self, peer, id).refuse(error.status, error.reason, str(error))


class _Refuse:
    """Plan of what the edge refuses."""

    def __init__(self, asked: PlainHead, answer: Answer, reason: str) -> None:
        self._asked = asked
        self._answer = answer
        self._reason = reason

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        answer = self._answer
        lines = answer.lines + b"reason: %b\r\n" % self._reason.encode()
        text = answer.text.encode()
        SemqReply(self._asked, peer, id).answer_with(answer.status, lines, text)
