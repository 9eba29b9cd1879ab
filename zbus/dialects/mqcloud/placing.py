"""Where a request is done, if a server has several workers (`zbus.edge.places`): mostly where the
producer or consumer is registered that it names.
"""

from __future__ import annotations

import attrs
import msgspec

from zbus.dialects.mqcloud.context import MqcloudContext, not_registered
from zbus.dialects.mqcloud.replies import FAILED, NO_DATA, encode
from zbus.dialects.verbs import Fields, text_of
from zbus.documents import NOT_JSON
from zbus.edge.places import Named


def at_producer(context: MqcloudContext, fields: Fields, body: bytes) -> Named | None:
    """Where a producer is, or is going to be by its first request."""
    name = text_of(fields, b"producer")
    topic = name.removesuffix("-producer")
    makes = context.settings.mqcloud_auto_register and topic != name
    return _named(context, "producer", name, topic if makes else "")


def at_consumer(context: MqcloudContext, fields: Fields, body: bytes) -> Named | None:
    """Where a consumer is."""
    return _named(context, "consumer", text_of(fields, b"consumer"))


def at_either(context: MqcloudContext, fields: Fields, body: bytes) -> Named | None:
    """Where the one or the other is."""
    return at_producer(context, fields, body) or at_consumer(context, fields, body)


def at_settings(context: MqcloudContext, fields: Fields, body: bytes) -> Named | None:
    """Where a consumer is, for a verb that has its own answer if there is none."""
    found = at_consumer(context, fields, body)
    return found and attrs.evolve(found, unknown=encode({"status": NO_DATA}))


def at_document(context: MqcloudContext, fields: Fields, body: bytes) -> Named | None:
    """Where the consumer is that the body names."""
    try:
        return _named(context, "consumer", _read(body).consumer.strip())
    except NOT_JSON:
        return None


def at_registration(context: MqcloudContext, fields: Fields, body: bytes) -> Named | None:
    """At the topic, unless the name is registered for another one: all others are asked first."""
    topic, found = text_of(fields, b"topic"), at_either(context, fields, body)
    return attrs.evolve(found, name="", topic=topic) if topic and found else None


def _named(context: MqcloudContext, kind: str, name: str, topic: str = "") -> Named | None:
    if not name:
        return None
    registry = context.registry
    find = registry.topic_of if kind == "producer" else registry.consumer
    text = not_registered(kind, name)
    return Named(
        f"{kind}:{name}",
        lambda peer: find(name, peer) is not None,
        encode({"status": FAILED, "message": text}),
        topic,
    )


class _Consumer(msgspec.Struct):
    consumer: str


_read = msgspec.json.Decoder(_Consumer).decode
