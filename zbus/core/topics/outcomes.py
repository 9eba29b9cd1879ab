"""How tickets end. With `BrokerError` and `Routed` these are all the answers there are.

Tests: `tests/core/test_broker.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Outcome as Outcome
from zbus.core.model.pull_options import EmptyReason as EmptyReason

# Who makes or tells answers has all of them from here.
from zbus.core.topics.calls import Routed as Routed
from zbus.core.topics.topic import Group, Partition, Topic


class Slice(NamedTuple):
    """Neighbouring messages of a delivery: rows `start` to before `stop` of a chunk. To be
    read at once, since the chunk may be emptied when memory is short."""

    partition: int
    chunk: Chunk
    start: int
    stop: int
    attempts: int = 0  # times delivered to this group, this one included; 0 = not counted


class Stored(Outcome):
    """A put is durable at its partition's level. Shared by all puts of a partition and tick:
    each ticket knows its own first offset."""

    __slots__ = ("partition",)

    def __init__(self, partition: Partition) -> None:
        self.partition = partition


class Duplicate(Outcome):
    """A put of which `count` messages were there before; all are durable at the partition's level.
    The ticket's offset is that of the first message stored now, or if there is none, of the
    original of the first."""

    __slots__ = ("count", "partition")

    def __init__(self, partition: Partition, count: int) -> None:
        self.partition = partition
        self.count = count


class Moved(Outcome):
    """This many messages are in another topic, durably at its level, and acknowledged in this one;
    `stayed` could not be moved."""

    __slots__ = ("count", "stayed")

    def __init__(self, count: int, stayed: int) -> None:
        self.count = count
        self.stayed = stayed


class Committed(Outcome):
    """A batch is where it belongs, durably: that many messages of it were put there now.
    `duplicate`: it was committed before."""

    __slots__ = ("count", "duplicate")

    def __init__(self, count: int, duplicate: bool = False) -> None:
        self.count = count
        self.duplicate = duplicate


class Delivered(Outcome):
    """A pull got messages: at least one. `skipped` are those that the log forgot before the group
    had finished them, as far as no delivery reported them."""

    __slots__ = ("group", "pieces", "skipped")

    def __init__(self, group: Group, pieces: list[Slice], skipped: int = 0) -> None:
        self.group = group
        self.pieces = pieces
        self.skipped = skipped


class Empty(Outcome):
    """A pull got nothing."""

    __slots__ = ("group", "reason")

    def __init__(self, group: Group, reason: EmptyReason) -> None:
        self.group = group
        self.reason = reason


class Done(Outcome):
    """Done, and durable where that applies."""

    __slots__ = ()


DONE = Done()


@attrs.frozen
class Changed(Outcome):
    """This many messages are not what they were, durably; one of several groups counts in each."""

    count: int


@attrs.frozen
class Declared(Outcome):
    """A topic, and the group if one was asked for, exist as described."""

    topic: Topic
    group: Group | None


@attrs.frozen
class Raw(Outcome):
    """Stored batches as they are; `end` is the first offset that cannot be read yet."""

    partition: Partition
    batches: bytes
    end: int


@attrs.frozen
class Peeked(Outcome):
    """Messages looked at without a group's state changing; a random read names its group."""

    topic: Topic
    pieces: list[Slice]
    group: Group | None = None


@attrs.frozen
class Searched(Outcome):
    """Messages of a partition that fit, in the order in which `scanned` messages were looked at;
    `next` says where to go on, None that there is nothing more."""

    partition: Partition
    pieces: list[Slice]
    scanned: int
    next: int | None
