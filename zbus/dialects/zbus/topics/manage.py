"""Declaring, looking at, moving and removing topics and groups, and the small commands
(specification, sections 5.5-5.8 and 5.10-5.13)."""

from __future__ import annotations

import logging
from functools import partial

import attrs
import msgspec

from zbus.core.api import (
    SCHEDULES_PREFIX,
    TRANSACTIONS_PREFIX,
    Broker,
    BrokerError,
    Group,
    GroupOptions,
    GroupWish,
    Refusal,
    Ticket,
    Topic,
    TopicOptions,
    dead_letter_unknown,
    group_unknown,
    topic_unknown,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import encode_document, group_info, names, topic_info
from zbus.dialects.zbus.messages.consume import GroupPlan
from zbus.dialects.zbus.replies import (
    JSON,
    TEXT,
    Answered,
    CountReply,
    DeclareReply,
    NativeReply,
)
from zbus.dialects.zbus.request import legacy_flags as masks
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.request.positions import FORMS
from zbus.dialects.zbus.topics.declared import (
    first_place,
    group_changes,
    read_mask,
    read_words,
    topic_changes,
)
from zbus.dialects.zbus.topics.schemas import SchemaWords
from zbus.dialects.zbus.topics.webhooks import PushWords
from zbus.edge.access import Grant
from zbus.edge.connection import Connection

log = logging.getLogger("zbus")

_MAKING_WORK, _DISCARDING_WORK, _MOVING_WORK = 200, 20, 20
"""What each partition costs a connection of its turn, in microseconds or so: files are made."""

_OF_ONE_PARTITION = (SCHEDULES_PREFIX, TRANSACTIONS_PREFIX, "semq.")
"""Begin the names of topics of which the broker itself uses partition 0."""


class Declare:
    """Creates a topic or group, or changes it. Fields that are absent change nothing."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect = dialect
        self.params = params
        params.check_names()
        self.topic_changes = topic_changes(params, dialect.broker.limits.partitions_max)
        self.topic_words = read_words(params, masks.TOPIC_WORDS)
        self.topic_mask = read_mask(params, b"topic_mask", masks.TOPIC_WORDS, self.topic_words)
        durability = self.topic_changes.get("durability")
        if (self.topic_mask or 0) & masks.MEMORY and durability in ("os", "disk"):
            raise BadRequest(400, "400: Bad Format, a memory topic is not durable")
        self.group_words = read_words(params, masks.GROUP_WORDS)
        self.group_mask = read_mask(params, b"group_mask", masks.GROUP_WORDS, self.group_words)
        self.group_changes = group_changes(params)
        self.push = PushWords(dialect, params)
        self.start = first_place(params)
        self.schema = SchemaWords(params)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        ticket = DeclareReply(self.dialect, self.params, peer, id, self.params.group_wished)
        broker, name = self.dialect.broker, self.params.topic
        topic, grant = broker.topic(name), peer.grant
        schema = self.schema.read(body, topic)
        if isinstance(schema, BrokerError):
            ticket.settle(schema)
            return
        peer.work -= len(schema) >> 4
        there = 0 if topic is None else len(topic.partitions)
        count = self.topic_changes.get("partitions") or there or 1
        peer.work -= _MAKING_WORK * max(0, count - there)
        text = ""
        if not name.lower().startswith(_OF_ONE_PARTITION):
            pass
        elif there and count != there:
            text = "a topic of the broker's own keeps the number of its partitions"
        elif self.topic_changes.get("compact"):
            text = "a topic of the broker's own keeps messages without keys: it is not compact"
        if text:
            ticket.settle(BrokerError(Refusal.ILLEGAL, text))
            return
        # What is true of a topic is true of all its groups, so it is for those who may all of them.
        fixed = None
        if topic is not None and grant is not None and not grant.sees_all(topic.name):
            fixed = topic.options
        if fixed is not None and self._topic_options(topic, schema) != fixed:
            text = f"this token covers only some groups of Topic({name})"
            text += "; changing a topic needs all of them"
            ticket.settle(BrokerError(Refusal.FORBIDDEN, text))
            return

        if self.push.forbidden(grant):
            text = f"this token may not consume from Topic({name}), so nothing of it is sent"
            ticket.settle(BrokerError(Refusal.FORBIDDEN, text))
            return
        dead_letter = self.group_changes.get("dead_letter")
        if dead_letter and grant is not None:
            # A client that has messages put there could put them there itself.
            if not grant.sees(dead_letter):
                ticket.settle(dead_letter_unknown(dead_letter))
                return
            if not grant.may("produce"):
                text = f"this token may not produce to Topic({dead_letter})"
                ticket.settle(BrokerError(Refusal.FORBIDDEN, text))
                return

        def wished(topic: Topic | None) -> tuple[TopicOptions, GroupWish | None]:
            kept = None if fixed is None or topic is None else topic.options
            return kept or self._topic_options(topic, schema), self._wish(topic)

        broker.declare(ticket, name, wished)

    def _topic_options(self, topic: Topic | None, schema: str) -> TopicOptions:
        if topic is not None:
            options = topic.options
            if self.topic_mask is not None or self.topic_words:
                # What a topic is kept in is fixed at creation.
                known = masks.topic_mask(options)
                mask = known if self.topic_mask is None else self.topic_mask
                mask = mask & ~masks.MEMORY | known & masks.MEMORY
                options = masks.with_topic_mask(options, masks.with_words(mask, self.topic_words))
        else:
            options = self._new_topic()
        if self.topic_changes:
            options = attrs.evolve(options, **self.topic_changes)
        return self.schema.applied(options, schema)

    def _new_topic(self) -> TopicOptions:
        settings, durability = self.dialect.settings, self.topic_changes.get("durability")
        mask = masks.with_words(self.topic_mask or 0, self.topic_words)
        if self.topic_mask is None and durability is None and mask & (masks.RPC | masks.PROXY):
            durability = "memory"  # no request waits for the answer to a call from before a restart
        if durability == "memory":
            mask |= masks.MEMORY
        kept = self.topic_changes.get("compact")  # for ever, unless this request says otherwise
        options = TopicOptions(
            self.params.topic,
            durability="memory" if mask & masks.MEMORY else durability or settings.durability,
            retention_ms=0 if kept else settings.retention_ms,
            retention_bytes=0 if kept else settings.retention_bytes,
        )
        options = masks.with_topic_mask(options, mask)
        return attrs.evolve(options, minimal_headers=not options.calls)

    def _wish(self, topic: Topic | None) -> GroupWish | None:
        params = self.params
        name = params.group
        auto = params.flag(b"group_name_auto")
        if auto:
            name = _free_name(topic) if topic else params.topic
        elif not name:
            # A client that declares just a topic can consume from it: it gets a group of its name,
            # which is also the one that parameters of a group without its name are meant for.
            name = topic.name if topic else params.topic
            if topic is not None and topic.group(name) is not None and not self._about_group():
                return None
        group = topic.group(name) if topic and not auto else None
        options = group.options if group else GroupOptions()
        unclaimed = not (params.group_wished or self._about_group()) and (
            group is None or options.unclaimed
        )
        options = attrs.evolve(options, unclaimed=unclaimed)
        if self.group_mask is not None:
            options = masks.with_group_mask(options, self.group_mask)
        if self.group_words:
            options = masks.with_group_words(options, self.group_words)
        if self.group_changes:
            options = attrs.evolve(options, **self.group_changes)
        options = self.push.applied(options)
        return GroupWish(name, options, self.start)

    def _about_group(self) -> bool:
        fields = self.params.fields
        named = any(name.startswith((b"group_", b"push_")) for name in fields)
        return bool(self.group_words) or named


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


def query(dialect: Context, params: Params) -> Answered:
    """What the server, a topic or a group is like now."""
    of_server = not params.topic or params.cmd == b"server"
    answer = partial(_tell, of_server, params.flag(b"names"))
    return Answered(answer, dialect, params)


def _tell(of_server: bool, only_names: bool, reply: NativeReply) -> None:
    dialect, grant = reply.dialect, reply.peer.grant
    found = (None, None) if of_server else find(dialect.broker, reply.params, grant)
    if isinstance(found, BrokerError):
        reply.settle(found)
        return
    topic, group = found
    if only_names:
        document = msgspec.json.encode(names(dialect.broker, topic, grant))
    elif topic is None:
        document = dialect.tracking.server_answer(grant)
    elif group is None:
        document = encode_document(topic_info(topic, dialect.settings, grant))
    else:
        document = encode_document(group_info(group, positions=True))
    reply.respond(200, JSON, document)


class Seek(GroupPlan):
    """Moves a group that exists. A `declare` says what something is to be like, and is repeated by
    everybody at each start: it leaves groups where they are."""

    __slots__ = ("start",)

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        params.check_names()
        start = params.start(b"from")
        if start is None:
            raise BadRequest(400, f"400: Bad Format, Missing from: {FORMS}")
        self.start = attrs.evolve(start, partition=params.number(b"partition"))

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        ticket = DeclareReply(self.dialect, self.params, peer, id, True)
        found = self.find()
        if isinstance(found, BrokerError):
            ticket.settle(found)
        else:
            topic, group = found
            peer.work -= _MOVING_WORK * len(topic.partitions)
            self.dialect.broker.seek(ticket, group, self.start)


class Discard:
    """What `remove` and `empty` have in common: a topic, or one group of it."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = CountReply(self._dialect, self._params, peer, id)
        found = find(self._dialect.broker, self._params)
        if isinstance(found, BrokerError):
            reply.settle(found)
        else:
            topic, group = found
            done = "removing" if self._params.cmd == b"remove" else "emptying"
            fields = {"topic": topic.name, "group": group.name if group else ""}
            log.debug(done, extra={"peer": peer.address, **fields})
            peer.work -= _DISCARDING_WORK * len(topic.partitions)
            self.discard(self._dialect.broker, reply, topic, group)

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

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self._keeps_leased = params.switch(b"keep_leased")
        if self._keeps_leased and not params.group:
            raise BadRequest(400, "400: Bad Format, keep_leased needs consume_group")

    def discard(self, broker: Broker, ticket: Ticket, topic: Topic, group: Group | None) -> None:
        if group is None:
            broker.purge_topic(ticket, topic)
        elif self._keeps_leased:
            broker.drop_waiting(ticket, group)
        else:
            broker.purge_group(ticket, group)


class Pause(GroupPlan):
    """Holds the deliveries of a group back, or goes on with them."""

    __slots__ = ()

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        ticket = DeclareReply(self.dialect, self.params, peer, id, of_group=True)
        found = self.find()
        if isinstance(found, BrokerError):
            ticket.settle(found)
            return
        topic, group = found
        options = attrs.evolve(group.options, paused=self.params.cmd == b"pause")
        wish = GroupWish(group.name, options)
        self.dialect.broker.declare(ticket, topic.name, lambda _: (topic.options, wish))


def heartbeat(reply: NativeReply) -> None:
    """Keeps a connection alive; never answered on the zbus protocol."""
    reply.respond(204)


def ping(reply: NativeReply) -> None:
    """Answers with the time."""
    reply.respond(200, TEXT, b"%d" % reply.dialect.broker.now_ms)


def version(reply: NativeReply) -> None:
    """Answers with the broker's version."""
    reply.respond(200, TEXT, reply.dialect.settings.version.encode())
