"""Requests about single messages of groups: what there is, why, and what is to become of them.

This is a part of `zbus.client.commands`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from zbus.client.errors import ProtocolError
from zbus.client.messages import number
from zbus.client.requests import (
    Offsets,
    Request,
    document_of,
    encode_offsets,
    of_group,
    optional,
    parse_count,
)
from zbus.documents import NOT_JSON
from zbus.protocol.documents import State
from zbus.wire.responses import Response

Document = dict[str, Any]
"""A JSON object, as the broker tells it."""

_parse_document = document_of(Document)


class Listed(NamedTuple):
    """A page of a listing."""

    messages: list[Document]  # see ListedMessage in docs/reference/zbus.md
    next: str  # what `after` is for the next page; "" = there is none
    unseen: int  # messages that may be delayed, which the group has not come to


def delete(
    topic: str,
    group: str | None = None,
    offsets: Offsets | None = None,
    *,
    id: str | None = None,
    partition: int = 0,
    forget: bool = False,
    timeout_s: float | None = None,
) -> Request[int]:
    """Finish messages that a group has not finished, whatever their state; returns how many.

    A message is named by its offset, or by its id if the topic remembers ids (`dedupe_ms`). Without
    `group` all groups of the topic are meant. With `forget` it is not even kept what became of
    them, nor of those that are finished. Raises NotFound if there is nothing to finish.
    """
    lines = of_group(b"delete", topic, group) + _named(offsets, id, partition)
    lines += optional(forget=forget or None)
    return Request(lines, parse_count, removes=True, timeout_s=timeout_s)


def cancel(
    topic: str,
    group: str | None = None,
    offsets: Offsets | None = None,
    *,
    id: str | None = None,
    partition: int = 0,
    timeout_s: float | None = None,
) -> Request[int]:
    """The same, only while they are delayed: when this returns they were not delivered and never
    will be. Raises Conflict if they are not delayed, such as one that was just delivered."""
    lines = of_group(b"cancel", topic, group) + _named(offsets, id, partition)
    return Request(lines, parse_count, safe=False, timeout_s=timeout_s)


def fire(
    topic: str,
    group: str | None = None,
    offsets: Offsets | None = None,
    *,
    id: str | None = None,
    partition: int = 0,
    timeout_s: float | None = None,
) -> Request[int]:
    """Messages that are delayed are due now; returns how many. Raises Conflict as `cancel` does."""
    lines = of_group(b"fire", topic, group) + _named(offsets, id, partition)
    return Request(lines, parse_count, safe=False, timeout_s=timeout_s)


def reschedule(
    topic: str,
    group: str | None = None,
    offsets: Offsets | None = None,
    *,
    id: str | None = None,
    partition: int = 0,
    delay_ms: int | None = None,
    deliver_at_ms: int | None = None,
    timeout_s: float | None = None,
) -> Request[int]:
    """Messages that are delayed are due in `delay_ms`, or at `deliver_at_ms` (epoch); returns how
    many. Raises Conflict as `cancel` does."""
    if (delay_ms is None) == (deliver_at_ms is None):
        raise ValueError("give one of delay_ms and deliver_at_ms")
    lines = of_group(b"reschedule", topic, group) + _named(offsets, id, partition)
    lines += optional(delay=delay_ms, deliver_at=deliver_at_ms)
    return Request(lines, parse_count, safe=False, timeout_s=timeout_s)


class Redriven(msgspec.Struct, frozen=True):
    """What became of dead letters."""

    count: int
    """How many were put back."""
    stayed: int
    """How many could not be: they do not say where they come from, or may not go there; or, with
    `only_group`, the message is no more in its topic, or the group has it at the moment."""


def redrive(
    topic: str,
    group: str | None = None,
    *,
    count: int | None = None,
    offsets: Offsets | None = None,
    partition: int | None = None,
    to: str | None = None,
    only_group: bool = False,
    timeout_s: float | None = None,
) -> Request[Redriven]:
    """Put messages of a group of a dead-letter topic back to where they come from, or into the
    topic `to`, each once: the first `count` (1,000), or those at `offsets` of one `partition`.
    With `only_group` each is delivered again to the group in which it died, and to no other.

    Where as many were moved as were asked for there may be more: do it again. Raises NotFound,
    Forbidden, BadRequest for a group that is paused.
    """
    lines = of_group(b"redrive", topic, group) + optional(
        count=count,
        offset=None if offsets is None else encode_offsets(offsets),
        partition=partition,
        to=to,
        only_group=only_group or None,
    )
    return Request(lines, _parse_redriven, safe=False, timeout_s=timeout_s)


def _parse_redriven(response: Response) -> Redriven:
    return Redriven(number(response.fields, b"count"), number(response.fields, b"stayed"))


def peek(
    topic: str,
    group: str | None = None,
    *,
    state: State = "ready",
    key: str | None = None,
    tag: str | None = None,
    count: int = 100,
    after: str = "",
    body: bool = False,
    timeout_s: float | None = None,
) -> Request[Listed]:
    """List what a group has `delayed`, `leased` or `ready`: by due time, by the end of the lease,
    or by offset. `key` and `tag` (a filter) choose; `after` is the `next` of the page before.
    Changes nothing."""
    lines = of_group(b"peek", topic, group) + optional(
        state=state, key=key, tag=tag, count=count, after=after or None, body=body or None
    )
    return Request(lines, _parse_listed, timeout_s=timeout_s)


def why(
    topic: str,
    group: str | None = None,
    offset: int | None = None,
    *,
    id: str | None = None,
    partition: int = 0,
    timeout_s: float | None = None,
) -> Request[Document]:
    """Why a message is not with the consumers of a group: a document whose `text` is a sentence and
    whose `state` is one word. Changes nothing."""
    lines = of_group(b"why", topic, group) + _named(offset, id, partition)
    return Request(lines + b"accept: application/json\r\n", _parse_document, timeout_s=timeout_s)


def _named(offsets: Offsets | None, id: str | None, partition: int) -> bytes:
    if (offsets is None) == (id is None):
        raise ValueError("name messages by their offsets, or one by its id")
    return optional(
        offset=None if offsets is None else encode_offsets(offsets),
        msgid=id,
        partition=partition or None,
    )


def _parse_listed(response: Response) -> Listed:
    try:
        found = msgspec.json.decode(response.body, type=list[Document])
    except NOT_JSON as error:
        raise ProtocolError(f"the broker's answer is not a listing: {error}") from None
    after = response.fields.get(b"next", b"").decode("latin-1")
    return Listed(found, after, number(response.fields, b"unseen"))
