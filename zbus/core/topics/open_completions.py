"""What a partition has decided that is to be completed in other logs.

Tests: `tests/core/patterns/test_completions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zbus.core.cursor.state import Completion


class Deliveries(NamedTuple):
    """Of which group, in which partition."""

    topic: str
    topic_ms: int
    group: str
    group_ms: int
    partition: int

    @classmethod
    def of(cls, one: Completion) -> Deliveries:
        """Those that it completes."""
        return cls(one.topic, one.topic_ms, one.group, one.group_ms, one.partition)


class OpenCompletions:
    """Those that are open, by number, and what is to be written of them."""

    __slots__ = ("closed", "closing", "count", "fresh", "open")

    def __init__(self) -> None:
        self.open: dict[int, Completion] = {}
        self.fresh: list[Completion] = []  # not written yet
        self.closed: list[int] = []  # numbers, likewise
        # What a start may complete again, for it is not known as durable that it is closed.
        self.closing: set[Deliveries] = set()
        self.count = 0  # how many were closed

    @classmethod
    def found(cls, stored: Iterable[Completion], end: int) -> OpenCompletions | None:
        """Of a partition that was read again and ends there. What lost its messages does not count,
        and that is written before anything takes their place."""
        found = cls()
        for completion in stored:
            if completion.end <= end:
                found.open[completion.number] = completion
            else:
                found.closed.append(completion.number)
        return found if found.open or found.closed else None

    @property
    def next_number(self) -> int:
        return 1 + max([*self.open, *self.closed], default=0)

    def add(self, completion: Completion) -> None:
        """Open one; it is written before the messages that it counts by."""
        self.open[completion.number] = completion
        self.fresh.append(completion)

    def close(self, completion: Completion) -> None:
        """It is completed, durably. Its number may be another's by now."""
        if self.open.get(completion.number) == completion:
            del self.open[completion.number]
            self.closed.append(completion.number)
            self.closing.add(Deliveries.of(completion))
            self.count += 1

    def durable(self, count: int) -> None:
        """What was written when so many were closed is durable."""
        if count == self.count:
            self.closing.clear()

    def truncate(self, end: int) -> None:
        """Messages from `end` on were never there."""
        self.fresh = [one for one in self.fresh if one.end <= end]
        self.open = {number: one for number, one in self.open.items() if one.end <= end}

    def take(self) -> tuple[tuple[Completion, ...], tuple[int, ...]]:
        """What is to be written, once."""
        fresh, self.fresh = self.fresh, []
        closed, self.closed = self.closed, []
        return tuple(fresh), tuple(closed)
