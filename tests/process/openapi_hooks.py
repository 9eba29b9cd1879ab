"""What schemathesis must know of the broker beside its description: containers, and that a consume
waits."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


def hasten(case: Any) -> None:
    """Let no consume wait; times that will be refused stay."""
    if case.query is not None:
        said = case.query.get("timeout")
        number = int(said) if str(said).isdecimal() else 0
        if number or said in (None, "") or isinstance(said, list | dict):
            case.query["timeout"] = min(number, 10)


@schemathesis.hook
def before_call(context: Any, case: Any, _options: Any = None) -> None:
    hasten(case)


@schemathesis.serializer("application/x-ndjson")
def as_line(context: Any, value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


@schemathesis.serializer("application/vnd.zbus.messages")
def as_message(context: Any, value: Any) -> bytes:
    body = msgspec.json.encode(value)
    return b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
