"""The Adf dialect: paths, and what is behind them.

/queue/json, /queue/bin                     WebSockets
/queue/<action>, /queue/<action>.json       HTTP, replies as JSON
/queue/<action>.bin                         HTTP, replies in the binary layout
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from zbus.dialects.adf.actions import BY_WORD, PUSHES, Action
from zbus.dialects.adf.context import AdfContext
from zbus.dialects.adf.forms import Binary, Json
from zbus.dialects.adf.frames import BinaryFrames, Heads, JsonFrames
from zbus.dialects.adf.plans import plan_of
from zbus.dialects.adf.request import FrameAsked, HttpAsked
from zbus.edge.connection import Plan
from zbus.edge.dialect import Parts
from zbus.edge.guard import Answer, Guard, Policy
from zbus.edge.http_reply import TEXT, HttpDialect, PlainHead, Tell
from zbus.edge.parsed_request import ParsedRequest
from zbus.edge.websocket import Codec
from zbus.wire.heads.head import Head
from zbus.wire.target import has_empty_segment, split_target

PREFIX: Final = b"queue"

_FORMS: Final[dict[bytes, type[Json | Binary]]] = {b"": Json, b"json": Json, b"bin": Binary}


class AdfDialect(HttpDialect):
    prefixes = frozenset((PREFIX,))
    policy = Policy(any_key=True)

    def __init__(self, parts: Parts) -> None:
        self._context = AdfContext(parts, plan_of)
        json_heads, binary_heads = Heads(b"/queue/json"), Heads(b"/queue/bin")
        self._codecs: dict[bytes, Callable[[], Codec]] = {
            b"json": partial(JsonFrames, json_heads),
            b"bin": partial(BinaryFrames, binary_heads),
        }

    def read(self, head: Head) -> ParsedRequest:
        context = self._context
        if head.contained:
            return FrameAsked(context, head)
        segments, pairs = split_target(head.target)
        exact = len(segments) == 2 and not has_empty_segment(head.target)
        name = segments[1] if exact else b""
        if name in self._codecs:
            return Opening(head, context.guard, self._codecs[name])
        word, dot, suffix = name.partition(b".")
        action, form = BY_WORD.get(word), _FORMS.get(suffix)
        if action is None or form is None or (dot and not suffix) or head.websocket:
            return Elsewhere(head, context.guard, Answer(404, "404: unknown path", TEXT))
        if (refusal := _refusal(head, action)) is not None:
            return Elsewhere(head, context.guard, refusal)
        query: dict[bytes, bytes] = {}
        for key, value in pairs:
            query.setdefault(key.lower(), value)
        return HttpAsked(context, head, action, form, query)

    def holds(self) -> dict[str, Callable[[], int]]:
        return {"adfLeases": self._context.leases.bytes_used}


def _refusal(head: Head, action: Action) -> Answer | None:
    """Why it is no request for this action, by HTTP's own words."""
    if action not in PUSHES:
        if head.method in (b"GET", b"POST"):
            return None
        return Answer(405, "405: GET or POST", TEXT + b"allow: GET, POST\r\n")
    if head.method != b"POST":
        return Answer(405, "405: a push is a POST", TEXT + b"allow: POST\r\n")
    if not (head.content_length or head.chunked):
        return Answer(411, "411: a push needs a body with its content-length", TEXT)
    if head.fields.get(b"content-type", b"").lower().startswith(b"multipart/"):
        return Answer(
            400, "400: multipart bodies are not supported: send the message as the body", TEXT
        )
    return None


class Elsewhere(PlainHead):
    """A head that is answered by itself."""

    def __init__(self, head: Head, guard: Guard, answer: Answer) -> None:
        super().__init__(head, guard)
        self._answer = answer

    def changes(self) -> bool:
        return False

    def needs(self) -> None:
        return None

    def plan(self) -> Plan:
        return Tell(self, self._answer)


class Opening(Elsewhere):
    """The path of a WebSocket."""

    def __init__(self, head: Head, guard: Guard, codec: Callable[[], Codec]) -> None:
        answer = Answer(
            426, "426: this is the path of a WebSocket", TEXT + b"upgrade: websocket\r\n"
        )
        super().__init__(head, guard, answer)
        self._codec = codec

    def changes(self) -> bool:
        return True

    def opens(self) -> Callable[[], Codec]:
        return self._codec
