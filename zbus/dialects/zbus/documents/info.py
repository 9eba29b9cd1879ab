"""The JSON documents of the dialect (specification, section 7): keys sorted, nulls left out. With a
grant they hold what it may see; None sees everything."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from zbus.core.api import Broker, Group, PushState, Topic
from zbus.dialects.zbus.request.legacy_flags import group_mask, topic_mask
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Grant

Document = dict[str, Any]  # JSON

_UNSET = msgspec.UNSET


def encode_document(document: Document | GroupInfo | TopicInfo) -> bytes:
    return msgspec.json.encode(document, order="sorted")


class PushInfo(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A webhook, and how it goes since the start of the broker. Its secret is never shown."""

    concurrency: int
    delivered: int
    error: str | msgspec.UnsetType
    failed: int
    failing_since: int | msgspec.UnsetType
    signed: bool
    timeout_ms: int
    url: str


class GroupInfo(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """ConsumeGroupInfo, with what this broker knows beyond it. Fields are in the order of their
    names, as they are written."""

    ack: bool
    ack_required: bool
    ack_timeout: int
    ack_window: int
    backoff_max_ms: int | msgspec.UnsetType
    backoff_ms: int | msgspec.UnsetType
    consumer_count: int
    consumer_list: list[str]
    created_time: int
    dead_count: int
    dead_letter: str | msgspec.UnsetType
    delayed_count: int
    exclusive: bool
    filter: str | msgspec.UnsetType
    group_name: str
    keep_attempts: bool | msgspec.UnsetType
    last_updated_time: int
    lease_ms: int
    leased_count: int
    mask: int
    max_attempts: int | msgspec.UnsetType
    message_count: int
    on_loss: str | msgspec.UnsetType
    one_batch: bool | msgspec.UnsetType
    order: str | msgspec.UnsetType
    paused: bool
    push: PushInfo | msgspec.UnsetType
    rate: int | msgspec.UnsetType
    retain: bool | msgspec.UnsetType
    skipped_count: int
    temporary: bool
    topic_name: str
    unclaimed: bool | msgspec.UnsetType
    window: int


class TopicInfo(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """TopicInfo, likewise. What it is not, and has no limit of, is left out."""

    ack: bool | msgspec.UnsetType
    consume_group_list: list[GroupInfo]
    consumer_count: int
    created_time: int
    dedupe_live: bool | msgspec.UnsetType
    dedupe_ms: int
    durability: str
    exclusive: bool | msgspec.UnsetType
    last_updated_time: int
    mask: int
    message_depth: int
    partition_count: int
    paused: bool | msgspec.UnsetType
    retention_bytes: int | msgspec.UnsetType
    retention_count: int | msgspec.UnsetType
    retention_done: bool | msgspec.UnsetType
    retention_ms: int | msgspec.UnsetType
    rpc: bool | msgspec.UnsetType
    sender_headers: bool | msgspec.UnsetType
    server_address: msgspec.Raw
    server_version: str
    settled_ms: int | msgspec.UnsetType
    temporary: bool | msgspec.UnsetType
    topic_name: str


_ENCODER = msgspec.json.Encoder()


@lru_cache(maxsize=8)
def _address_json(address: str, tls: bool) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode({"address": address, "sslEnabled": tls}))


def group_info(group: Group) -> GroupInfo:
    options = group.options
    ready, leased, delayed, skipped = group.counts()
    return GroupInfo(
        group.lease,
        group.lease,
        options.lease_ms,
        options.window,
        options.backoff_max_ms or _UNSET,
        options.backoff_ms or _UNSET,
        len(group.readers),
        ["/" + session.address for session in group.readers],
        options.created_ms,
        group.dead_count(),
        options.dead_letter or _UNSET,
        delayed,
        group.exclusive,
        options.filter or msgspec.UNSET,
        group.name,
        options.attempts_kept or _UNSET,
        group.updated_ms,
        options.lease_ms,
        leased,
        group_mask(options),
        options.attempts_max or _UNSET,
        ready,
        _UNSET if options.on_loss == "keep" else options.on_loss,
        options.one_batch or _UNSET,
        options.order or _UNSET,
        group.paused,
        _push_info(group),
        options.rate_per_s or _UNSET,
        options.retain or _UNSET,
        skipped,
        group.temporary,
        group.topic.name,
        options.unclaimed or _UNSET,
        options.window,
    )


def _push_info(group: Group) -> PushInfo | msgspec.UnsetType:
    push, state = group.options.push, group.pushed or PushState()
    if push is None:
        return _UNSET
    return PushInfo(
        push.concurrency,
        state.delivered,
        state.error or _UNSET,
        state.failed,
        state.failing_ms or _UNSET,
        bool(push.secret),
        push.timeout_ms,
        push.endpoint,
    )


def topic_info(topic: Topic, settings: ZbusSettings, grant: Grant | None = None) -> TopicInfo:
    options = topic.options
    groups = topic.groups.values() if grant is None else visible_groups(topic, grant)
    infos = [group_info(group) for group in groups]
    return TopicInfo(
        options.lease or msgspec.UNSET,
        infos,
        sum([info.consumer_count for info in infos]),
        options.created_ms,
        options.dedupe_live or msgspec.UNSET,
        options.dedupe_ms,
        settings.effective_durability(options.durability),
        options.exclusive or msgspec.UNSET,
        topic.updated_ms,
        topic_mask(options),
        topic.depth(),
        len(topic.partitions),
        options.paused or msgspec.UNSET,
        options.retention_bytes or msgspec.UNSET,
        options.retention_count or msgspec.UNSET,
        options.retention_done or msgspec.UNSET,
        options.retention_ms or msgspec.UNSET,
        options.calls or msgspec.UNSET,
        not topic.minimal_headers or msgspec.UNSET,
        _address_json(settings.address, settings.tls),
        settings.version,
        options.settled_ms or msgspec.UNSET,
        options.temporary or msgspec.UNSET,
        topic.name,
    )


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
) -> Document:
    """ServerInfo. `version` only grows, across restarts too: clients ignore older ones."""
    # Topics are written one by one: tens of thousands of objects that live for a moment make
    # Python's collector look through all objects for those without a reference.
    document: Document = {
        "infoVersion": version,
        "serverAddress": _address_json(settings.address, settings.tls),
        "serverVersion": settings.version,
        "topicTable": {
            topic.name: msgspec.Raw(_ENCODER.encode(topic_info(topic, settings, grant)))
            for topic in visible_topics(broker, grant)
        },
        "trackerList": [{"address": address, "sslEnabled": False} for address in settings.trackers],
    }
    if (refusing := broker.refusing()) is not None:
        document["refusing"] = refusing.text
    if settings.memory_used is not None and (grant is None or grant.sees_everything):
        document["connectionCount"] = len(broker.sessions)
        if (memory_bytes := settings.memory_used()) is not None:
            document["memoryBytes"] = memory_bytes
        if settings.held is not None:
            document["heldBytes"] = settings.held()
    return document
