"""Topics that other processes of this server have (`zbus.core.patterns.completions`).

What is decided here is completed there by a put that is repeated until it is answered, under keys
that make it one. How the other process is reached is not the core's business: the process around
the broker gives it a `Port`. One that is alone has none, and no topic is elsewhere.

Tests: `tests/core/patterns/test_elsewhere.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zbus.core.model.chunk import Row
from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.ticket import Calling, Ticket
from zbus.core.topics.topic import Partition, Topic


class RemoteTopic(NamedTuple):
    """One of them. Whether it exists is known there."""

    name: str


class Port(Protocol):
    """The way to the other processes."""

    def has(self, name: str) -> bool:
        """A topic of this name is another's, if there is one."""

    def busy(self, topic: str) -> bool:
        """So much is under way to the process that has it that more should wait."""

    def put(self, source: Partition, topic: str, rows: Sequence[Row], ticket: Ticket) -> None:
        """Store messages in a topic, each under its key: repeated until it is answered. What comes
        from one partition is put in its order. Settles with Done, or with the first refusal."""

    def check(self, topic: str, origin: str, ticket: Ticket) -> None:
        """Whether dead messages of the topic `origin` may be put into that one. Settles with Done,
        or with why not."""


class Elsewhere:
    """The topics that are not here."""

    def __init__(self) -> None:
        self.port: Port | None = None
        self.missing: set[str] = set()  # dead-letter topics that do not exist; in lower case

    def has(self, name: str) -> bool:
        return self.port is not None and self.port.has(name)

    def find(self, name: str) -> RemoteTopic | None:
        """The topic of this name, if it is another's."""
        return RemoteTopic(name) if self.has(name) else None

    def busy(self, topic: str) -> bool:
        return self.port is not None and self.port.busy(topic)

    def check(self, topic: str, origin: str, done: Callable[[Outcome], None]) -> None:
        """See `Port.check`, of a topic that is another's."""
        assert self.port is not None
        self.port.check(topic, origin, Calling(done))

    def note(self, topic: str, outcome: Outcome) -> None:
        """What a put into a dead-letter topic came to."""
        if not isinstance(outcome, BrokerError):
            self.missing.discard(topic.lower())
        elif outcome.refusal is Refusal.TOPIC_UNKNOWN:
            self.missing.add(topic.lower())


def place_in(topic: Topic | RemoteTopic, key: bytes) -> Partition | RemoteTopic:
    """Where a message with this key is put; its partition elsewhere is known there."""
    return topic if isinstance(topic, RemoteTopic) else topic.partition_for(key)
