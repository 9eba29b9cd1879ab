"""What can be asked about topics, groups and the broker itself: a part of `commands`."""

from __future__ import annotations

from typing import Any, Unpack, cast, overload

import msgspec

from zbus.client.errors import ProtocolError
from zbus.client.positions import Start, encode_start
from zbus.client.requests import (
    Request,
    document_of,
    line,
    of_group,
    only_one,
    optional,
    parameter_lines,
    parse_nothing,
    parse_number,
    parse_text,
    wire_names,
)
from zbus.client.requests import start as start_lines
from zbus.documents import NOT_JSON
from zbus.protocol.documents import GroupInfo, ServerInfo, TopicInfo, TrackerInfo
from zbus.protocol.parameters import DECLARE, Declared
from zbus.wire.responses import Response


class DeclareOptions(Declared, total=False):
    """What `declare` says of a topic and a group, all of it explained there."""

    start: Start | None


_parse_group = document_of(GroupInfo)
_parse_topic = document_of(TopicInfo)
_parse_server = document_of(ServerInfo)
_parse_tracker = document_of(TrackerInfo)


def _parse_schema(response: Response) -> dict[str, Any] | bool:
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any] | bool)
    except NOT_JSON as error:
        raise ProtocolError(f"the broker's answer is no schema: {error}") from None


def _simple(cmd: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\ncmd: %b\r\n" % cmd


@overload
def declare(
    topic: str,
    group: None = None,
    *,
    timeout_s: float | None = None,
    **options: Unpack[DeclareOptions],
) -> Request[TopicInfo]: ...
@overload
def declare(
    topic: str, group: str, *, timeout_s: float | None = None, **options: Unpack[DeclareOptions]
) -> Request[GroupInfo]: ...
@overload
def declare(
    topic: str,
    group: str | None,
    *,
    timeout_s: float | None = None,
    **options: Unpack[DeclareOptions],
) -> Request[TopicInfo | GroupInfo]: ...
def declare(
    topic: str,
    group: str | None = None,
    *,
    timeout_s: float | None = None,
    **options: Unpack[DeclareOptions],
) -> Request[TopicInfo | GroupInfo]:
    """Create a topic and a group, or change them; what is not given stays as it is.

    Without `group` the group named like the topic is meant. Of the group:
    - `ack`: each message is leased for `lease_ms` milliseconds until it is acknowledged, at most
      `window` (0 to 1,000,000) of them at once. `filter`: only such tags (`eu.*;us.#`); `""` takes
      all.
    - `exclusive`: lets in one consumer at a time. `temporary`: goes with its last consumer.
      `paused`: delivers nothing. `order` "key": messages of one key, one after another.
    - A new one starts at `start` (`"earliest"`, `"latest"`, an offset, a time), or where the group
      `start_copy` stands. One that exists stays where it is: `seek` moves it.
    - `max_attempts`, `dead_letter` and the others of `Retries`: what becomes of failures.

    Of the topic: `partitions` may become more, and keys keep their order unless `partitions_order`
    is "none"; `durability` is fixed at creation. `rpc` is for calls, in memory
    if no `durability` is given. `retention_ms`, `retention_bytes` and `retention_count` (of each
    partition) drop old messages, `retention_done` what all groups have finished. `dedupe_ms`: how
    long ids are remembered; `settled_ms`: how long what became of messages; 0: no such limit, or
    not at all. `dedupe_live`: an id is taken until its message is finished in every group.
    `compact` keeps the newest message of each key for ever and drops older ones; one without a body
    stays for `compact_tombstone_ms`.
    `sender_headers` stores with each message how it came. `schema`: the JSON Schema that bodies
    have to fit, as a document or its text; "none" takes it back. What a new version of it has to
    keep is said by `schema_compatibility`: "backward" (the default), "forward", "full" or "none".

    Returns the group if one was named, else the topic. Raises BadRequest for what cannot be changed
    or never be, Conflict for a schema that breaks what the one before it keeps, TooMany, Forbidden;
    TypeError for options that contradict each other.
    """
    start, schema = options.pop("start", None), options.pop("schema", None)
    only_one(start=start, start_copy=options.get("start_copy"))
    parse = _parse_topic if group is None else _parse_group
    lines = of_group(b"declare", topic, group)
    lines += parameter_lines(_DECLARED, cast("dict[str, Any]", options))
    if start is not None:
        lines += line(b"from", encode_start(start))
    body = b""
    if schema is not None:
        lines += line(b"schema", "none" if schema == "none" else "body")
        if schema != "none":
            body = schema.encode() if isinstance(schema, str) else msgspec.json.encode(schema)
    return Request(lines, parse, body, timeout_s=timeout_s)


_DECLARED = wire_names(each for each in DECLARE if each.python in Declared.__annotations__)


def seek(
    topic: str,
    group: str | None,
    start: Start,
    *,
    partition: int | None = None,
    timeout_s: float | None = None,
) -> Request[GroupInfo]:
    """Move a group: it forgets its leases and reads on at `start` (`"earliest"`, `"latest"`, an
    offset, offsets of all partitions, a time), in one `partition` or in all. Returns the group.

    Raises NotFound for a group that is not there, BadRequest for an offset past the end.
    """
    where: dict[str, str | int | None] = {"from": encode_start(start), "partition": partition}
    lines = of_group(b"seek", topic, group) + optional(**where)
    return Request(lines, _parse_group, timeout_s=timeout_s)


def pause(
    topic: str, group: str | None = None, *, timeout_s: float | None = None
) -> Request[GroupInfo]:
    """Hold the deliveries of a group back, until `resume`. Raises NotFound, Forbidden."""
    return Request(of_group(b"pause", topic, group), _parse_group, timeout_s=timeout_s)


def resume(
    topic: str, group: str | None = None, *, timeout_s: float | None = None
) -> Request[GroupInfo]:
    """Go on with the deliveries of a group. Raises NotFound, Forbidden."""
    return Request(of_group(b"resume", topic, group), _parse_group, timeout_s=timeout_s)


@overload
def query(
    topic: None = None, group: None = None, *, timeout_s: float | None = None
) -> Request[ServerInfo]: ...
@overload
def query(
    topic: str, group: None = None, *, timeout_s: float | None = None
) -> Request[TopicInfo]: ...
@overload
def query(topic: str, group: str, *, timeout_s: float | None = None) -> Request[GroupInfo]: ...
@overload
def query(
    topic: str | None = None, group: str | None = None, *, timeout_s: float | None = None
) -> Request[ServerInfo | TopicInfo | GroupInfo]: ...
def query(
    topic: str | None = None, group: str | None = None, *, timeout_s: float | None = None
) -> Request[ServerInfo | TopicInfo | GroupInfo]:
    """What a group, a topic, or without arguments the whole broker is like now. It changes nothing.

    Raises NotFound, also for what the token may not see; TypeError for a group without its topic.
    """
    if topic is None:
        if group is not None:
            raise TypeError(f"the group {group!r} is of a topic: give it, too")
        return Request(_simple(b"query"), _parse_server, timeout_s=timeout_s)
    parse = _parse_topic if group is None else _parse_group
    return Request(of_group(b"query", topic, group), parse, timeout_s=timeout_s)


def schema(
    topic: str, *, version: int | None = None, timeout_s: float | None = None
) -> Request[dict[str, Any] | bool]:
    """The JSON Schema of a topic: the newest version, or this one (from 1).

    Raises NotFound for a topic or version that is not there, and for a topic without a schema.
    """
    lines = start_lines(b"schema", topic) + optional(version=version)
    return Request(lines, _parse_schema, timeout_s=timeout_s)


def server(*, timeout_s: float | None = None) -> Request[ServerInfo]:
    """What the broker is like now, with all topics and groups. Raises Forbidden.

    With many topics this is a long document, up to a second old: `query` one topic if that will do.
    """
    return Request(_simple(b"server"), _parse_server, timeout_s=timeout_s)


def tracker(*, timeout_s: float | None = None) -> Request[TrackerInfo]:
    """The brokers that this one knows of, itself among them. Raises Forbidden."""
    return Request(_simple(b"tracker"), _parse_tracker, timeout_s=timeout_s)


def remove(
    topic: str, group: str | None = None, *, timeout_s: float | None = None
) -> Request[None]:
    """Delete a group, or without `group` the topic with its groups and messages.

    Returns when that is durable. Raises NotFound, Forbidden.
    """
    lines = of_group(b"remove", topic, group)
    return Request(lines, parse_nothing, removes=True, timeout_s=timeout_s)


def empty(
    topic: str,
    group: str | None = None,
    *,
    keep_leased: bool = False,
    timeout_s: float | None = None,
) -> Request[None]:
    """Forget what a group has still to do; without `group`, of all groups, and the messages. With
    `keep_leased`, what a group has leased stays so.

    Returns when that is durable. Raises NotFound, Forbidden.
    """
    lines = of_group(b"empty", topic, group) + optional(keep_leased=keep_leased or None)
    return Request(lines, parse_nothing, timeout_s=timeout_s)


def ping(*, timeout_s: float | None = None) -> Request[int]:
    """The broker's time, epoch milliseconds. Raises ConnectionLost or Timeout if it is away."""
    return Request(_simple(b"ping"), parse_number, timeout_s=timeout_s)


def version(*, timeout_s: float | None = None) -> Request[str]:
    """The broker's version, such as `0.1.0`."""
    return Request(_simple(b"version"), parse_text, timeout_s=timeout_s)
