"""The JSON documents of the dialect (specification, section 7): keys sorted, nulls left out. With a
grant they hold what it may see; None sees everything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Any, cast

import msgspec
from msgspec import Struct

from zbus.core.api import Broker, Group, PushState, Topic
from zbus.dialects.zbus.request.legacy_flags import group_mask, topic_mask
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Grant
from zbus.protocol.documents import (
    GroupInfo,
    Position,
    PushInfo,
    ServerAddress,
    ServerInfo,
    TopicInfo,
)

Document = dict[str, Any]  # JSON


_ENCODER = msgspec.json.Encoder()


def encode_document(document: Mapping[str, Any] | Struct) -> bytes:
    # The fields of these stand in the order of their names; to sort them costs more than the rest.
    if isinstance(document, (TopicInfo, GroupInfo)):
        return _ENCODER.encode(document)
    return msgspec.json.encode(document, order="sorted")


def group_info(group: Group, *, positions: bool = False) -> GroupInfo:
    options = group.options
    ready, leased, delayed, skipped = group.counts()
    return GroupInfo(
        ack=group.lease,
        ack_required=group.lease,
        ack_timeout=options.lease_ms,
        ack_window=options.window,
        backoff_max_ms=options.backoff_max_ms or None,
        backoff_ms=options.backoff_ms,
        consumer_count=len(group.readers),
        consumers=["/" + session.address for session in group.readers],
        created_ms=options.created_ms,
        dead_count=group.dead_count(),
        dead_letter=options.dead_letter,
        delayed_count=delayed,
        exclusive=group.exclusive,
        filter=options.filter,
        name=group.name,
        keep_attempts=options.attempts_kept,
        changed_ms=group.updated_ms,
        lease_ms=options.lease_ms,
        leased_count=leased,
        mask=group_mask(options),
        max_attempts=options.attempts_max or None,
        message_count=ready,
        on_loss=intern(options.on_loss),
        one_batch=options.one_batch,
        order=options.order or "none",
        paused=group.paused,
        positions=_positions(group) if positions else None,
        push=_push_info(group),
        rate=options.rate_per_s or None,
        retain=options.retain,
        skipped_count=skipped,
        temporary=group.temporary,
        topic=group.topic.name,
        unclaimed=options.unclaimed,
        window=options.window,
    )


def _positions(group: Group) -> list[Position]:
    progresses = [group.progress(partition.index) for partition in group.topic.partitions]
    return [
        Position(
            partition=partition.index,
            cursor=progress.cursor,
            end=partition.end,
            ready=progress.ready_count(partition.end),
            leased=len(progress.leased),
        )
        for partition, progress in zip(group.topic.partitions, progresses, strict=True)
    ]


def _push_info(group: Group) -> PushInfo | None:
    push, state = group.options.push, group.pushed or PushState()
    if push is None:
        return None
    return PushInfo(
        concurrency=push.concurrency,
        delivered=state.delivered,
        error=state.error,
        failed=state.failed,
        failing_since=state.failing_ms,
        signed=bool(push.secret),
        timeout_ms=push.timeout_ms,
        url=push.endpoint,
    )


def topic_info(topic: Topic, settings: ZbusSettings, grant: Grant | None = None) -> TopicInfo:
    options = topic.options
    groups = topic.groups.values() if grant is None else visible_groups(topic, grant)
    infos = [group_info(group) for group in groups]
    return TopicInfo(
        ack=bool(options.lease),
        groups=infos,
        compact=options.compact,
        compact_tombstone_ms=options.compact_tombstone_ms if options.compact else None,
        consumer_count=sum([info.consumer_count for info in infos]),
        created_ms=options.created_ms,
        dedupe_live=options.dedupe_live,
        dedupe_ms=options.dedupe_ms,
        durability=settings.effective_durability(options.durability),
        exclusive=bool(options.exclusive),
        changed_ms=topic.updated_ms,
        mask=topic_mask(options),
        message_depth=topic.depth(),
        partitions=len(topic.partitions),
        paused=bool(options.paused),
        retention_bytes=options.retention_bytes or None,
        retention_count=options.retention_count or None,
        retention_done=options.retention_done,
        retention_ms=options.retention_ms or None,
        rpc=options.calls,
        schema_compatibility=None if options.schema is None else options.schema.compatibility,
        schema_version=None if options.schema is None else options.schema.number,
        sender_headers=not topic.minimal_headers,
        server_address=_address(settings.address, settings.tls),
        server_version=settings.version,
        settled_ms=options.settled_ms,
        stored_count=sum([part.visible - part.first for part in topic.partitions]),
        temporary=bool(options.temporary),
        name=topic.name,
    )


@lru_cache(maxsize=8)
def _address(address: str, tls: bool) -> ServerAddress:
    return ServerAddress(address=address, tls=tls)


def shown_holder(broker: Broker, group: Group, id: bytes) -> str:
    """Who has a message of the group leased; "" = no connected client."""
    session = broker.sessions.get(id)
    if session is not None:
        return "/" + session.address
    if group.pushed is None:
        return ""
    # That of its webhook is inside of the broker, and no connection.
    return next((reader.address for reader in group.readers if reader.id == id), "")


def visible_groups(topic: Topic, grant: Grant | None) -> list[Group]:
    """The groups of a topic that a grant may see."""
    return [g for g in topic.groups.values() if grant is None or grant.sees(topic.name, g.name)]


def visible_topics(broker: Broker, grant: Grant | None) -> list[Topic]:
    """The topics that a grant may see."""
    return [t for t in broker.topics.values() if grant is None or grant.sees(t.name)]


def names(broker: Broker, topic: Topic | None, grant: Grant | None) -> list[str]:
    """Of all topics, or of the groups of one."""
    found = visible_topics(broker, grant) if topic is None else visible_groups(topic, grant)
    return sorted([each.name for each in found])


def server_info(
    broker: Broker, settings: ZbusSettings, version: int, grant: Grant | None = None
) -> ServerInfo:
    """ServerInfo. `version` only grows, across restarts too: clients ignore older ones."""
    seen_all = settings.memory_used is not None and (grant is None or grant.sees_everything)
    # Topics are written one by one: tens of thousands of objects that live for a moment make
    # Python's collector look through all objects for those without a reference.
    topics = {
        topic.name: msgspec.Raw(_ENCODER.encode(topic_info(topic, settings, grant)))
        for topic in visible_topics(broker, grant)
    }
    refusing = broker.refusing()
    return ServerInfo(
        connection_count=settings.connections(broker.sessions) if seen_all else None,
        held_bytes=settings.held() if seen_all and settings.held is not None else {},
        info_version=version,
        memory_bytes=settings.memory_used() if seen_all and settings.memory_used else None,
        refusing="" if refusing is None else refusing.text,
        address=_address(settings.address, settings.tls),
        version=settings.version,
        topics=cast("dict[str, TopicInfo]", topics),
        trackers=[ServerAddress(address=address) for address in settings.trackers],
    )
