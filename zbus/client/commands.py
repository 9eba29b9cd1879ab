"""What can be asked of a broker: each function makes a request, and says what its answer means.

Nothing is sent here. Both clients have all of these as methods of the same names, which send the
request and return its result; so these signatures and texts are the documentation of both.
(`docs/reference/python-client.md`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from zbus.client.messages import Body, Delivery, Message, Stored, StoredBatch, as_bytes
from zbus.client.requests import (
    UNSET,
    Document,
    Request,
    line,
    of_group,
    optional,
    own_lines,
    parse_count,
    parse_deliveries,
    parse_document,
    parse_nothing,
    parse_number,
    parse_result,
    parse_stored,
    parse_stored_batch,
    parse_text,
    start,
)

Level = Literal["memory", "os", "disk"]
"""How durable a topic is."""

CONTAINER = b"application/vnd.zbus.messages"
RPC_MASK = 3  # in memory, and answered by services
ACK_MASK, EXCLUSIVE_MASK, DELETE_ON_EXIT_MASK, PAUSE_MASK = 64, 16, 32, 8


# -- topics and groups ----------------------------------------------------------------------------


def declare(
    topic: str,
    group: str | None = None,
    *,
    ack: bool | None = None,
    lease_ms: int | None = None,
    window: int | None = None,
    filter: str | None = None,
    order: Literal["none", "key"] | None = None,
    exclusive: bool | None = None,
    delete_on_exit: bool | None = None,
    paused: bool | None = None,
    start_offset: int | None = None,
    start_time_ms: int | None = None,
    start_copy: str | None = None,
    partitions: int | None = None,
    durability: Level | None = None,
    rpc: bool = False,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    retention_count: int | None = None,
    dedupe_ms: int | None = None,
    timeout_s: float | None = None,
) -> Request[Document]:
    """Create a topic and a group, or change them; what is there already stays as it is.

    Without `group` the group named like the topic is meant. Of the group: `ack` leases each
    message for `lease_ms` milliseconds until it is acknowledged, at most `window` (1 to 999) at
    once; `filter` chooses by tag (`eu.*`); with `order` "key" messages of one key go to one
    consumer at a time; `exclusive` lets in one consumer at a time; `delete_on_exit` removes it with
    its last consumer; `paused` holds deliveries back; a new group starts at `start_offset` (0: all
    history), at `start_time_ms` (epoch), or where the group `start_copy` stands. Of the topic:
    `partitions` and `durability`, fixed at creation; `rpc` for calls; `retention_*` and
    `dedupe_ms` (0: none).

    Returns the group's document, or without `group` the topic's.
    """
    mask = _mask(ack, exclusive, delete_on_exit, paused)
    lines = of_group(b"declare", topic, group) + optional(
        topic_mask=RPC_MASK if rpc else None,
        partitions=partitions,
        durability=None if rpc else durability,
        group_mask=mask,
        group_ack_timeout=lease_ms,
        group_ack_window=window,
        group_filter=filter,
        group_order=order,
        group_start_offset=start_offset,
        group_start_time=start_time_ms,
        group_start_copy=start_copy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        retention_count=retention_count,
        dedupe_ms=dedupe_ms,
    )
    return Request(lines, parse_document, timeout_s=timeout_s)


def _mask(
    ack: bool | None, exclusive: bool | None, delete_on_exit: bool | None, paused: bool | None
) -> int | None:
    flags = {
        ACK_MASK: ack,
        EXCLUSIVE_MASK: exclusive,
        DELETE_ON_EXIT_MASK: delete_on_exit,
        PAUSE_MASK: paused,
    }
    if all(flag is None for flag in flags.values()):
        return None
    return sum(bit for bit, flag in flags.items() if flag)


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


def ping(*, timeout_s: float | None = None) -> Request[int]:
    """The broker's time, epoch milliseconds."""
    return Request(b"GET / HTTP/1.1\r\ncmd: ping\r\n", parse_number, timeout_s=timeout_s)


def version(*, timeout_s: float | None = None) -> Request[str]:
    """The broker's version."""
    return Request(b"GET / HTTP/1.1\r\ncmd: version\r\n", parse_text, timeout_s=timeout_s)


# -- messages in ----------------------------------------------------------------------------------


def produce(
    topic: str,
    body: Body = b"",
    *,
    json: object = UNSET,
    tag: str | None = None,
    key: str | None = None,
    partition: int | None = None,
    delay_ms: int | None = None,
    deliver_at_ms: int | None = None,
    ttl_ms: int | None = None,
    headers: Mapping[str, str] | None = None,
    id: str | None = None,
    idempotency_key: str | None = None,
    expected_offset: int | None = None,
    timeout_s: float | None = None,
) -> Request[Stored]:
    """Store one message; returns when it is durable, and says where it is.

    `body` is bytes or text; `json` is anything that JSON holds, instead. Messages of one `key` are
    in one partition. `delay_ms` or `deliver_at_ms` (epoch) hold it back, `ttl_ms` lets it expire.

    With `retries` the message gets an idempotency key of its own: however often it had to be sent,
    it is stored once. If you give an `id`, that is left to you, since a topic may remember ids
    (`dedupe_ms`): then a lost answer is a ConnectionLost with `unknown`, and you may send it again.
    """
    lines = start(b"produce", topic)
    if tag is not None or key is not None:
        lines += optional(tag=tag, key=key)
    if headers:
        lines += own_lines(headers)
    if json is not UNSET:
        body = msgspec.json.encode(json)
        if not headers or "content-type" not in {name.lower() for name in headers}:
            lines += b"content-type: application/json\r\n"
    if _any_given((partition, delay_ms, deliver_at_ms, ttl_ms, expected_offset, idempotency_key)):
        lines += optional(
            partition=partition,
            delay=delay_ms,
            deliver_at=deliver_at_ms,
            ttl=ttl_ms,
            expected_offset=expected_offset,
        )
        if idempotency_key is not None:
            lines += line(b"idempotency-key", idempotency_key)
    return Request(
        lines,
        parse_stored,
        body if type(body) is bytes else as_bytes(body),
        safe=idempotency_key is not None,
        keyed=id is None and idempotency_key is None,
        id=b"" if id is None else _id(id),
        timeout_s=timeout_s,
    )


def _any_given(values: tuple[object, ...]) -> bool:
    return values.count(None) != len(values)


def _id(id: str) -> bytes:
    raw = id.encode()
    if not 0 < len(raw) <= 39 or not raw.isascii() or not id.isprintable() or " " in id:
        raise ValueError(f"an id has 1 to 39 visible ASCII characters: {id!r}")
    return raw


def produce_many(
    topic: str,
    messages: Iterable[Body | Message],
    *,
    tag: str | None = None,
    key: str | None = None,
    partition: int | None = None,
    delay_ms: int | None = None,
    deliver_at_ms: int | None = None,
    ttl_ms: int | None = None,
    idempotency_key: str | None = None,
    expected_offset: int | None = None,
    timeout_s: float | None = None,
) -> Request[StoredBatch]:
    """Store many messages in one request, all or none, at consecutive offsets of one partition.

    `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
    different partitions are refused: send a batch for each key. A batch has at most 10,000 messages
    and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`, that is
    left to you.
    """
    if isinstance(messages, bytes | bytearray | memoryview | str):
        raise TypeError("produce_many takes a list of messages; use produce for a single one")
    parts = []
    named = False
    for message in messages:
        if isinstance(message, Message):
            lines = optional(id=message.id, tag=message.tag, key=message.key)
            if message.headers:
                lines += own_lines(message.headers)
            named = named or message.id is not None
            body = as_bytes(message.body)
        else:
            lines = b""
            body = as_bytes(message)
        parts.append(
            b"POST / HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), body)
        )
    lines = start(b"produce", topic) + optional(
        tag=tag,
        key=key,
        partition=partition,
        delay=delay_ms,
        deliver_at=deliver_at_ms,
        ttl=ttl_ms,
        expected_offset=expected_offset,
    )
    if idempotency_key is not None:
        lines += line(b"idempotency-key", idempotency_key)
    return Request(
        b"%bcontent-type: %b\r\n" % (lines, CONTAINER),
        parse_stored_batch,
        b"".join(parts),
        safe=idempotency_key is not None,
        keyed=not named and idempotency_key is None,
        timeout_s=timeout_s,
    )


# -- messages out ---------------------------------------------------------------------------------


def pull(
    topic: str,
    group: str | None = None,
    *,
    batch: int = 1,
    wait_ms: int = 0,
    partition: int | None = None,
    timeout_s: float | None = None,
) -> Request[list[Delivery]]:
    """Take up to `batch` messages of a group, waiting up to `wait_ms` for the first.

    Nothing is acknowledged for you. `consume` is the comfortable way. On one client, one pull of a
    group waits at a time: a second one ends the first with nothing.
    """
    lines = of_group(b"consume", topic, group) + optional(
        batch=batch, timeout=wait_ms, partition=partition
    )
    return Request(
        b"%baccept: %b\r\n" % (lines, CONTAINER),
        parse_deliveries,
        waits=True,
        timeout_s=timeout_s if timeout_s is not None else wait_ms / 1000 + 30,
    )


def unconsume(topic: str, group: str | None = None) -> Request[None]:
    """Read a group no more: a pull that waits ends with nothing. Nobody says that it was done."""
    return Request(of_group(b"unconsume", topic, group), parse_nothing, silent=True)


Offsets = int | Sequence[int]


def encode_offsets(offsets: Offsets) -> str:
    """Offsets in the wire's short form: `3,5-9,12`."""
    if isinstance(offsets, int):
        return str(offsets)
    pieces: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if pieces and offset == pieces[-1][1] + 1:
            pieces[-1][1] = offset
        else:
            pieces.append([offset, offset])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pieces)


def ack(
    topic: str,
    group: str | None,
    offsets: Offsets,
    *,
    partition: int = 0,
    timeout_s: float | None = None,
) -> Request[None]:
    """Acknowledge deliveries of one partition: when this returns, they do not come again."""
    lines = of_group(b"ack", topic, group) + optional(
        offset=encode_offsets(offsets), partition=partition or None
    )
    return Request(lines, parse_nothing, timeout_s=timeout_s)


def nack(
    topic: str,
    group: str | None,
    offsets: Offsets,
    *,
    partition: int = 0,
    delay_ms: int | None = None,
    front: bool = True,
    timeout_s: float | None = None,
) -> Request[int]:
    """Give deliveries back before their lease ends; returns how many. Raises NotFound if none is
    leased any more. They come again first, or at the end (`front=False`), or after `delay_ms`."""
    lines = of_group(b"nack", topic, group) + optional(
        offset=encode_offsets(offsets),
        partition=partition or None,
        delay=delay_ms,
        front=None if front else 0,
    )
    return Request(lines, parse_count, timeout_s=timeout_s)


def extend(
    topic: str,
    group: str | None,
    offsets: Offsets,
    *,
    partition: int = 0,
    lease_ms: int | None = None,
    timeout_s: float | None = None,
) -> Request[int]:
    """Keep deliveries `lease_ms` longer from now, or the group's own time; returns how many."""
    lines = of_group(b"extend", topic, group) + optional(
        offset=encode_offsets(offsets), partition=partition or None, group_ack_timeout=lease_ms
    )
    return Request(lines, parse_count, timeout_s=timeout_s)


def read(
    topic: str,
    *,
    partition: int = 0,
    offset: int | None = None,
    count: int = 100,
    timeout_s: float | None = None,
) -> Request[list[Delivery]]:
    """Look at stored messages from `offset` on (the oldest there is), without a group."""
    lines = start(b"read", topic) + optional(partition=partition, offset=offset, count=count)
    return Request(b"%baccept: %b\r\n" % (lines, CONTAINER), parse_deliveries, timeout_s=timeout_s)


# -- calls ----------------------------------------------------------------------------------------


def call(
    topic: str,
    method: str,
    *params: object,
    module: str = "",
    timeout_s: float | None = None,
) -> Request[Any]:
    """Call a method of a service and return its answer. Raises RpcError for the service's own
    error, Unanswered if none answered in time. It is never sent twice."""
    timeout_s = 30.0 if timeout_s is None else timeout_s
    body = msgspec.json.encode({"method": method, "module": module, "params": list(params)})
    lines = start(b"produce", topic) + optional(timeout=max(1, round(timeout_s * 1000)))
    return Request(
        lines + b"content-type: application/json\r\n",
        parse_result,
        body,
        safe=False,
        waits=True,
        timeout_s=timeout_s + 5,
    )


def route(
    topic: str,
    recver: str,
    id: str,
    status: int,
    body: bytes,
    content_type: str = "application/json",
) -> Request[None]:
    """Answer a call; nobody says whether it arrived."""
    lines = start(b"route", topic) + optional(recver=recver, origin_status=status)
    lines += line(b"content-type", content_type)
    return Request(lines, parse_nothing, body, safe=False, silent=True, id=id.encode())
