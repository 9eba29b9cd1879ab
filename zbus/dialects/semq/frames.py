"""Frames as bytes: what stands in one, and what of it travels on.

A frame is one HTTP message. What a node sends is a request; all that it is sent is a response, and
one that has a `cmd` answers nothing. Over a WebSocket a message holds one frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zbus.semq.protocol.fields import OF_THE_HOP
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.http import Request
from zbus.wire.replies import encode_reply
from zbus.wire.websocket import BINARY, INVALID_DATA, encode_frame

PLATFORM_LINE: Final = b"src: 0:1\r\n"

_OF_BROWSERS: Final = "sec-"


def lines_of(fields: Mapping[str, str]) -> bytes:
    """Header lines."""
    return "".join([f"{name}: {value}\r\n" for name, value in fields.items()]).encode()


def passed_on(fields: Mapping[str, str]) -> bytes:
    """Header lines of all that was said of a message, or of a confirmation, by its sender."""
    return lines_of(
        {
            name: value
            for name, value in fields.items()
            if name not in OF_THE_HOP and not name.startswith(_OF_BROWSERS)
        }
    )


def encode_push(command: str, lines: bytes, body: bytes = b"") -> bytes:
    """What a node has not asked for."""
    return encode_reply(200, b"cmd: %b\r\n%b" % (command.encode(), lines), body)


class Frames:
    """The codec of one WebSocket."""

    __slots__ = ("_heads",)

    def __init__(self, heads: Heads) -> None:
        self._heads = heads

    def read(self, kind: int, message: bytes) -> Request:
        end = message.find(b"\r\n\r\n")
        if end < 0:
            raise WireError(INVALID_DATA, "a message is one frame: an HTTP head, and a body")
        try:
            head, id_ = self._heads.read(message[:end])
        except WireError as error:
            raise WireError(INVALID_DATA, error.text) from None
        body = message[end + 4 :]
        if head.chunked or len(body) != head.content_length:
            text = f"the content-length is {head.content_length}, the body has {len(body)} bytes"
            raise WireError(INVALID_DATA, text)
        return head, id_, body

    def encode(self, message: bytes) -> bytes:
        return encode_frame(BINARY, message)
