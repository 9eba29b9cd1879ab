"""Frames as bytes, and bytes as frames.

    of the connecting side                  of the node that was connected to

    POST /semq HTTP/1.1                     HTTP/1.1 200 OK
    content-length: 5                       content-length: 0
    cmd: semq_send                          connection: Keep-Alive
    id: 7                                   id: 7
    ...                                     ack_flag: 1

A response that has a `cmd` is no answer: it is what the other side sends on its own. What a message
is framed by is left out of its fields, here and when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from zbus.semq.endpoint.events import Frame
from zbus.semq.protocol.fields import FRAMING
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import WireLimits
from zbus.wire.replies import encode_reply
from zbus.wire.responses import ANSWER_LIMITS, ResponseReader

BODY_BYTES_MAX: Final = 16 << 20
"""As a broker has it, if nothing else was said."""

PLATFORM_BODY_BYTES_MAX: Final = 1 << 30
"""More than a broker can be told to take: what it sends is not refused, or it would come again."""

_NAMES = re.compile(r"[a-z0-9_.\-]*\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REQUEST: Final = b"POST /semq HTTP/1.1\r\ncontent-length: %d\r\n%b\r\n%b"


def limits(body_bytes_max: int = BODY_BYTES_MAX) -> WireLimits:
    """How large a frame may be, whichever side sends it. Heads may be larger than a broker takes
    them: a batch of confirmations is one line."""
    bounds = ANSWER_LIMITS._replace(body_bytes_max=body_bytes_max)
    return WireLimits(**bounds._asdict())


def encode_lines(fields: Mapping[str, str]) -> bytes:
    """Header lines. Raises ValueError for what cannot stand in one."""
    if _NAMES.match("".join(fields)) is None or "" in fields:
        raise ValueError("names of fields are lower-case letters, digits, - and _")
    if _CONTROL.search("".join(fields.values())):
        raise ValueError("fields have no control characters")
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if name not in FRAMING]
    return "".join(lines).encode()


def encode_request(frame: Frame) -> bytes:
    """As the connecting side sends it. It answers nothing, so an answer is empty. Raises
    ValueError, as `encode_lines`."""
    if frame.status and not frame.command:
        return b""
    return _REQUEST % (len(frame.body), encode_lines(frame.fields), frame.body)


def encode_response(frame: Frame) -> bytes:
    """As the node that was connected to says it. Raises ValueError, as `encode_lines`."""
    return encode_reply(frame.status or 200, encode_lines(frame.fields), frame.body)


class RequestFrames:
    """Reads the frames of the connecting side, whichever way the bytes were split. `error` is set
    when the stream broke: nothing after it can be understood."""

    def __init__(self, heads: Heads, limits: WireLimits) -> None:
        """`heads` may be shared by all connections that have these limits."""
        self._reader = HttpReader(heads, limits)
        self.error: WireError | None = None

    @property
    def between(self) -> bool:
        """Nothing is half there: a connection that ends now ends cleanly."""
        return self._reader.waiting_for() == "nothing" and self.error is None

    def receive(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        reader = self._reader
        while self.error is None:
            for head, id_, body in reader.receive(data):
                fields = _fields(head.fields)
                if id_:
                    fields["id"] = _text(id_)
                frames.append(Frame(fields, body))
            self.error = reader.error
            if not reader.more:
                break
            data = b""
        return frames


class ResponseFrames:
    """Likewise, those of the node that was connected to."""

    def __init__(self, limits: WireLimits) -> None:
        self._reader = ResponseReader(limits)
        self.error: WireError | None = None

    @property
    def between(self) -> bool:
        return self._reader.between and self.error is None

    def receive(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if self.error is None:
            for status, fields, body in self._reader.receive(data):
                frames.append(Frame(_fields(fields), body, status))
            self.error = self._reader.error
        return frames


FrameReader = RequestFrames | ResponseFrames


def _fields(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    fields = {_text(name): _text(value) for name, value in raw.items()}
    if not FRAMING.isdisjoint(fields):
        for name in FRAMING.intersection(fields):
            del fields[name]
    return fields


def _text(raw: bytes) -> str:
    """Bytes that are not UTF-8 are replaced: one wrong field is no reason to end the link, over
    which it would come again."""
    return raw.decode("utf-8", "replace")
