"""The JSON documents of the dialect (specification, section 7): keys sorted, nulls left out."""

from __future__ import annotations

from typing import Any

import msgspec

from zbus.core.broker import Broker
from zbus.core.group import Group
from zbus.core.topic import Topic
from zbus.faces.zbus.settings import ZbusSettings

Document = dict[str, Any]  # JSON


def encode_document(document: Document) -> bytes:
    return msgspec.json.encode(document, order="sorted")


def address_info(settings: ZbusSettings) -> Document:
    return {"address": settings.address, "sslEnabled": False}


def group_info(group: Group) -> Document:
    """ConsumeGroupInfo, with what this broker knows beyond it."""
    document: Document = {
        "consumerCount": len(group.readers),
        "consumerList": ["/" + session.address for session in group.readers],
        "createdTime": group.options.created_ms,
        "delayedCount": group.delayed_count(),
        "groupName": group.name,
        "lastUpdatedTime": group.updated_ms,
        "leasedCount": group.leased_count(),
        "mask": group.options.mask,
        "messageCount": group.ready_count(),
        "topicName": group.topic.name,
    }
    if group.options.filter:
        document["filter"] = group.options.filter
    return document


def topic_info(topic: Topic, settings: ZbusSettings) -> Document:
    """TopicInfo, with what this broker knows beyond it."""
    return {
        "consumeGroupList": [group_info(group) for group in topic.groups.values()],
        "consumerCount": topic.readers(),
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


def server_info(broker: Broker, settings: ZbusSettings, version: int) -> Document:
    """ServerInfo. `version` only grows, across restarts too: clients ignore older ones."""
    return {
        "infoVersion": version,
        "serverAddress": address_info(settings),
        "serverVersion": settings.version,
        "topicTable": {t.name: topic_info(t, settings) for t in broker.topics.values()},
        "trackerList": [],
    }
