"""The JSON documents of the dialect (specification, section 7): keys sorted, nulls left out. With a
grant they hold what it may see; None sees everything."""

from __future__ import annotations

from typing import Any

import msgspec

from zbus.core.broker import Broker
from zbus.core.group import Group
from zbus.core.topic import Topic
from zbus.faces.access import Grant
from zbus.faces.zbus.settings import ZbusSettings

Document = dict[str, Any]  # JSON


def encode_document(document: Document) -> bytes:
    return msgspec.json.encode(document, order="sorted")


def address_info(settings: ZbusSettings) -> Document:
    return {"address": settings.address, "sslEnabled": settings.tls}


def group_info(group: Group) -> Document:
    """ConsumeGroupInfo, with what this broker knows beyond it."""
    document: Document = {
        "ackRequired": group.lease,
        "ackTimeout": group.options.lease_ms,
        "ackWindow": group.options.window,
        "consumerCount": len(group.readers),
        "consumerList": ["/" + session.address for session in group.readers],
        "createdTime": group.options.created_ms,
        "delayedCount": group.delayed_count(),
        "groupName": group.name,
        "lastUpdatedTime": group.updated_ms,
        "leasedCount": group.leased_count(),
        "mask": group.options.mask,
        "messageCount": group.ready_count(),
        "skippedCount": group.skipped_count(),
        "topicName": group.topic.name,
    }
    if group.options.filter:
        document["filter"] = group.options.filter
    return document


def topic_info(topic: Topic, settings: ZbusSettings, grant: Grant | None = None) -> Document:
    """TopicInfo, with what this broker knows beyond it."""
    options = topic.options
    groups = visible_groups(topic, grant)
    document: Document = {
        "consumeGroupList": [group_info(group) for group in groups],
        "consumerCount": sum(len(group.readers) for group in groups),
        "createdTime": topic.options.created_ms,
        "dedupeMs": topic.options.dedupe_ms,
        "durability": topic.options.durability,
        "lastUpdatedTime": topic.updated_ms,
        "mask": topic.options.mask,
        "messageDepth": topic.depth(),
        "partitionCount": len(topic.partitions),
        "serverAddress": address_info(settings),
        "serverVersion": settings.version,
        "topicName": topic.name,
    }
    if options.retention_ms:
        document["retentionMs"] = options.retention_ms
    if options.retention_bytes:
        document["retentionBytes"] = options.retention_bytes
    if options.retention_count:
        document["retentionCount"] = options.retention_count
    if options.retention_done:
        document["retentionDone"] = True
    return document


def visible_groups(topic: Topic, grant: Grant | None) -> list[Group]:
    """The groups of a topic that a grant may see."""
    return [g for g in topic.groups.values() if grant is None or grant.sees(topic.name, g.name)]


def visible_topics(broker: Broker, grant: Grant | None) -> list[Topic]:
    """The topics that a grant may see."""
    return [t for t in broker.topics.values() if grant is None or grant.sees(t.name)]


def server_info(
    broker: Broker, settings: ZbusSettings, version: int, grant: Grant | None = None
) -> Document:
    """ServerInfo. `version` only grows, across restarts too: clients ignore older ones."""
    document: Document = {
        "infoVersion": version,
        "serverAddress": address_info(settings),
        "serverVersion": settings.version,
        "topicTable": {
            topic.name: topic_info(topic, settings, grant)
            for topic in visible_topics(broker, grant)
        },
        "trackerList": [{"address": address, "sslEnabled": False} for address in settings.trackers],
    }
    if broker.refusing is not None:
        document["refusing"] = broker.refusing.text
    return document
