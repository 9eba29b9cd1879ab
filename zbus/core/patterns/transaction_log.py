"""What an application that commits batches decides, and how that is stored.

Tests: `tests/core/patterns/test_transactions.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple

from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.topics.topic import Group, Topic

GROUP: Final = "txn"
"""The group that holds the staged messages."""

Task = Generator[Any, Any, None]
"""Gives a time to go on at, or what calls back, and is sent what that was called with."""


class Stage(NamedTuple):
    """Staged messages, and the topic that they are for."""

    first: int
    end: int
    topic: str


class Decision(NamedTuple):
    """A batch that is committed."""

    batch: int
    stages: tuple[Stage, ...]

    def body(self) -> bytes:
        lines = [str(self.batch), *(f"{first} {end} {topic}" for first, end, topic in self.stages)]
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    @classmethod
    def read(cls, body: bytes) -> Decision:
        batch, *lines = body.decode("utf-8", "surrogatepass").split("\n")
        words = [line.split(" ", 2) for line in lines]
        return cls(int(batch), tuple(Stage(int(a), int(b), topic) for a, b, topic in words))


class Status(NamedTuple):
    """Of an application, as it is now."""

    batch: int | None  # the last one that is decided; None = none, or it is being read
    applied: bool  # all of it is where it belongs
    staged: int  # messages that are not moved or dropped


class Producer:
    """An application that commits batches, one at a time."""

    def __init__(self, name: str, rows: Topic, decisions: Topic) -> None:
        self.name = name
        self.rows, self.decisions = rows, decisions
        self.loaded = False
        self.decided: Decision | None = None
        self.offset = -1  # of the decision
        self.applied = True
        self.problem: BrokerError | None = None  # why it cannot be applied now
        self.queue: deque[Callable[[], Task]] = deque()
        self.task: Task | None = None
        self.sent: Any = None  # what the task goes on with

    @property
    def group(self) -> Group:
        return self.rows.groups[GROUP]

    def stuck(self) -> bool:
        return self.problem is not None


def copy_of(found: Chunk, rows: Sequence[int]) -> Chunk:
    """These messages without the keys that they were staged with."""
    copy = Chunk()
    for row in rows:
        message = found.message(row)
        copy.add(
            message.id,
            message.headers,
            message.body,
            message.tag,
            message.key,
            message.due_ms,
            message.expires_ms,
            b"",
            message.attempts_max,
        )
    return copy
