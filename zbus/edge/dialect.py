"""What a dialect has to be, and what it is built on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import attrs

from zbus.core.broker import Broker
from zbus.core.topics.outcomes import Routed
from zbus.edge.connection import Connection
from zbus.edge.guard import Guard, Policy
from zbus.edge.parsed_request import ParsedRequest
from zbus.edge.rights import Rights
from zbus.wire.heads.heads import Head, Heads


class Dialect(Protocol):
    """One dialect."""

    prefixes: frozenset[bytes]
    """First segments of the paths that are its own, as they are written. One dialect has none: it
    is asked for all that is no other client's."""

    policy: Policy
    """What browsers may do here."""

    def claims(self, head: Head) -> bool:
        """Whether a head is its own by its fields, whatever the path. The first dialect that says
        so has it."""

    def read(self, head: Head) -> ParsedRequest: ...

    def push(self, peer: Connection, routed: Routed) -> bool:
        """Send a message that no request on this connection waits for; False if that cannot be."""

    def reports(self) -> list[Report]:
        """Reports to other servers, as long as the broker runs."""

    def holds(self) -> Mapping[str, Callable[[], int]]:
        """What it keeps in memory beside messages, by kind: how to ask for bytes."""

    def upkeep(self) -> None:
        """Called about once a second."""


@attrs.frozen
class Report:
    """A report to another server: when it is reached, with every change of topics, groups and
    readers, and from time to time. It is not answered, but for refusals."""

    address: str  # host:port
    request: Callable[[], bytes]  # as it is now


@attrs.frozen
class Parts:
    """What a dialect is built on."""

    broker: Broker
    heads: Heads
    guard: Guard
    rights: Rights
    settings: object  # the dialect's own; None = their defaults


Settings = TypeVar("Settings")


class Context(Generic[Settings]):
    """What the requests of a dialect share. A dialect adds its own state to it."""

    def __init__(self, parts: Parts, settings: type[Settings]) -> None:
        found = parts.settings
        self.settings: Settings = found if isinstance(found, settings) else settings()
        self.broker = parts.broker
        self.guard = parts.guard

    def begin(self) -> None:
        """Called before a request is done: the broker has a time now."""


RESERVED = frozenset((b"queue", b"mq"))
"""Prefixes of dialects, some of them to come; topics of these names are reached by headers."""


def first_segment(head: Head) -> bytes:
    """Of the path, as it is written."""
    return head.target[1:].partition(b"?")[0].partition(b"/")[0]
