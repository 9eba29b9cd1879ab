"""Queues: a queue is the topic of its name with the group of its name, made by first use."""

from __future__ import annotations

import re
from typing import Final

import attrs

from zbus.core.api import (
    DELAY_MS_MAX,
    Broker,
    Group,
    GroupOptions,
    GroupWish,
    Partition,
    Ticket,
    Topic,
    TopicOptions,
    name_problem,
)
from zbus.dialects.adf.settings import AdfSettings

ENDLESS_MS: Final = DELAY_MS_MAX
"""A lease for as long as there is."""

_LATER: Final = 1 << 52
_WINDOW: Final = (1 << 31) - 1
_LOOKS_ESCAPED: Final = re.compile("%(?=2[fF]|5[cC]|25)")


def topic_name(queue: bytes) -> str:
    """The topic of a queue; "" if none can have that name. Topics have no slashes in theirs."""
    try:
        name = queue.decode()
    except UnicodeDecodeError:
        return ""
    name = _LOOKS_ESCAPED.sub("%25", name).replace("/", "%2F").replace("\\", "%5C")
    return "" if name_problem(name) else name


def messageid(partition: Partition, offset: int) -> int:
    """Of a message: it grows, and no other of its queue ever has it, one that is made again later
    included. JavaScript can hold it."""
    topic, index = partition.topic, partition.index
    grown = topic.options.grown
    count = len(grown[0]) if grown else len(topic.partitions)
    number = offset * count + index + 1
    if index >= count:  # of those that came later: the others' numbers stay what they were
        number = _LATER + (offset << 16 | index)
    return topic.options.created_ms * 1_000 + number


class Queues:
    def __init__(self, broker: Broker, settings: AdfSettings) -> None:
        self._broker = broker
        self._topic = TopicOptions("", durability=settings.durability)
        self._group = GroupOptions(
            lease=True,
            lease_ms=settings.adf_http_lease_ms or ENDLESS_MS,
            window=_WINDOW,
            on_loss="front",
            attempts_kept=True,
        )

    def find(self, name: str) -> Group | None:
        """What readers of the queue share, if there is such a queue."""
        topic = self._broker.topics.get(name.lower())
        return None if topic is None else topic.group(name)

    def make(self, ticket: Ticket, name: str) -> None:
        """A queue is declared, or what is lacking of it; settles with Declared. What exists stays
        as it is."""
        self._broker.declare(ticket, name, lambda topic: self._wished(name, topic))

    def _wished(self, name: str, topic: Topic | None) -> tuple[TopicOptions, GroupWish]:
        wish = GroupWish(name, self._group)
        if topic is None:
            return attrs.evolve(self._topic, name=name), wish
        group = topic.group(name)
        if group is not None and not group.options.unclaimed:
            wish = GroupWish(group.name, group.options)
        return topic.options, wish
