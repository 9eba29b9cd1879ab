"""New topics whose logs are made a few in a turn.

A log takes a directory and a file of the system, a quarter of a millisecond, and all other clients
wait meanwhile. So a turn makes a few of them, of each such topic one in turn. A topic comes to life
with all of its partitions or not at all: what is written to it meanwhile, and its declaration, is
answered when the last one is made, or refused if one cannot be, or if the topic is removed before.

Tests: `tests/core/commit/test_making.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import TypeAlias

from zbus.core.model.errors import Outcome
from zbus.core.model.ticket import Ticket
from zbus.core.topics.topic import Partition, Topic

Written: TypeAlias = "tuple[Partition, int, list[Ticket], list[tuple[Ticket, Outcome]], int]"
"""A partition, its end, the puts and confirmations that become true when it is durable, and its
epoch."""

LOGS_PER_TURN = 4
"""Topics with no more partitions are made in the turn of their declaration."""


class Unmade:
    """What is left to do for a topic, and what waits for that."""

    __slots__ = ("held", "left")

    def __init__(self) -> None:
        self.left: deque[Partition] = deque()  # to be made
        # To be gone on with when none is left: what needs no sync, and what does.
        self.held: tuple[list[Written], list[Written]] = [], []


class Making:
    """The topics that are being made."""

    def __init__(self) -> None:
        self.topics: dict[Topic, Unmade] = {}  # the next one in turn first
        self._tried: dict[Topic, None] = {}  # some of their logs are made in this turn

    def begin(self, topic: Topic) -> None:
        """The topic is new."""
        if len(topic.partitions) > LOGS_PER_TURN and topic.options.durability != "memory":
            self.topics[topic] = Unmade()

    def in_turn(
        self, touched: list[Partition], whole: Topic | None, holds: Callable[[Partition], bool]
    ) -> list[Partition]:
        """Which of these partitions, and of those that are left, are to be written now: all of the
        `whole` topic. `holds` says whether a partition has a log."""
        now: list[Partition] = []
        for partition in touched:
            unmade = self.topics.get(partition.topic)
            if unmade is None or holds(partition):
                now.append(partition)
            else:
                unmade.left.append(partition)
        if whole in self.topics:
            now += self.topics[whole].left
            self.topics[whole].left.clear()
        for _ in range(LOGS_PER_TURN):
            topic = next(iter(self.topics))
            unmade = self.topics[topic] = self.topics.pop(topic)
            if unmade.left:
                now.append(unmade.left.popleft())
        self._tried.update(dict.fromkeys([partition.topic for partition in now]))
        return now

    def hold_back(
        self,
        written: tuple[list[Written], list[Written]],
        not_created: Container[Topic],
        left: list[Partition],
    ) -> tuple[list[Written], list[Written]]:
        """Give what can be gone on with now, of what needs no sync and of what does. Of a topic
        that cannot be made that is all; its other partitions are put on the list `left`."""
        ready: tuple[list[Written], list[Written]] = [], []
        for kind, found in enumerate(written):
            for one in found:
                unmade = self.topics.get(one[0].topic)
                (ready if unmade is None else unmade.held)[kind].append(one)
        tried, self._tried = self._tried, {}
        for topic in tried:
            unmade = self.topics.get(topic)
            if unmade is None:
                continue
            if topic in not_created:
                left += unmade.left
            elif unmade.left:
                continue
            for kind, held in enumerate(unmade.held):
                ready[kind].extend(held)
            del self.topics[topic]
        return ready

    def forget(self, topic: Topic) -> tuple[set[Partition], list[Written]]:
        """The topic is gone: give what of it is not made yet, and what was held back."""
        unmade = self.topics.pop(topic, Unmade())
        at_once, after_sync = unmade.held
        return set(unmade.left), at_once + after_sync
