"""What can be asked about topics and groups. See `zbus.client.commands`, which has these, too."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack

from zbus.client.requests import (
    Document,
    Request,
    of_group,
    optional,
    parse_document,
    parse_nothing,
)
from zbus.client.starts import Start, encode_start

Nothing = Literal["none"]
"""Takes back what was declared."""

Level = Literal["memory", "os", "disk"]
"""How durable a topic is."""


class Retries(TypedDict, total=False):
    """What becomes of a message of a group that is not acknowledged, and how fast the group is
    served. `"none"` takes back what was declared."""

    max_attempts: int | Nothing  # handed out so often, it is dead
    backoff_ms: int | tuple[int, int] | Nothing  # the first pause, or it and the longest
    dead_letter: str  # the topic for what is dead; "" = it is dropped
    on_loss: Literal["keep", "front"]  # a lost consumer's leases: they stay, or are given back
    rate: int | Nothing  # messages a second
    one_batch: bool  # what was handed out of a partition has to be settled before there is more


def declare(
    topic: str,
    group: str | None = None,
    *,
    ack: bool | None = None,
    exclusive: bool | None = None,
    temporary: bool | None = None,
    paused: bool | None = None,
    lease_ms: int | None = None,
    window: int | None = None,
    filter: str | None = None,
    order: Literal["none", "key"] | None = None,
    start: Start | None = None,
    start_copy: str | None = None,
    partitions: int | None = None,
    durability: Level | None = None,
    rpc: bool | None = None,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    retention_count: int | None = None,
    dedupe_ms: int | None = None,
    settled_ms: int | None = None,
    timeout_s: float | None = None,
    **retries: Unpack[Retries],
) -> Request[Document]:
    """Create a topic and a group, or change them; what is there already stays as it is.

    Without `group` the group named like the topic is meant. Of the group: `ack` leases each
    message for `lease_ms` milliseconds until it is acknowledged, at most `window` (1 to 999) at
    once; `filter` chooses by tag (`eu.*`); with `order` "key" messages of one key go to one
    consumer at a time; `exclusive` lets in one consumer at a time;
    `temporary` removes it with its last consumer; `paused` holds deliveries back. A new group
    begins at `start` (`"earliest"`, `"latest"`, an offset, a time), or where the group `start_copy`
    stands; one that exists stays where it is, and `seek` moves it. Of the topic: `partitions` and
    `durability`, fixed at creation; `rpc` for calls, in memory if no `durability` is given;
    `retention_*`, `dedupe_ms` and `settled_ms` (0: none). `retries` are those of `Retries`.

    Returns the group's document, or without `group` the topic's.
    """
    lines = of_group(b"declare", topic, group) + optional(
        rpc=rpc,
        partitions=partitions,
        durability=durability,
        group_ack=ack,
        exclusive=exclusive,
        temporary=temporary,
        paused=paused,
        group_lease=lease_ms,
        group_window=window,
        group_filter=filter,
        group_order=order,
        **_from(start),
        group_start_copy=start_copy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        retention_count=retention_count,
        dedupe_ms=dedupe_ms,
        settled_ms=settled_ms,
    )
    return Request(lines + _retries(retries), parse_document, timeout_s=timeout_s)


def _from(start: Start | None) -> dict[str, str]:
    return {} if start is None else {"from": encode_start(start)}


def seek(
    topic: str,
    group: str | None,
    start: Start,
    *,
    partition: int | None = None,
    timeout_s: float | None = None,
) -> Request[Document]:
    """Move a group: it forgets its leases and reads on at `start` (`"earliest"`, `"latest"`, an
    offset, offsets of all partitions, a time), in one `partition` or in all. Returns its document.
    Raises NotFound for a group that is not there, BadRequest for an offset past the end."""
    lines = of_group(b"seek", topic, group) + optional(**_from(start), partition=partition)
    return Request(lines, parse_document, timeout_s=timeout_s)


def _retries(words: Retries) -> bytes:
    backoff = words.get("backoff_ms")
    return optional(
        group_max_attempts=words.get("max_attempts"),
        group_backoff=",".join(map(str, backoff)) if isinstance(backoff, tuple) else backoff,
        group_dead_letter=words.get("dead_letter"),
        group_on_loss=words.get("on_loss"),
        group_rate=words.get("rate"),
        group_one_batch=words.get("one_batch"),
    )


def query(
    topic: str | None = None, group: str | None = None, *, timeout_s: float | None = None
) -> Request[Document]:
    """The document of a group, of a topic, or of the whole server. Changes nothing."""
    if topic is None:
        lines = b"GET / HTTP/1.1\r\ncmd: query\r\n"
    else:
        lines = of_group(b"query", topic, group)
    return Request(lines, parse_document, timeout_s=timeout_s)


def remove(
    topic: str, group: str | None = None, *, timeout_s: float | None = None
) -> Request[None]:
    """Delete a group, or a topic with its groups and messages. Raises NotFound."""
    lines = of_group(b"remove", topic, group)
    return Request(lines, parse_nothing, removes=True, timeout_s=timeout_s)


def empty(topic: str, group: str | None = None, *, timeout_s: float | None = None) -> Request[None]:
    """Forget what a group has still to do; without a group, all groups and the messages."""
    return Request(of_group(b"empty", topic, group), parse_nothing, timeout_s=timeout_s)


def pause(
    topic: str, group: str | None = None, *, timeout_s: float | None = None
) -> Request[Document]:
    """Hold the deliveries of a group back, until `resume`; returns its document."""
    return Request(of_group(b"pause", topic, group), parse_document, timeout_s=timeout_s)


def resume(
    topic: str, group: str | None = None, *, timeout_s: float | None = None
) -> Request[Document]:
    """Go on with the deliveries of a group; returns its document."""
    return Request(of_group(b"resume", topic, group), parse_document, timeout_s=timeout_s)
