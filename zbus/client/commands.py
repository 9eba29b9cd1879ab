"""What can be asked of a broker: each function makes a request, and says what its answer means.

Nothing is sent here. Both clients have all of these as methods of the same names, which send the
request and return its result; so these signatures and texts are the documentation of both.
(`docs/reference/python-client.md`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

import msgspec

from zbus.client.managing import (
    declare,
    empty,
    pause,
    ping,
    query,
    remove,
    resume,
    schema,
    seek,
    server,
    tracker,
    version,
)
from zbus.client.messages import Body, Delivery, Message, Stored, StoredBatch, as_bytes
from zbus.client.requests import (
    UNSET,
    Acks,
    Offsets,
    Pulling,
    Request,
    encode_offsets,
    line,
    message_id,
    of_group,
    optional,
    own_lines,
    parse_count,
    parse_deliveries,
    parse_nothing,
    parse_result,
    parse_stored,
    parse_stored_batch,
    put_lines,
    settling,
    start,
)
from zbus.client.scheduling import schedule
from zbus.client.single import cancel, delete, fire, peek, redrive, reschedule, why
from zbus.protocol.documents import Loss
from zbus.protocol.parameters import Put
from zbus.wire.responses import Response

__all__ = [
    "Acks",
    "Offsets",
    "ack",
    "call",
    "cancel",
    "declare",
    "delete",
    "empty",
    "encode_offsets",
    "extend",
    "fire",
    "get",
    "nack",
    "pause",
    "peek",
    "ping",
    "produce",
    "produce_many",
    "pull",
    "query",
    "read",
    "redrive",
    "remove",
    "reschedule",
    "resume",
    "route",
    "schedule",
    "schema",
    "seek",
    "server",
    "tracker",
    "unconsume",
    "version",
    "why",
]

CONTAINER = b"application/vnd.zbus.messages"


# -- messages in ----------------------------------------------------------------------------------


def produce(
    topic: str,
    body: Body = b"",
    *,
    json: object = UNSET,
    headers: Mapping[str, str] | None = None,
    id: str | None = None,
    acks: Acks | None = None,
    timeout_s: float | None = None,
    **where: Unpack[Put],
) -> Request[Stored]:
    """Store one message; returns when it is durable, and says where it is.

    `body` is bytes or text; or `json` is anything that JSON holds. Messages of one `key` are in one
    partition. `delay_ms` (milliseconds from now) or `deliver_at_ms` (epoch) hold it back, `ttl_ms`
    lets it expire, `front` puts it before all that is ready. With `expected_offset` it is stored
    there or not at all. Without an ack it is delivered `max_attempts` times at most. `acks` are
    deliveries of one group and partition that are acknowledged by it: both or neither.

    Raises NotFound (declare the topic first), Conflict (`expected_offset`), NotLeased (`acks` have
    ended, or were done before), BadRequest, TooLarge, TooMany, Full or Overloaded: then nothing was
    stored; ConnectionLost or Timeout, whose `unknown` says whether it may have been; TypeError and
    ValueError for what cannot be sent.

    With `retries` the message gets an idempotency key of its own, and is stored once. If you give
    an `id`, a lost answer is a ConnectionLost with `unknown`: send it again, if the topic remembers
    ids (`dedupe_ms`).
    """
    lines = start(b"produce", topic)
    if where:
        lines += put_lines(where)
    if json is not UNSET:
        body, type_line = _json_instead_of(body, json, headers)
        lines += type_line
    lines += own_lines(headers) if headers else b""
    once = where.get("idempotency_key") is not None
    parse: Callable[[Response], Stored] = parse_stored
    if acks is not None:
        named, parse = settling(acks, parse)
        lines += named
    return Request(
        lines,
        parse,
        body if type(body) is bytes else as_bytes(body),
        safe=once or acks is not None,
        keyed=id is None and not once and acks is None,
        id=b"" if id is None else message_id(id),
        timeout_s=timeout_s,
        traced=("produce", topic),
    )


def _json_instead_of(
    body: Body, json: object, headers: Mapping[str, str] | None
) -> tuple[bytes, bytes]:
    """The body, and the line that says what it is."""
    if type(body) is not bytes or body:
        raise TypeError("body and json contradict each other: give one of them")
    has_type = headers and "content-type" in {name.lower() for name in headers}
    return msgspec.json.encode(json), b"" if has_type else b"content-type: application/json\r\n"


def encode_part(message: Body | Message) -> bytes:
    """One message of a body of the type `CONTAINER`. Raises ValueError for labels and headers that
    no message can have, TypeError for what is no body."""
    lines = b""
    if isinstance(message, Message):
        lines = optional(id=message.id, tag=message.tag, key=message.key)
        if message.headers:
            lines += own_lines(message.headers)
        message = message.body
    body = as_bytes(message)
    return b"POST / HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), body)


def produce_many(
    topic: str,
    messages: Iterable[Body | Message],
    *,
    acks: Acks | None = None,
    timeout_s: float | None = None,
    **where: Unpack[Put],
) -> Request[StoredBatch]:
    """Store many messages in one request, all or none, at consecutive offsets of one partition.

    `tag` and `key` are for messages that have none of their own. Messages whose keys belong to
    different partitions are refused: send a batch for each key. A batch has at most 100,000
    messages and 16 MiB by default. It is stored once as `produce` has it; if a message has an `id`,
    that is left to you. Times, `acks` and errors are those of `produce`.
    """
    if isinstance(messages, bytes | bytearray | memoryview | str):
        raise TypeError("produce_many takes a list of messages; use produce for a single one")
    parts = []
    named = False
    for message in messages:
        parts.append(encode_part(message))
        named = named or (isinstance(message, Message) and message.id is not None)
    lines = start(b"produce", topic) + put_lines(where)
    once = where.get("idempotency_key") is not None
    parse: Callable[[Response], StoredBatch] = parse_stored_batch
    if acks is not None:
        places, parse = settling(acks, parse)
        lines += places
    return Request(
        b"%bcontent-type: %b\r\n" % (lines, CONTAINER),
        parse,
        b"".join(parts),
        safe=once or acks is not None,
        keyed=not named and not once and acks is None,
        timeout_s=timeout_s,
        traced=("produce", topic),
    )


# -- messages out ---------------------------------------------------------------------------------


def pull(
    topic: str,
    group: str | None = None,
    *,
    batch: int = 1,
    wait_ms: int = 0,
    partition: int | None = None,
    lease_ms: int | None = None,
    on_loss: Loss | None = None,
    standby: bool = False,
    timeout_s: float | None = None,
) -> Request[list[Delivery]]:
    """Take up to `batch` messages of a group, waiting up to `wait_ms` milliseconds for the first.
    They are leased for `lease_ms` milliseconds, or as long as the group says. `on_loss` says what
    becomes of the leases when the connection ends, if that is not what the group says. If another
    reads the exclusive group, `standby` waits until that one has left.

    Nothing is acknowledged for you. `consume` is the comfortable way. On one client, one pull of a
    group waits at a time: a second one ends the first with nothing. A pull that is cancelled, or
    ends by `timeout_s` or Ctrl-C, loses nothing: messages that come for it are given back, and of a
    group without acknowledgements the next pull of this client has them. Raises NotFound (declare
    the group first), Forbidden (also if another reads the exclusive group), TooMany, Overloaded.
    """
    lines = of_group(b"consume", topic, group) + optional(
        batch=batch,
        timeout=wait_ms,
        partition=partition,
        lease=lease_ms,
        on_loss=on_loss,
        standby=standby or None,
    )
    return Request(
        b"%baccept: %b\r\n" % (lines, CONTAINER),
        parse_deliveries,
        waits=True,
        timeout_s=timeout_s if timeout_s is not None else wait_ms / 1000 + 30,
        pulling=Pulling(topic, group or topic, partition, batch),
    )


def unconsume(topic: str, group: str | None = None, *, stay: bool = False) -> Request[None]:
    """Read a group no more: a pull that waits ends with nothing. With `stay` only that: the client
    stays a reader. There is no answer."""
    lines = of_group(b"unconsume", topic, group) + optional(stay=stay or None)
    return Request(lines, parse_nothing, silent=True)


def ack(
    topic: str,
    group: str | None,
    offsets: Offsets,
    *,
    partition: int = 0,
    timeout_s: float | None = None,
) -> Request[None]:
    """Acknowledge deliveries of one partition: when this returns, they do not come again.

    An offset that is acknowledged already, or was not delivered, is none of them that come again
    either, so it is no error: an ack may be repeated. Raises NotFound if there is no such topic,
    group or partition, since then nothing was acknowledged at all.
    """
    lines = of_group(b"ack", topic, group) + optional(
        offset=encode_offsets(offsets), partition=partition or None, strict=True
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
    """Give deliveries back before their lease ends; returns how many were.

    They come again first; or at the end (`front=False`); or after `delay_ms` milliseconds. Raises
    NotLeased if none is leased any more, NotFound if there is no such topic, group or partition.
    """
    if delay_ms and not front:
        raise TypeError(
            "delay_ms and front=False cannot be combined: a delayed message is redelivered when due"
        )
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
    """Keep deliveries for `lease_ms` milliseconds from now, or for the group's own time.

    Returns how many leases were moved. Raises NotFound as `nack` does.
    """
    lines = of_group(b"extend", topic, group) + optional(
        offset=encode_offsets(offsets), partition=partition or None, group_lease=lease_ms
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
    """Look at up to `count` stored messages from `offset` on (the oldest there is).

    This needs no group and changes nothing. At the end of the log the list is empty. Raises
    NotFound for an offset that was dropped, and for a topic or partition that is not there.
    """
    lines = start(b"read", topic) + optional(partition=partition, offset=offset, count=count)
    return Request(b"%baccept: %b\r\n" % (lines, CONTAINER), parse_deliveries, timeout_s=timeout_s)


def get(topic: str, key: str, *, timeout_s: float | None = None) -> Request[Delivery]:
    """The newest message of a key, of a topic that was declared with `compact`.

    All that was acknowledged before is known. After a start of the broker it may wait until the
    broker has read the topic. Raises NotFound if there is no message of the key, or the newest has
    no body; Overloaded if the broker still reads the topic after 10 s; BadRequest if the topic is
    not compact.
    """
    return Request(start(b"get", topic) + line(b"key", key), Delivery, timeout_s=timeout_s)


# -- calls ----------------------------------------------------------------------------------------


def call(
    topic: str,
    method: str,
    /,
    *params: object,
    module: str = "",
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **named: object,
) -> Request[Any]:
    """Call a method of a service and return its answer, of JSON, or bytes of another type.

    `params` and `named` are its arguments, all of them what JSON holds; a service needs zbus 0.1 or
    newer to understand `named`. `headers` travel with the call, such as `traceparent`. It waits for
    `timeout_s` seconds (30) and is never sent twice.

    Raises RpcError for the service's own error, Unanswered if none answered in time, NotFound if
    there never was such a service, BadRequest if `topic` is not one of services, ConnectionLost or
    Timeout if it may have been called or not.
    """
    timeout_s = 30.0 if timeout_s is None else timeout_s
    document: dict[str, object] = {"method": method, "module": module, "params": list(params)}
    if named:
        document["named"] = named
    body = msgspec.json.encode(document)
    lines = start(b"produce", topic) + optional(timeout=max(1, round(timeout_s * 1000)))
    if headers:
        lines += own_lines(headers, of_call=True)
    return Request(
        lines + b"content-type: application/json\r\n",
        parse_result,
        body,
        safe=False,
        waits=True,
        timeout_s=timeout_s + 5,
        traced=("call", topic),
    )


def route(
    topic: str,
    recver: str,
    id: str,
    status: int,
    body: bytes,
    content_type: str = "application/json",
) -> Request[None]:
    """Answer a call; there is no reply to say whether it arrived."""
    lines = start(b"route", topic) + optional(recver=recver, origin_status=status)
    lines += line(b"content-type", content_type)
    return Request(lines, parse_nothing, body, safe=False, silent=True, id=id.encode())
