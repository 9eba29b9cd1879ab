"""Who may produce what and consume what: producers and consumers, each of one topic.

Both are written down with their topic (`TopicOptions.notes`): they are as durable as it is, leave
with it, and are in every backup. A consumer of the clustering kind is a group of the topic,
of its name, which other dialects can read as well. Of the broadcast kind each client has a group of
its own, `consumer:client`, made by its first request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import attrs
import msgspec

from zbus.core.api import (
    Broker,
    BrokerError,
    Group,
    GroupOptions,
    GroupWish,
    Opening,
    Partition,
    Refusal,
    Start,
    Ticket,
    Topic,
    TopicOptions,
    name_problem,
    topic_unknown,
)
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.documents import NOT_JSON
from zbus.edge.connection import Connection
from zbus.option import listed

WINDOW: Final = 1 << 31
"""Messages of a group that may be in the hands of consumers: one batch of each queue limits it."""

_ENTRIES_MAX: Final = 1_000
"""Producers, and consumers, of one topic."""

_BEGIN, _END = Start(offset=0), Start(latest=True)
_TOPICS_PER_WORK: Final = 4
"""Topics that are looked at in about a microsecond."""


class Way(IntEnum):
    """`consumeWay`."""

    CLUSTERING = 0  # each message goes to one client
    BROADCAST = 1  # and to each client


class Consumer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written down of a consumer."""

    way: int
    first: str  # where it begins: earliest or latest
    pull_size: int
    consume_timeout_ms: int
    limit_rate: int  # messages a second
    limited: bool = True
    paused: bool = False
    pull_timeout_ms: int = 10_000  # stored and shown only: a read of a log here takes no such time

    @property
    def broadcast(self) -> bool:
        return self.way == Way.BROADCAST

    def applied(self, options: GroupOptions) -> GroupOptions:
        """A group's options, as this consumer wants them."""
        return attrs.evolve(
            options,
            lease=True,
            lease_ms=self.consume_timeout_ms,
            window=WINDOW,
            one_batch=True,
            rate_per_s=self.limit_rate if self.limited else 0,
            paused=self.paused,
            unclaimed=False,
        )


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written down with a topic."""

    producers: tuple[str, ...] = ()
    consumers: dict[str, Consumer] = {}

    def with_producer(self, name: str) -> Notes:
        return self if name in self.producers else Notes((*self.producers, name), self.consumers)

    def with_consumer(self, name: str, consumer: Consumer) -> Notes:
        return Notes(self.producers, {**self.consumers, name: consumer})

    def without(self, producer: str = "", consumer: str = "") -> Notes:
        return Notes(
            tuple(name for name in self.producers if name != producer),
            {name: one for name, one in self.consumers.items() if name != consumer},
        )


class Found(NamedTuple):
    """A consumer that is registered."""

    topic: Topic
    name: str
    consumer: Consumer

    def groups(self) -> list[tuple[str, Group]]:
        """Of all clients that there are, with their names; of a clustering consumer, its own."""
        if not self.consumer.broadcast:
            group = self.topic.group(self.name)
            return [] if group is None else [("", group)]
        begin = f"{self.name}:".lower()
        return [
            (group.name[len(begin) :], group)
            for name, group in self.topic.groups.items()
            if name.startswith(begin)
        ]


_NO_NOTES: Final = Notes()
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Notes).decode

_Changed = Callable[[Notes], Notes]


class Registry:
    def __init__(self, broker: Broker, settings: MqcloudSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._read: dict[str, tuple[str, Notes]] = {}  # topic -> its notes, and what they say
        self._producers: dict[str, Topic] = {}  # found before; it may be wrong by now
        self._turns: dict[str, int] = {}  # topic -> messages that went to its queues in turn
        self._configured = False

    # -- looking -------------------------------------------------------------------------------

    def _notes(self, topic: Topic | None) -> Notes:
        """What is written down with a topic."""
        text = "" if topic is None else topic.options.notes
        if topic is None or not text:
            return _NO_NOTES
        key = topic.name.lower()
        known = self._read.get(key)
        if known is None or known[0] is not text:
            try:
                notes = _decode(text)
            except NOT_JSON:  # another program wrote it
                notes = _NO_NOTES
            known = self._read[key] = text, notes
        return known[1]

    def all(self, peer: Connection | None = None) -> Iterator[tuple[Topic, Notes]]:
        """Every topic with what is written down with it, if there is something. Looking for it is
        work of the peer that asks."""
        topics = self._broker.topics
        if peer is not None:
            peer.work -= len(topics) // _TOPICS_PER_WORK
        for topic in topics.values():
            if topic.options.notes:
                yield topic, self._notes(topic)

    def topic_of(self, producer: str, peer: Connection | None = None) -> Topic | None:
        """The topic of a producer."""
        topic = self._producers.get(producer)
        there = topic is not None and not topic.partitions[0].removed
        if there and producer in self._notes(topic).producers:
            return topic
        self._producers.pop(producer, None)
        for topic, notes in self.all(peer):
            if producer in notes.producers:
                self._producers[producer] = topic
                return topic
        return None

    def consumer(self, name: str, peer: Connection | None = None) -> Found | None:
        """A consumer, of whatever topic."""
        for topic, notes in self.all(peer):
            if (known := notes.consumers.get(name)) is not None:
                return Found(topic, name, known)
        return None

    def consumer_of(self, topic_name: str, name: str) -> Found | None:
        """A consumer of this topic."""
        topic = self._broker.topic(topic_name)
        known = self._notes(topic).consumers.get(name)
        return None if topic is None or known is None else Found(topic, name, known)

    def next_queue(self, topic: Topic) -> Partition:
        """Strictly in turn, whatever else comes to the topic."""
        key = topic.name.lower()
        turn = self._turns[key] = self._turns.get(key, -1) + 1
        return topic.partitions[turn % len(topic.partitions)]

    def forget_gone(self) -> None:
        """What is known of topics that are no more."""
        topics = self._broker.topics
        self._turns = {key: turn for key, turn in self._turns.items() if key in topics}
        self._read = {key: read for key, read in self._read.items() if key in topics}

    # -- changing ------------------------------------------------------------------------------

    def new_consumer(self, way: int, first: str = "") -> Consumer:
        settings = self._settings
        return Consumer(
            way,
            first or settings.mqcloud_first,
            settings.mqcloud_pull_size,
            settings.mqcloud_consume_timeout_ms,
            settings.mqcloud_limit_rate,
        )

    def configure(self) -> None:
        """Register those that the options of the broker name; once is enough."""
        if self._configured:
            return
        self._configured = True
        for item in listed(self._settings.mqcloud_producers):
            name, _, topic = item.partition("=")
            if self._settings.keeps(topic):
                self.register_producer(Opening(), topic, name)
        for item in listed(self._settings.mqcloud_consumers):
            name, _, rest = item.partition("=")
            topic, _, kind = rest.partition(":")
            way = Way.BROADCAST if kind else Way.CLUSTERING
            if self._settings.keeps(topic):
                self.register_consumer(Opening(), topic, name, self.new_consumer(way))

    def register_producer(self, ticket: Ticket, topic_name: str, name: str) -> None:
        """Settles with Declared when that is durable. Twice is once."""
        known = self.topic_of(name)
        if (text := name_problem(name)) is not None:
            ticket.settle(_illegal(f"{name[:40]!r}: {text}"))
        elif known is not None and known.name.lower() != topic_name.lower():
            text = f"producer {name} is registered for the topic {known.name}"
            ticket.settle(_illegal(text))
        else:
            self._write(ticket, topic_name, lambda notes: notes.with_producer(name))

    def register_consumer(
        self, ticket: Ticket, topic_name: str, name: str, wanted: Consumer
    ) -> None:
        """The same. One that is registered already stays as it is."""
        known = self.consumer(name)
        text = self._consumer_problem(topic_name, name)
        if text is None and known is not None:
            if known.topic.name.lower() != topic_name.lower():
                text = f"consumer {name} is registered for the topic {known.topic.name}"
            elif known.consumer.way != wanted.way:
                text = f"consumer {name} is of the kind {Way(known.consumer.way).name.lower()}"
        if text is not None:
            ticket.settle(_illegal(text))
            return
        consumer = wanted if known is None else known.consumer
        self._write(
            ticket,
            topic_name,
            lambda notes: notes if known else notes.with_consumer(name, consumer),
            None if consumer.broadcast else (name, consumer),
        )

    def _consumer_problem(self, topic_name: str, name: str) -> str | None:
        text = name_problem(name)
        if text is None and ":" in name:
            text = "a colon stands between a consumer and its client"
        if text is not None:
            return f"{name[:40]!r}: {text}"
        # Names of groups that differ in capital letters alone are one: two consumers would be.
        for other in self._notes(self._broker.topic(topic_name)).consumers:
            if other != name and other.lower() == name.lower():
                return f"consumer {other} differs in letters' case only"
        return None

    def change(self, ticket: Ticket, found: Found, consumer: Consumer) -> None:
        """Give a consumer other settings, and all its groups."""
        for _, group in found.groups():
            wish = GroupWish(group.name, consumer.applied(group.options))
            if (problem := self._declare(found.topic, wish)) is not None:
                ticket.settle(problem)
                return
        name = found.name
        self._write(ticket, found.topic.name, lambda notes: notes.with_consumer(name, consumer))

    def unregister_producer(self, ticket: Ticket, topic: Topic, name: str) -> None:
        self._write(ticket, topic.name, lambda notes: notes.without(producer=name))

    def unregister_consumer(self, ticket: Ticket, found: Found) -> None:
        """Its groups, and with them how far they are, go as well."""
        for _, group in found.groups():
            self._broker.remove_group(Opening(), group)
        self._write(ticket, found.topic.name, lambda notes: notes.without(consumer=found.name))

    def group(self, found: Found, client: str) -> Group | BrokerError:
        """The group of a consumer, or of its client, made if there is none."""
        topic, consumer, most = found.topic, found.consumer, self._settings.mqcloud_clients_max
        name = f"{found.name}:{client}" if consumer.broadcast else found.name
        group = topic.groups.get(name.lower())
        if group is not None:
            return group
        if consumer.broadcast and len(found.groups()) >= most:
            text = f"consumer {found.name} has {most} clients already"
            return BrokerError(Refusal.TOO_MANY, text)
        problem = self._declare(topic, _wish(name, consumer, None))
        return problem or topic.groups.get(name.lower()) or topic_unknown(topic.name)

    def _declare(self, topic: Topic, wish: GroupWish) -> BrokerError | None:
        """A group of a topic that stays as it is."""
        asked = Opening()
        self._broker.declare(asked, topic.name, lambda now: ((now or topic).options, wish))
        return asked.problem

    def _write(
        self,
        ticket: Ticket,
        topic_name: str,
        changed: _Changed,
        consumer: tuple[str, Consumer] | None = None,
    ) -> None:
        """Change what is written down with a topic, and declare what it lacks of it: the topic, and
        the group of a consumer."""
        settings = self._settings
        queues = min(settings.mqcloud_queues, settings.partitions_max)
        new = TopicOptions(topic_name, partitions=queues, durability=settings.durability)

        def wished(topic: Topic | None) -> tuple[TopicOptions, GroupWish | None]:
            notes = changed(self._notes(topic))
            text = "" if notes == _NO_NOTES else _encode(notes).decode()
            options = attrs.evolve(new if topic is None else topic.options, notes=text)
            if consumer is None:
                return options, None
            group = None if topic is None else topic.group(consumer[0])
            return options, _wish(*consumer, group)

        topic = self._broker.topic(topic_name)
        notes = changed(self._notes(topic))
        if topic is not None and topic.options.calls:
            ticket.settle(_illegal(f"{topic.name} is a topic of services"))
        elif max(len(notes.producers), len(notes.consumers)) > _ENTRIES_MAX:
            text = f"{topic_name} has {_ENTRIES_MAX} producers or consumers already"
            ticket.settle(BrokerError(Refusal.TOO_MANY, text))
        else:
            self._broker.declare(ticket, topic_name, wished)


def _wish(name: str, consumer: Consumer, group: Group | None) -> GroupWish:
    options = consumer.applied(GroupOptions() if group is None else group.options)
    return GroupWish(name, options, _END if consumer.first == "latest" else _BEGIN)


def _illegal(text: str) -> BrokerError:
    return BrokerError(Refusal.ILLEGAL, text)
