"""Options of an endpoint: its node, and its limits."""

from __future__ import annotations

from typing import Final

import attrs

from zbus.semq.protocol.words import INTERVAL_MS, read_node

SEQS_MAX: Final = 500
"""Numbers that are asked for, or confirmed, in one frame."""


def _node(instance: object, attribute: object, value: str) -> None:
    read_node(value)


@attrs.frozen(kw_only=True)
class EndpointOptions:
    """`node` is `<type>:<id>`; `stores` is into how many its messages are divided,
    by destination; `listen` is where other endpoints reach it, host:port each, and `fingerprint`
    that of its certificate there."""

    node: str = attrs.field(validator=_node)
    semq_id: int = 1
    stores: int = 1
    listen: tuple[str, ...] = ()
    fingerprint: str = ""
    direct: bool = True  # call others, if they can be reached
    interval_ms: int = INTERVAL_MS  # until it asks; the platform's, if that says one
    window: int = 100  # messages on one link that are not answered yet
    deliveries: int = 100  # messages that the platform sends before they are confirmed
    outbox_bytes_max: int = 1 << 30
    body_bytes_max: int = 16 << 20  # of what others send directly
    attempts_max: int = 0  # after this many a message is dead; 0: never
    alarm_ms: int = 3_600_000  # a message without progress for this long is reported
