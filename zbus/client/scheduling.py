"""The request for a message that comes again and again: a part of `zbus.client.commands`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zbus.client.messages import Body, as_bytes, number
from zbus.client.requests import Request, message_id, optional, own_lines, start
from zbus.wire.responses import Response


class Scheduled(NamedTuple):
    """A schedule."""

    topic: str
    """Where it is: a delayed message of this topic, which `peek` lists and `cancel` ends."""
    offset: int
    due_ms: int
    """The next time, epoch milliseconds: of what is there."""
    duplicate: bool
    """There is one of this id already, which stays as it was."""


def schedule(
    topic: str,
    id: str,
    cron: str,
    body: Body = b"",
    *,
    zone: str = "UTC",
    tag: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Request[Scheduled]:
    """Put a message again and again, at the times that the `cron` expression names in a time zone
    (`"Europe/Berlin"`); returns when the schedule is durable.

    There is one schedule of an `id`; `cancel(f"cron.{topic}", id=id)` ends it. Raises NotFound,
    BadRequest for an expression or a zone that is none, TooMany.
    """
    lines = start(b"produce", topic) + optional(cron=cron, cron_zone=zone, tag=tag, key=key)
    lines += own_lines(headers) if headers else b""
    return Request(lines, _parse, as_bytes(body), id=message_id(id), timeout_s=timeout_s)


def _parse(response: Response) -> Scheduled:
    fields = response.fields
    return Scheduled(
        fields.get(b"schedule", b"").decode("utf-8", "replace"),
        number(fields, b"offset", -1),
        number(fields, b"due"),
        b"duplicate" in fields,
    )
