"""Look for the letter of a message that a group has finished: it may have died, and then it is in
the group's dead-letter topic, with lines that say where it comes from.

The latest letters are looked at first, and none from before the message was stored. A search takes
no more than `PORTIONS_MAX` portions of the log and `LETTERS_MAX` letters, and keeps none of them.

Tests: `tests/conformance/test_why.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.patterns.dead_letters import origin_lines
from zbus.core.topics.topic import Group, Partition, Topic

PORTIONS_MAX: Final = 1_000
LETTERS_MAX: Final = 10_000


@attrs.frozen
class Letter:
    """Where it is, and what it says of the death."""

    topic: Topic
    partition: int
    offset: int
    time_ms: int
    attempts: int
    reason: str


@attrs.frozen
class Wanted:
    """The message whose letter is looked for."""

    group: Group
    partition: int
    offset: int
    stored_ms: int
    key: bytes


def find_letter(topic: Topic, wanted: Wanted, done: Callable[[Letter | None], None]) -> None:
    """`done` gets None if there is no letter, as far as was looked."""
    partitions = [topic.partition_for(wanted.key)] if wanted.key else topic.partitions
    _Search(topic, partitions, wanted, done).run()


class _Search:
    """Goes through partitions one after another, each from its end; goes on when a read comes."""

    def __init__(
        self,
        topic: Topic,
        partitions: list[Partition],
        wanted: Wanted,
        done: Callable[[Letter | None], None],
    ) -> None:
        self._topic = topic
        self._left = [(one, one.visible - 1) for one in reversed(partitions)]
        self._lines = origin_lines(wanted.group, wanted.partition, wanted.offset)
        self._since_ms = wanted.stored_ms
        self._done = done
        self._portions, self._letters = PORTIONS_MAX, LETTERS_MAX
        self._running = self._came = False

    def run(self) -> None:
        """Steps whose reads come at once are a loop, and not a recursion."""
        self._came = True
        if self._running:
            return
        self._running = True
        while self._came:
            self._came = False
            self._step()
        self._running = False

    def _step(self) -> None:
        while self._left and self._left[-1][1] < self._left[-1][0].first:
            self._left.pop()
        if not self._left or self._portions <= 0 or self._letters <= 0:
            self._done(None)
            return
        self._portions -= 1
        partition, offset = self._left[-1]
        partition.log.get(offset, self._found)

    def _found(self, found: tuple[Chunk, int] | BrokerError) -> None:
        partition, _ = self._left.pop()
        if not isinstance(found, BrokerError):
            chunk, last = found
            if (letter := self._look(partition, chunk, last)) is not None:
                self._done(letter)
                return
            if chunk.time_of(0) >= self._since_ms:
                self._left.append((partition, chunk.first - 1))
        self.run()

    def _look(self, partition: Partition, chunk: Chunk, last: int) -> Letter | None:
        for at in range(last, max(-1, last - self._letters), -1):
            headers, time_ms = chunk.headers[at], chunk.time_of(at)
            if self._lines in headers and time_ms >= self._since_ms:
                attempts = _value(headers, b"dead_attempts: ")
                return Letter(
                    self._topic,
                    partition.index,
                    chunk.first + at,
                    time_ms,
                    int(attempts) if attempts.isdecimal() and len(attempts) < 10 else 0,
                    _value(headers, b"dead_reason: "),
                )
        self._letters -= last + 1
        return None


def _value(headers: bytes, name: bytes) -> str:
    return headers.partition(name)[2].partition(b"\r\n")[0].decode("utf-8", "replace")
