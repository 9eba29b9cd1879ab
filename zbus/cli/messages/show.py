"""How messages look on standard output: bodies as lines, as JSON, as a container, or for people."""

from __future__ import annotations

import base64
import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from zbus.client import Delivery
from zbus.client.messages import FRAMING
from zbus.documents import NOT_JSON
from zbus.protocol.documents import Message

if TYPE_CHECKING:
    from rich.console import Console

OWN = frozenset(
    [
        "id",
        "origin_id",
        "topic",
        "consume_group",
        "tag",
        "key",
        "partition",
        "offset",
        "timestamp",
        "retry",
    ]
)
"""Headers that a message's JSON has as keys of their own."""


def as_document(message: Delivery) -> Message:
    """A message as the broker has it in JSON (docs/reference/zbus.md, Containers)."""
    try:
        text, encoded = message.text, None
    except UnicodeDecodeError:
        text, encoded = None, base64.b64encode(message.body).decode()
    return Message(
        id=message.id,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp_ms,
        consume_group=message.group,
        tag=message.tag,
        key=message.key,
        retry=message.retry,
        headers={name: value for name, value in message.headers.items() if name not in OWN},
        body=text,
        body_base64=encoded,
    )


def as_json(message: Delivery) -> bytes:
    """One line."""
    return msgspec.json.encode(as_document(message)) + b"\n"


def as_line(message: Delivery) -> bytes:
    """The body, and a line end if it has none."""
    return message.body if message.body.endswith(b"\n") else message.body + b"\n"


def as_container(message: Delivery) -> bytes:
    """One message of a body of type `application/vnd.zbus.messages`."""
    lines = b"".join(
        b"%b: %b\r\n" % (name, value)
        for name, value in message.fields.items()
        if name not in FRAMING
    )
    size = len(message.body)
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (lines, size, message.body)


def as_verbose(message: Delivery) -> bytes:
    """Headers as they came, an empty line, the body."""
    lines = [f"{name}: {value}\n" for name, value in message.headers.items()]
    return f"{''.join(lines)}\n".encode() + as_line(message)


FORMS = {"lines": as_line, "json": as_json, "messages": as_container}


def local_time(time_ms: int, now_s: float) -> str:
    """Where the reader is; with the date if it is another day's."""
    at, now = time.localtime(time_ms / 1000), time.localtime(now_s)
    return time.strftime("%H:%M:%S" if at[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", at)


class Reader:
    """Prints messages for people: where and when, then the body; JSON indented and in colour.

    Colours are for a terminal, unless `NO_COLOR` is set."""

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose  # with headers
        self._console: Console | None = None
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            from rich.console import Console

            self._console = Console(highlight=False)

    def show(self, message: Delivery) -> None:
        at = local_time(message.timestamp_ms, time.time())
        labels = [f"{message.partition}/{message.offset}", at, message.tag, message.key]
        head = "  ".join(_printable(label) for label in labels if label)
        body, is_json = self._body(message)
        headers = ""
        if self._verbose:
            lines = (f"{name}: {_printable(value)}\n" for name, value in message.headers.items())
            headers = f"{''.join(lines)}\n"
        if self._console is None:
            sys.stdout.write(f"-- {head}\n{headers}{body}\n")
            sys.stdout.flush()
            return
        from rich.json import JSON
        from rich.text import Text

        self._console.print(Text(f"-- {head}", style="dim cyan"))
        if headers:
            self._console.print(Text(headers, style="dim"), end="")
        self._console.print(JSON(body) if is_json else Text(body))

    def _body(self, message: Delivery) -> tuple[str, bool]:
        if message.body[:1] in (b"{", b"["):
            try:
                msgspec.json.decode(message.body)
                return msgspec.json.format(message.body, indent=2).decode(), True
            except NOT_JSON:
                pass
        return _printable(message.body.decode("utf-8", "backslashreplace"), keep="\n\t"), False


def _printable(text: str, keep: str = "") -> str:
    """Messages come from anybody: what would steer a terminal is shown as an escape."""
    return "".join(
        each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text
    )
