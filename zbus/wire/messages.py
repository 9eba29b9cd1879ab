"""Many messages in one body: the container `application/vnd.zbus.messages`.

HTTP-framed messages stand one after another, with nothing before, between or behind them:

    POST / HTTP/1.1 CRLF            any request line, or a status line
    name: value CRLF                any number; no Host needed
    content-length: 5 CRLF          absent means 0; transfer-encoding is not allowed
    CRLF
    hello                           exactly content-length bytes

A status line is as good as a request line, so what a consumer received can be sent back as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.http import Request

_STEP_WORK = 100
"""After that much work, units of about a microsecond, a step ends."""


def parse_in_steps(body: bytes, heads: Heads, messages_max: int) -> Iterator[list[Request]]:
    """Cut a container into messages, in steps of bounded work; WireError (always 400) names the
    first bad one, from 0."""
    contained = heads.contained
    read = contained.read
    messages: list[Request] = []
    at = before = 0  # messages of earlier steps
    enough = contained.spent + _STEP_WORK
    while at < len(body):
        index = before + len(messages)
        if len(messages) + contained.spent >= enough:
            yield messages
            messages, before = [], index
            enough = contained.spent + _STEP_WORK
        if index == messages_max:
            raise WireError(400, f"the body holds more than {messages_max} messages")
        end = body.find(b"\r\n\r\n", at)
        if end < 0:
            raise WireError(400, f"message {index} has no end of its head, or is trailing garbage")
        try:
            head, id_ = read(body[at:end])
        except WireError as error:
            raise WireError(400, f"message {index}: {error.text}") from None
        if head.chunked:
            raise WireError(400, f"message {index} may not have a transfer-encoding")
        end += 4
        at = end + head.content_length
        if at > len(body):
            raise WireError(400, f"message {index} is cut short")
        messages.append((head, id_, body[end:at]))
    yield messages
