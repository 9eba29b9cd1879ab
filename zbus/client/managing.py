"""What can be asked about topics, groups and the broker itself: a part of `commands`."""

from __future__ import annotations

from typing import Any, Literal

from zbus.client.documents import GroupInfo, ServerInfo, TopicInfo, TrackerInfo
from zbus.client.requests import (
    Request,
    document_of,
    of_group,
    only_one,
    optional,
    parse_nothing,
    parse_number,
    parse_text,
)

Level = Literal["memory", "os", "disk"]
"""How durable a topic is."""

RPC_MASK = 3  # in memory, and answered by services
ACK_MASK, EXCLUSIVE_MASK, DELETE_ON_EXIT_MASK, PAUSE_MASK = 64, 16, 32, 8


_parse_group = document_of(GroupInfo)
_parse_topic = document_of(TopicInfo)
_parse_server = document_of(ServerInfo)
_parse_tracker = document_of(TrackerInfo)


def _simple(cmd: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\ncmd: %b\r\n" % cmd


def declare(
    topic: str,
    group: str | None = None,
    *,
    ack: bool | None = None,
    lease_ms: int | None = None,
    window: int | None = None,
    filter: str | None = None,
    exclusive: bool | None = None,
    delete_on_exit: bool | None = None,
    paused: bool | None = None,
    start_offset: int | None = None,
    start_id: str | None = None,
    start_partition: int | None = None,
    start_time_ms: int | None = None,
    start_copy: str | None = None,
    partitions: int | None = None,
    durability: Level | None = None,
    rpc: bool = False,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    retention_count: int | None = None,
    retention_done: bool | None = None,
    dedupe_ms: int | None = None,
    timeout_s: float | None = None,
) -> Request[TopicInfo | GroupInfo]:
    """Create a topic and a group, or change them; what is not given stays as it is.

    Without `group` the group named like the topic is meant. Of the group:
    - `ack`: each message is leased for `lease_ms` milliseconds until it is acknowledged, at most
      `window` (0 to 999) of them at once. `filter`: only such tags (`eu.*;us.#`); `""` takes all.
    - `exclusive`: lets in one consumer at a time. `delete_on_exit`: goes with its last consumer.
      `paused`: hands out nothing. Who gives one of these and `ack` sets all four, to off if not on.
    - A new one starts at `start_offset` (0: all history), with `start_partition` in that one alone,
      with `start_id` only if the message has it; or at `start_time_ms` (epoch milliseconds); or
      where the group `start_copy` stands.

    Of the topic:
    - `partitions` and `durability` are fixed at creation. `rpc`: for calls, in memory.
    - `retention_ms`, `retention_bytes` and `retention_count` (of each partition) drop old messages;
      0: no such limit. `retention_done` drops what all groups have finished.
    - `dedupe_ms`: how long ids are remembered, milliseconds; 0: they are not looked at.

    Returns the group if one was named, else the topic. Raises BadRequest for what cannot be changed
    or never be, TooMany, Forbidden; TypeError for options that contradict each other.
    """
    given = locals()
    _require_agreement(given)
    options = {header: given[name] for name, header in _OPTIONS.items()}
    lines = of_group(b"declare", topic, group) + optional(**options)
    lines += optional(group_mask=_mask(ack, exclusive, delete_on_exit, paused))
    lines += optional(topic_mask=RPC_MASK) if rpc else optional(durability=durability)
    parse = _parse_topic if group is None else _parse_group
    return Request(lines, parse, timeout_s=timeout_s)


_OPTIONS = {
    "partitions": "partitions",
    "lease_ms": "group_ack_timeout",
    "window": "group_ack_window",
    "filter": "group_filter",
    "start_offset": "group_start_offset",
    "start_id": "group_start_msgid",
    "start_partition": "partition",
    "start_time_ms": "group_start_time",
    "start_copy": "group_start_copy",
    "retention_ms": "retention_ms",
    "retention_bytes": "retention_bytes",
    "retention_count": "retention_count",
    "retention_done": "retention_done",
    "dedupe_ms": "dedupe_ms",
}
"""What the dialect calls the options of `declare`."""


def _require_agreement(given: dict[str, Any]) -> None:
    only_one(**{name: given[name] for name in ("start_offset", "start_time_ms", "start_copy")})
    if given["start_offset"] is None and (
        given["start_id"] is not None or given["start_partition"] is not None
    ):
        raise TypeError("start_id and start_partition say more about start_offset: give it, too")
    durability = given["durability"]
    if given["rpc"] and durability not in (None, "memory"):
        raise TypeError(
            f"rpc and durability={durability!r} contradict each other: calls are kept in memory"
        )


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


def empty(topic: str, group: str | None = None, *, timeout_s: float | None = None) -> Request[None]:
    """Forget what a group has still to do; without `group`, of all groups, and the messages.

    Returns when that is durable. Raises NotFound, Forbidden.
    """
    return Request(of_group(b"empty", topic, group), parse_nothing, timeout_s=timeout_s)


def ping(*, timeout_s: float | None = None) -> Request[int]:
    """The broker's time, epoch milliseconds. Raises ConnectionLost or Timeout if it is away."""
    return Request(_simple(b"ping"), parse_number, timeout_s=timeout_s)


def version(*, timeout_s: float | None = None) -> Request[str]:
    """The broker's version, such as `0.1.0`."""
    return Request(_simple(b"version"), parse_text, timeout_s=timeout_s)
