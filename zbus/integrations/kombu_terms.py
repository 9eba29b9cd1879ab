"""What kombu says, in this broker's terms: routing keys, filters, and when a message is due."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from kombu.exceptions import ChannelError

from zbus.protocol.parameters import Put

TEN_YEARS_MS = 10 * 365 * 86_400_000
"""The broker delays no longer."""

Payload = dict[str, Any]
"""A message as kombu has it: body, headers and properties."""


def filter_of(routing_key: str, pattern: bool = False) -> str:
    """The filter that lets such messages in. Raises ChannelError for a key that it cannot say: it
    has `*` and `#` of a pattern alone, and nothing behind `#`."""
    special = ";" if pattern else "*#;"
    words = routing_key.split(".")
    if set(special) & set(routing_key) or "#" in words[:-1]:
        raise ChannelError(
            f"PRECONDITION_FAILED - {routing_key!r} cannot be a binding key here: it may not have"
            f" {special!r}, nor anything behind '#'",
            (50, 20),
            "406",
        )
    return routing_key


def word(routing_key: str) -> str:
    """A routing key as a tag: a message without one passes no filter."""
    return routing_key or "-"


def put_options(message: Payload, now_ms: int) -> Put:
    """When a message is due, when it expires, and its priority; one above 9 is 9. Celery writes
    `eta` for `countdown`, too."""
    where: Put = {}
    headers, properties = message.get("headers") or {}, message["properties"]
    eta = headers.get("eta")
    if isinstance(eta, str):
        due = datetime.fromisoformat(eta)
        due_ms = math.ceil((due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() * 1000)
        if due_ms > now_ms:
            where["deliver_at_ms"] = min(due_ms, now_ms + TEN_YEARS_MS)
    expiration = properties.get("expiration")
    if expiration is not None:
        where["ttl_ms"] = max(1, math.ceil(float(expiration)))
    if priority := properties.get("priority"):
        where["priority"] = min(max(0, int(priority)), 9)
    return where
