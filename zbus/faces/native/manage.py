"""Declaring, looking at and removing topics and groups, and the small commands (specification,
sections 5.5-5.8 and 5.10-5.13)."""

from __future__ import annotations

import logging
from typing import Any

import attrs
import msgspec

from zbus.core.broker import Broker
from zbus.core.declare import DURABILITIES, Check, GroupWish, Start
from zbus.core.errors import BrokerError, Refusal, group_unknown, topic_unknown
from zbus.core.state import GroupOptions, TopicOptions
from zbus.core.ticket import Ticket
from zbus.core.topic import Group, Topic
from zbus.faces.access import Grant
from zbus.faces.native import masks
from zbus.faces.native.context import Context
from zbus.faces.native.info import encode_document, group_info, names, topic_info
from zbus.faces.native.params import BadRequest, Params
from zbus.faces.native.replies import JSON, TEXT, DeclareReply, NativeReply
from zbus.faces.native.vocabulary import GROUP_ORDERS
from zbus.faces.peer import Peer

log = logging.getLogger("zbus")

_RETENTION = (b"retention_ms", b"retention_bytes", b"retention_count")
"""Parameters that limit how much of a topic is kept."""


_MAKING_WORK, _DISCARDING_WORK = 200, 20
"""What each partition costs a connection of its turn, in microseconds or so: files are made."""


class Declare:
    """Creates a topic or group, or changes it. Fields that are absent change nothing."""

    def __init__(self, face: Context, params: Params) -> None:
        if not params.topic:
            raise BadRequest(400, "400: Bad Format, Missing topic")
        self.face = face
        self.params = params
        params.check_query()
        self.topic_mask = params.number(b"topic_mask")
        # How many there may be is the core's to judge.
        self.partitions = params.number(b"partitions", 1 << 16)
        self.durability = params.text(b"durability")
        if self.durability is not None and self.durability not in DURABILITIES:
            raise BadRequest(400, "400: Bad Format, durability is one of memory, os, disk")
        if (self.topic_mask or 0) & masks.MEMORY and self.durability in ("os", "disk"):
            raise BadRequest(400, "400: Bad Format, a memory topic is not durable")
        self.retention: dict[str, Any] = {
            name.decode(): number
            for name in _RETENTION
            if (number := params.number(name)) is not None
        }
        if b"retention_done" in params.fields:
            self.retention["retention_done"] = params.flag(b"retention_done")
        self.dedupe_ms = params.number(b"dedupe_ms")
        self.group_mask = params.number(b"group_mask")
        self.filter = params.text(b"group_filter")
        self.window = params.number(b"group_ack_window")
        self.lease_ms = params.number(b"group_ack_timeout")
        self.order = params.text(b"group_order")
        if self.order is not None and self.order not in GROUP_ORDERS:
            raise BadRequest(400, "400: Bad Format, group_order is one of none, key")
        start_offset = params.number(b"group_start_offset")
        self.start = Start(
            copy=params.text(b"group_start_copy") or "",
            offset=start_offset,
            check=_has_id(params.fields.get(b"group_start_msgid", b""), start_offset),
            time_ms=params.number(b"group_start_time"),
            partition=params.number(b"partition"),
        )

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        ticket = DeclareReply(self.face, self.params, peer, id)
        broker, name = self.face.broker, self.params.topic
        topic, grant = broker.topic(name), peer.grant
        if topic is None:
            peer.work -= _MAKING_WORK * (self.partitions or 1)
        # What is true of a topic is true of all its groups, so it is for those who may all of them.
        fixed = None
        if topic is not None and grant is not None and not grant.sees_all(topic.name):
            fixed = topic.options
        if fixed is not None and self._topic_options(topic) != fixed:
            text = f"this token has not all groups of Topic({name}), so it may not change the topic"
            ticket.settle(BrokerError(Refusal.FORBIDDEN, text))
            return

        def wished(topic: Topic | None) -> tuple[TopicOptions, GroupWish | None]:
            kept = None if fixed is None or topic is None else topic.options
            return kept or self._topic_options(topic), self._wish(topic)

        broker.declare(ticket, name, wished)

    def _topic_options(self, topic: Topic | None) -> TopicOptions:
        mask = self.topic_mask
        if topic is not None:
            options = topic.options
            if mask is not None:
                # What a topic is kept in is fixed at creation.
                kept = masks.topic_mask(options) & masks.MEMORY
                options = masks.with_topic_mask(options, mask & ~masks.MEMORY | kept)
        else:
            durability = self.durability or self.face.settings.durability
            in_memory = bool((mask or 0) & masks.MEMORY)
            options = TopicOptions(
                self.params.topic,
                durability="memory" if in_memory else durability,
                retention_ms=self.face.settings.retention_ms,
                retention_bytes=self.face.settings.retention_bytes,
            )
            if self.durability == "memory":
                mask = (mask or 0) | masks.MEMORY
            options = masks.with_topic_mask(options, mask or 0)
        if self.partitions is not None:
            options = attrs.evolve(options, partitions=self.partitions)
        if self.durability is not None:
            options = attrs.evolve(options, durability=self.durability)
        if self.retention:
            options = attrs.evolve(options, **self.retention)
        if self.dedupe_ms is not None:
            options = attrs.evolve(options, dedupe_ms=self.dedupe_ms)
        return options

    def _wish(self, topic: Topic | None) -> GroupWish | None:
        params = self.params
        name = params.group
        auto = params.flag(b"group_name_auto")
        if auto:
            name = _free_name(topic) if topic else params.topic
        elif not name:
            # Whoever declares just a topic can consume from it: it gets a group of its name,
            # which is also the one that parameters of a group without its name are meant for.
            name = topic.name if topic else params.topic
            if topic is not None and topic.group(name) is not None and not self._about_group():
                return None
        group = topic.group(name) if topic and not auto else None
        options = group.options if group else GroupOptions()
        if self.group_mask is not None:
            options = masks.with_group_mask(options, self.group_mask)
        if self.filter is not None:
            options = attrs.evolve(options, filter=self.filter)
        if self.window is not None:
            options = attrs.evolve(options, window=self.window)
        if self.lease_ms is not None:
            options = attrs.evolve(options, lease_ms=self.lease_ms)
        if self.order is not None:
            options = attrs.evolve(options, order="" if self.order == "none" else self.order)
        return GroupWish(name, options, self.start)

    def _about_group(self) -> bool:
        return any(name.startswith(b"group_") for name in self.params.fields)


def _has_id(id: bytes, offset: int | None) -> Check | None:
    """What `group_start_msgid` asks of the message at that offset."""
    if not id:
        return None
    text = f"the message at offset {offset} has another id"
    return lambda found: None if found == id else text


def _free_name(topic: Topic) -> str:
    """The topic's name, or the first of name0, name1, ... that no group of it has. A topic of
    services has one group, whatever it is called."""
    name, number = topic.name, 0
    if topic.competing:
        return name
    while topic.group(name) is not None:
        name = f"{topic.name}{number}"
        number += 1
    return name


def find(
    broker: Broker, params: Params, grant: Grant | None = None
) -> tuple[Topic, Group | None] | BrokerError:
    """The topic and, if the request names one, the group. What a grant may not see is not there."""
    topic = broker.topic(params.topic)
    if topic is None or (grant is not None and not grant.sees(topic.name)):
        return topic_unknown(params.topic)
    if not params.group:
        return topic, None
    group = topic.group(params.group)
    if group is None or (grant is not None and not grant.sees(topic.name, group.name)):
        return group_unknown(params.group)
    return topic, group


class Query:
    """What the server, a topic or a group is like now."""

    def __init__(self, face: Context, params: Params) -> None:
        self._face = face
        self._params = params
        self._server = not params.topic or params.cmd == b"server"
        self._names = params.flag(b"names")

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        face, params = self._face, self._params
        reply = NativeReply(face, params, peer, id)
        if self._server:
            if self._names:
                self._tell_names(reply, None, peer.grant)
                return
            reply.tell(200, JSON, face.tracking.server_answer(peer.grant))
            return
        found = find(face.broker, params, peer.grant)
        if isinstance(found, BrokerError):
            reply.settle(found)
            return
        topic, group = found
        if self._names:
            self._tell_names(reply, topic, peer.grant)
            return
        document = (
            topic_info(topic, face.settings, peer.grant) if group is None else group_info(group)
        )
        reply.tell(200, JSON, encode_document(document))

    def _tell_names(self, reply: NativeReply, topic: Topic | None, grant: Grant | None) -> None:
        found = names(self._face.broker, topic, grant)
        reply.tell(200, JSON, msgspec.json.encode(found))


class Discard:
    """What `remove` and `empty` have in common: a topic, or one group of it."""

    def __init__(self, face: Context, params: Params) -> None:
        if not params.topic:
            raise BadRequest(400, "400: Bad Format, Missing topic")
        self._face = face
        self._params = params

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        reply = NativeReply(self._face, self._params, peer, id)
        found = find(self._face.broker, self._params)
        if isinstance(found, BrokerError):
            reply.settle(found)
        else:
            topic, group = found
            done = "removing" if self._params.cmd == b"remove" else "emptying"
            fields = {"topic": topic.name, "group": group.name if group else ""}
            log.debug(done, extra={"peer": peer.address, **fields})
            peer.work -= _DISCARDING_WORK * len(topic.partitions)
            self.discard(self._face.broker, reply, topic, group)

    def discard(self, broker: Broker, ticket: Ticket, topic: Topic, group: Group | None) -> None:
        raise NotImplementedError


class Remove(Discard):
    """Deletes it."""

    def discard(self, broker: Broker, ticket: Ticket, topic: Topic, group: Group | None) -> None:
        if group is None:
            broker.remove_topic(ticket, topic)
        else:
            broker.remove_group(ticket, group)


class Purge(Discard):
    """Empties it; offsets go on from where they are."""

    def discard(self, broker: Broker, ticket: Ticket, topic: Topic, group: Group | None) -> None:
        if group is None:
            broker.purge_topic(ticket, topic)
        else:
            broker.purge_group(ticket, group)


class Heartbeat:
    """Keeps a connection alive; never answered on the zbus protocol."""

    def __init__(self, face: Context, params: Params) -> None:
        self._face = face
        self._params = params

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        if not self._params.multiplexed:
            NativeReply(self._face, self._params, peer, id).tell(204)


class Ping:
    """Answers with the time."""

    def __init__(self, face: Context, params: Params) -> None:
        self._face = face
        self._params = params

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        body = b"%d" % self._face.broker.now_ms
        NativeReply(self._face, self._params, peer, id).tell(200, TEXT, body)


class Version(Ping):
    """Answers with the broker's version."""

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        body = self._face.settings.version.encode()
        NativeReply(self._face, self._params, peer, id).tell(200, TEXT, body)
