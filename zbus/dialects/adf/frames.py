"""Messages of a WebSocket: JSON objects as text, or the binary layout.

A message becomes a head, which all messages of the same action and queue share, and what is its
own: the requestid and the body. So rights and plans are those of a request by HTTP, and looked up
once.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from zbus.dialects.adf import actions
from zbus.dialects.adf.actions import BY_WORD, PUSHES
from zbus.dialects.adf.line import AdfOrder
from zbus.documents import NOT_JSON
from zbus.edge.connection import Connection
from zbus.edge.websocket import planned
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head, make_head
from zbus.wire.http import Request
from zbus.wire.websocket import BINARY, INVALID_DATA, TEXT, encode_frame

_HEADS_MAX: Final = 1_024
_QUEUE_BYTES_MAX: Final = 600
"""Of a head that is remembered."""


class Heads:
    """Heads of messages of one form; one for all WebSockets."""

    def __init__(self, target: bytes) -> None:
        self._start = (b"POST", target, True)
        self._known: dict[tuple[bytes, bytes], Head] = {}

    def get(self, action: bytes, queue: bytes) -> Head:
        """The head of a request that says no more than this."""
        head = self._known.get((action, queue))
        if head is None:
            head = self.make(action, queue)
            if len(queue) <= _QUEUE_BYTES_MAX and len(action) <= _QUEUE_BYTES_MAX:
                if len(self._known) >= _HEADS_MAX:
                    self._forget()
                self._known[action, queue] = head
                head.kept = True
        return head

    def make(self, action: bytes, queue: bytes, **more: bytes) -> Head:
        """One that is not remembered."""
        fields = {name.encode(): value for name, value in more.items()}
        return make_head(self._start, {b"action": action, b"queue": queue, **fields}, False)

    def _forget(self) -> None:
        for head in self._known.values():
            head.kept = False
            head.plan = None
        self._known.clear()


class _Nothing:
    """Plan of what is no request and cannot be answered: it has no requestid."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        pass


NOTHING: Final[Request] = (planned(_Nothing()), b"", b"")


class Frames:
    """The codec of one WebSocket."""

    __slots__ = ("_heads", "line")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self.line = AdfOrder()


class BinaryFrames(Frames):
    """At `/queue/bin`."""

    __slots__ = ()

    def encode(self, message: bytes) -> bytes:
        return encode_frame(BINARY, message)

    def read(self, kind: int, message: bytes) -> Request:
        if kind != BINARY:
            return NOTHING
        size = len(message)
        if size < 5:
            raise _truncated()
        id_end = 3 + (message[1] << 8 | message[2])
        begin = id_end + 2
        if begin > size:
            raise _truncated()
        end = begin + (message[id_end] << 8 | message[id_end + 1])
        if end > size:
            raise _truncated()
        code, id, queue = message[:1], message[3:id_end], message[begin:end]
        if code[0] not in PUSHES:
            return self._heads.get(code, queue), id, b""
        if end + 2 > size or end + 2 + (message[end] << 8 | message[end + 1]) != size:
            head = self._heads.make(code, queue, problem=actions.BODY_LENGTH_INVALID.encode())
            return head, id, b""
        return self._heads.get(code, queue), id, message[end + 2 :]


def _truncated() -> WireError:
    return WireError(INVALID_DATA, "the message ends before its queue does")


class _Object(msgspec.Struct, gc=False):
    """A request as nearly every client sends it."""

    action: str
    requestid: str
    queue: str
    body: str | None = None
    timeout: msgspec.Raw = msgspec.Raw()


_OBJECTS: Final = msgspec.json.Decoder(_Object)


class JsonFrames(Frames):
    """At `/queue/json`."""

    __slots__ = ()

    def encode(self, message: bytes) -> bytes:
        return encode_frame(TEXT, message)

    def read(self, kind: int, message: bytes) -> Request:
        if kind != TEXT:
            return NOTHING
        try:
            found = _OBJECTS.decode(message)
            action, body = found.action.encode(), found.body
            if not found.timeout and (body is not None or BY_WORD.get(action) not in PUSHES):
                head = self._heads.get(action, found.queue.encode())
                return head, found.requestid.encode(), b"" if body is None else body.encode()
        except NOT_JSON:
            pass
        return self._read_with_care(message)

    def _read_with_care(self, message: bytes) -> Request:
        """One that is odd: control characters in its texts, a number for an id, or just wrong."""
        try:
            found = json.loads(
                message.decode(),
                strict=False,
                parse_int=_Number,
                parse_float=_Number,
                parse_constant=_Number,
            )
        except (ValueError, RecursionError):
            return NOTHING
        id = _bytes_of(found.get("requestid"), True) if isinstance(found, dict) else None
        if id is None:
            return NOTHING
        action = _bytes_of(found.get("action")) or b""
        name, body = found.get("queue"), _bytes_of(found.get("body"))
        # Half a character in a name: as bytes that are no text.
        queue = name.encode("utf-8", "surrogatepass") if type(name) is str else b""
        more = {}
        if BY_WORD.get(action) in PUSHES and body is None:
            text = type(found.get("body")) is str
            more["problem"] = (actions.BODY_INVALID if text else actions.BODY_EMPTY).encode()
        if "timeout" in found:
            more["timeout"] = _bytes_of(found["timeout"], True) or b"?"
        return self._heads.make(action, queue, **more), id, body or b""


class _Number(str):
    """As it is written."""

    __slots__ = ()


def _bytes_of(value: Any, number_too: bool = False) -> bytes | None:  # noqa: ANN401  # of JSON
    """A text as bytes; None if it is none, or holds what no text does: half a character."""
    if type(value) is not str and not (number_too and type(value) is _Number):
        return None
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None
