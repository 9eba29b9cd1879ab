"""Who may produce what and consume what: producers and consumers, each of one topic.

Both are written down with their topic (`TopicOptions.notes`): they are as durable as it is, leave
leave with it, and are in every backup. A consumer of the clustering kind is a group of the topic,
of its name, which other dialects can read as well. Of the broadcast kind each client has a group of
its own, `consumer:client`, made by its first request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class Found(NamedTuple):
    """A consumer that is registered."""

    topic: Topic
    name: str
    consumer: Consumer

    def group_name(self, client: str) -> str:
        return f"{self.name}:{client}" if self.consumer.broadcast else self.name

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


NO_NOTES: Final = Notes()
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Notes).decode


class Registry:
    def __init__(self, broker: Broker, settings: MqcloudSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._read: dict[str, tuple[str, Notes]] = {}  # topic -> its notes, and what they say
        self._producers: dict[str, Topic] = {}  # found before; it may be wrong by now
        self._turns: dict[str, int] = {}  # topic -> messages that went to its queues in turn
        self._configured = False

    # -- looking -------------------------------------------------------------------------------

    def notes(self, topic: Topic) -> Notes:
        """What is written down with a topic."""
        text = topic.options.notes
        if not text:
            return NO_NOTES
        key = topic.name.lower()
        known = self._read.get(key)
        if known is None or known[0] is not text:
            try:
                notes = _decode(text)
            except NOT_JSON:  # another program wrote it
                notes = NO_NOTES
            known = self._read[key] = text, notes
        return known[1]

    def topic_of(self, producer: str) -> tuple[Topic | None, int]:
        """The topic of a producer, and what work it was to find it."""
        topic = self._producers.get(producer)
        if topic is not None and self._has(topic, producer):
            return topic, 0
        self._producers.pop(producer, None)
        topics = self._broker.topics
        work = len(topics) // _TOPICS_PER_WORK
        for topic in topics.values():
            if topic.options.notes and producer in self.notes(topic).producers:
                self._producers[producer] = topic
                return topic, work
        return None, work

    def _has(self, topic: Topic, producer: str) -> bool:
        return not topic.partitions[0].removed and producer in self.notes(topic).producers

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

    def consumer(self, name: str) -> tuple[Found | None, int]:
        """A consumer, and what work it was to find it."""
        topics = self._broker.topics
        for topic in topics.values():
            if topic.options.notes and (known := self.notes(topic).consumers.get(name)):
                return Found(topic, name, known), len(topics) // _TOPICS_PER_WORK
        return None, len(topics) // _TOPICS_PER_WORK

    def consumer_of(self, topic_name: str, name: str) -> Found | None:
        """A consumer of this topic."""
        topic = self._broker.topic(topic_name)
        known = None if topic is None else self.notes(topic).consumers.get(name)
        return None if topic is None or known is None else Found(topic, name, known)

    def all(self) -> Iterable[tuple[Topic, Notes]]:
        """Every topic with what is written down with it, if there is something."""
        for topic in self._broker.topics.values():
            if topic.options.notes:
                yield topic, self.notes(topic)

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

    def register_producer(self, ticket: Ticket, topic_name: str, name: str) -> None:
        """Settles with Declared when that is durable. Twice is once."""
        known, _ = self.topic_of(name)
        if (problem := _name_problem(name, "")) is not None:
            ticket.settle(problem)
        elif known is not None and known.name.lower() != topic_name.lower():
            ticket.settle(_taken("producer", name, known))
        else:
            self._write(ticket, topic_name, lambda notes: _with_producer(notes, name))

    def register_consumer(
        self, ticket: Ticket, topic_name: str, name: str, wanted: Consumer
    ) -> None:
        """The same. One that is registered already stays as it is."""
        known, _ = self.consumer(name)
        if (problem := _name_problem(name) or self._twin(topic_name, name)) is not None:
            ticket.settle(problem)
        elif known is None:
            entry = name, wanted
            self._write(ticket, topic_name, lambda notes: _with(notes, *entry), entry)
        elif known.topic.name.lower() != topic_name.lower():
            ticket.settle(_taken("consumer", name, known.topic))
        elif known.consumer.way != wanted.way:
            way = Way(known.consumer.way).name.lower()
            ticket.settle(BrokerError(Refusal.ILLEGAL, f"consumer {name} is of the kind {way}"))
        else:
            self._write(ticket, topic_name, lambda notes: notes, (name, known.consumer))

    def _twin(self, topic_name: str, name: str) -> BrokerError | None:
        """Names of groups that differ in capital letters alone are one: two consumers would be."""
        topic = self._broker.topic(topic_name)
        for other in () if topic is None else self.notes(topic).consumers:
            if other != name and other.lower() == name.lower():
                return BrokerError(
                    Refusal.ILLEGAL, f"consumer {other} differs in letters' case only"
                )
        return None

    def change(self, ticket: Ticket, found: Found, consumer: Consumer) -> None:
        """Give a consumer other settings, and all its groups."""
        for _, group in found.groups():
            wish = GroupWish(group.name, consumer.applied(group.options))
            asked = Opening()
            self._broker.declare(asked, found.topic.name, _as_it_is(found.topic, wish))
            if asked.problem is not None:
                ticket.settle(asked.problem)
                return
        self._write(ticket, found.topic.name, lambda notes: _with(notes, found.name, consumer))

    def unregister_producer(self, ticket: Ticket, topic: Topic, name: str) -> None:
        self._write(ticket, topic.name, lambda notes: _without_producer(notes, name))

    def unregister_consumer(self, ticket: Ticket, found: Found) -> None:
        """Its groups, and with them how far they are, go as well."""
        for _, group in found.groups():
            self._broker.remove_group(Opening(), group)
        self._write(ticket, found.topic.name, lambda notes: _without(notes, found.name))

    def group(self, found: Found, client: str) -> Group | BrokerError:
        """The group of a consumer, or of its client, made if there is none."""
        name = found.group_name(client)
        group = found.topic.groups.get(name.lower())
        if group is not None:
            return group
        if found.consumer.broadcast and len(found.groups()) >= self._settings.mqcloud_clients_max:
            text = f"consumer {found.name} has {self._settings.mqcloud_clients_max} clients already"
            return BrokerError(Refusal.TOO_MANY, text)
        wish = self._wish(name, found.consumer, None)
        asked = Opening()
        self._broker.declare(asked, found.topic.name, _as_it_is(found.topic, wish))
        group = found.topic.groups.get(name.lower())
        if asked.problem is not None or group is None:
            return asked.problem or topic_unknown(found.topic.name)
        return group

    def configure(self) -> None:
        """Register those that the options of the broker name; once is enough."""
        if self._configured:
            return
        self._configured = True
        for item in listed(self._settings.mqcloud_producers):
            name, _, topic = item.partition("=")
            self.register_producer(Opening(), topic, name)
        for item in listed(self._settings.mqcloud_consumers):
            name, _, rest = item.partition("=")
            topic, _, kind = rest.partition(":")
            way = Way.BROADCAST if kind else Way.CLUSTERING
            self.register_consumer(Opening(), topic, name, self.new_consumer(way))

    def _wish(self, name: str, consumer: Consumer, group: Group | None) -> GroupWish:
        options = consumer.applied(GroupOptions() if group is None else group.options)
        return GroupWish(name, options, _END if consumer.first == "latest" else _BEGIN)

    def _write(
        self,
        ticket: Ticket,
        topic_name: str,
        changed: Callable[[Notes], Notes],
        consumer: tuple[str, Consumer] | None = None,
    ) -> None:
        """Change what is written down with a topic, and declare what it lacks of it."""
        settings = self._settings
        queues = min(settings.mqcloud_queues, settings.partitions_max)

        def wished(topic: Topic | None) -> tuple[TopicOptions, GroupWish | None]:
            options = (
                TopicOptions(topic_name, partitions=queues, durability=settings.durability)
                if topic is None
                else topic.options
            )
            notes = changed(NO_NOTES if topic is None else self.notes(topic))
            options = attrs.evolve(options, notes="" if notes == NO_NOTES else _text(notes))
            wish = None
            if consumer is not None and not consumer[1].broadcast:
                name = consumer[0]
                group = None if topic is None else topic.group(name)
                wish = self._wish(name, consumer[1], group)
            return options, wish

        topic = self._broker.topic(topic_name)
        if topic is not None and topic.options.calls:
            text = f"{topic.name} is a topic of services"
            ticket.settle(BrokerError(Refusal.ILLEGAL, text))
            return
        notes = changed(NO_NOTES if topic is None else self.notes(topic))
        if max(len(notes.producers), len(notes.consumers)) > _ENTRIES_MAX:
            text = f"{topic_name} has {_ENTRIES_MAX} producers or consumers already"
            ticket.settle(BrokerError(Refusal.TOO_MANY, text))
        else:
            self._broker.declare(ticket, topic_name, wished)


def _text(notes: Notes) -> str:
    return _encode(notes).decode()


def _as_it_is(
    topic: Topic, wish: GroupWish
) -> Callable[[Topic | None], tuple[TopicOptions, GroupWish | None]]:
    return lambda now: ((now or topic).options, wish)


def _with_producer(notes: Notes, name: str) -> Notes:
    if name in notes.producers:
        return notes
    return Notes((*notes.producers, name), notes.consumers)


def _without_producer(notes: Notes, name: str) -> Notes:
    return Notes(tuple(one for one in notes.producers if one != name), notes.consumers)


def _with(notes: Notes, name: str, consumer: Consumer) -> Notes:
    return Notes(notes.producers, {**notes.consumers, name: consumer})


def _without(notes: Notes, name: str) -> Notes:
    left = {known: one for known, one in notes.consumers.items() if known != name}
    return Notes(notes.producers, left)


def _name_problem(name: str, reserved: str = ":") -> BrokerError | None:
    text = name_problem(name)
    if text is None and reserved and reserved in name:
        text = "a colon stands between a consumer and its client"
    return None if text is None else BrokerError(Refusal.ILLEGAL, f"{name[:40]!r}: {text}")


def _taken(kind: str, name: str, topic: Topic) -> BrokerError:
    text = f"{kind} {name} is registered for the topic {topic.name}"
    return BrokerError(Refusal.ILLEGAL, text)
