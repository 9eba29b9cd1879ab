"""`GET /_asyncapi.json`: the topics as AsyncAPI 3.0, with the schemas of their messages.

It is made anew with every request, of the topics that the caller may see. It describes the broker:
what clients put is what it receives, and what they take is what it sends.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from zbus.core.api import SCHEDULES_PREFIX, TRANSACTIONS_PREFIX, Topic, moved_schema
from zbus.dialects.zbus.documents.info import visible_topics
from zbus.dialects.zbus.replies import JSON, NativeReply

_INTERNAL: Final = (SCHEDULES_PREFIX, TRANSACTIONS_PREFIX)
_FORMATS: Final = {"draft-07": "draft-07", "2019-09": "draft-2019-09"}
_BINDING: Final = {"bindingVersion": "0.3.0"}
_CONSUMES: Final = {
    "type": "object",
    "required": ["cmd"],
    "properties": {"cmd": {"const": "consume"}},
}


def asyncapi(reply: NativeReply) -> None:
    """Answers with the document."""
    topics = [
        topic
        for topic in visible_topics(reply.dialect.broker, reply.peer.grant)
        if not (topic.options.calls or topic.name.startswith(_INTERNAL))
    ]
    settings = reply.dialect.settings
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "zbus", "version": settings.version},
        "servers": {
            "zbus": {"host": settings.address, "protocol": "https" if settings.tls else "http"}
        },
        "channels": {topic.name: _channel(topic) for topic in topics},
        "operations": {name: of for topic in topics for name, of in _operations(topic.name)},
    }
    reply.respond(200, JSON, msgspec.json.encode(document, order="sorted"))


def _channel(topic: Topic) -> dict[str, Any]:
    message: dict[str, Any] = {"title": f"A message of {topic.name}"}
    schema = topic.options.schema
    if schema is not None:
        place = f"{_place(topic.name)}/messages/message/payload/schema"
        own = msgspec.json.decode(schema.newest)
        dialect = own.get("$schema", "") if isinstance(own, dict) else ""
        named = [name for part, name in _FORMATS.items() if part in dialect]
        version = named[0] if named else "draft-2020-12"
        message |= {
            "contentType": "application/json",
            "payload": {
                "schemaFormat": f"application/schema+json;version={version}",
                "schema": moved_schema(own, place),
            },
            "x-schema-version": str(schema.number),
        }
    return {
        "address": f"/{quote(topic.name, safe='')}",
        "title": topic.name,
        "messages": {"message": message},
    }


def _operations(name: str) -> list[tuple[str, dict[str, Any]]]:
    channel = {"$ref": f"#{_place(name)}"}
    consume = {"method": "GET", "query": _CONSUMES, **_BINDING}
    return [
        (
            f"produce {name}",
            {
                "action": "receive",
                "channel": channel,
                "bindings": {"http": {"method": "POST", **_BINDING}},
            },
        ),
        (
            f"consume {name}",
            {"action": "send", "channel": channel, "bindings": {"http": consume}},
        ),
    ]


def _place(name: str) -> str:
    """Of a channel, as a reference has it (RFC 6901, section 6)."""
    return f"/channels/{quote(name.replace('~', '~0').replace('/', '~1'), safe='~')}"
