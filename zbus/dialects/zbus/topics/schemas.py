"""What a `declare` says of the schema of a topic, and `schema`, which shows one."""

from __future__ import annotations

from functools import partial

import attrs
import msgspec

from zbus.core.api import (
    SCHEMA_BYTES_MAX,
    BrokerError,
    Misfit,
    Refusal,
    Schema,
    Topic,
    TopicOptions,
    compile_schema,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import Answered, NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.documents import NOT_JSON

_NONE, _BODY = "none", "body"
_TYPE = b"content-type: application/schema+json\r\nschema_version: %d\r\nschema_first: %d\r\n"


class SchemaWords:
    """The parameters."""

    def __init__(self, params: Params) -> None:
        self._said = (params.text(b"schema") or "").strip()
        self._compatibility = params.word(b"schema_compatibility")

    def read(self, body: bytes, topic: Topic | None) -> str | BrokerError:
        """The schema that is asked for, as compact JSON; "" = nothing is said of it, and `none`.
        One that is no schema is refused."""
        if self._compatibility and not self._said and (topic is None or not topic.options.schema):
            return BrokerError(Refusal.ILLEGAL, "schema_compatibility is for topics with a schema")
        if self._said in ("", _NONE):
            return self._said
        text = body if self._said == _BODY else self._said.encode()
        try:
            if len(text) > SCHEMA_BYTES_MAX:
                raise Misfit(f"it has at most {SCHEMA_BYTES_MAX} bytes, not {len(text)}")
            schema = msgspec.json.format(text, indent=-1).decode()
            compile_schema(schema)
        except (Misfit, *NOT_JSON) as error:
            why = str(error) if isinstance(error, Misfit) else f"it is no JSON: {error}"
            return BrokerError(Refusal.ILLEGAL, f"schema: {why}")
        return schema

    def applied(self, options: TopicOptions, text: str) -> TopicOptions:
        """Options of a topic, with a schema that was read."""
        known = options.schema
        if text == _NONE:
            return attrs.evolve(options, schema=None)
        if known is not None and self._compatibility:
            known = attrs.evolve(known, compatibility=self._compatibility)
        if text and known is None:
            known = Schema((text,))
            if self._compatibility:
                known = attrs.evolve(known, compatibility=self._compatibility)
        elif text and known is not None:
            known = known.with_version(text)
        return attrs.evolve(options, schema=known)


def schema(dialect: Context, params: Params) -> Answered:
    """A version of a topic's schema, the newest if none is named."""
    return Answered(partial(_show, params.number(b"version")), dialect, params)


def _show(version: int | None, reply: NativeReply) -> None:
    topic, grant = reply.dialect.broker.topic(reply.params.topic), reply.peer.grant
    name = reply.params.topic
    if topic is None or (grant is not None and not grant.sees(topic.name)):
        reply.respond(404, body=f"404: Topic({name}) Not Found".encode())
        return
    known = topic.options.schema
    if known is None:
        reply.respond(404, body=f"404: Topic({name}) has no schema".encode())
        return
    number = known.number if version is None else version
    if not known.first <= number <= known.number:
        there = f"{known.first} to {known.number}"
        text = f"404: Topic({name}) has no version {number} of its schema: there are {there}"
        reply.respond(404, body=text.encode())
        return
    found = known.versions[number - known.number - 1]
    reply.respond(200, _TYPE % (number, known.first), found.encode())
