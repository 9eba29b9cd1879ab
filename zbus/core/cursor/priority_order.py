"""Priorities: among those who read with one group, a message of higher priority goes first.

Before one is delivered, all that are ready are compared, up to `PARKED_MAX` in a partition: each is
*parked* in the queue of its priority, as in a group with order per key. Of `SHARE` deliveries one
takes the message that is first in the log, whatever its priority, so that none waits for ever; all
others take the first of the highest priority. The priority is a header line of the message, so its
copies have it, too: dead letters, redriven ones, and those of another broker.

For storage a parked message is READY, in the place that it came from: a restart compares anew.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heappop, heappush
from typing import Final, Protocol

from zbus.core.model.chunk import Chunk

PRIORITY_MAX: Final = 9

SHARE: Final = 10
"""One of that many deliveries is the oldest message's."""

LINE: Final = b"priority: "
"""How the header line begins; its value is a digit. Without it the priority is 0."""


class Parked(Protocol):
    """What is READY behind the cursor of a backlog."""

    def is_parked(self, offset: int) -> bool:
        """It is there, and not to be handed out."""


class Compares(Protocol):
    """What is to be known of a backlog."""

    @property
    def ready(self) -> Parked: ...

    def park(self, offset: int) -> None:
        """Do not hand it out, though it is READY."""


class PriorityOrder:
    """What waits in one partition, by priority. An offset that was finished otherwise, or is out of
    its place, is dropped when its turn comes."""

    __slots__ = ("_chosen", "_is_old", "_queues", "_turn", "batch")

    name: Final = "priority"

    def __init__(self) -> None:
        self.batch = 0
        self._queues: list[list[int]] = [[] for _ in range(PRIORITY_MAX + 1)]  # heaps of offsets
        self._chosen = -1  # it goes next
        self._turn = 0
        self._is_old = False  # much may have become of what waits

    def touch(self, offset: int) -> None:
        """Something became of it: that is seen when its turn comes."""

    def touch_all(self) -> None:
        """Something may have become of everything."""
        self._is_old = True

    def settle(self, backlog: Compares) -> None:
        if self._is_old:
            self._is_old, self._chosen = False, -1
            for queue in self._queues:
                queue[:] = sorted({offset for offset in queue if backlog.ready.is_parked(offset)})

    def next(self, backlog: Compares) -> int | None:
        """What goes next of all that waits, also if it was chosen before and could not be read;
        None if nothing waits."""
        self.settle(backlog)
        if self._chosen >= 0 and backlog.ready.is_parked(self._chosen):
            return self._chosen
        waiting = (queue for queue in reversed(self._queues) if _waits(queue, backlog))
        oldest = not (self._turn + 1) % SHARE
        queue = min(waiting, default=None) if oldest else next(waiting, None)
        if queue is None:
            return None
        self._turn += 1
        self._chosen = heappop(queue)
        return self._chosen

    def admits(self, backlog: Compares, offset: int, chunk: Chunk, at: int) -> bool:
        """The message is delivered: it was chosen. Else it is parked, to be compared."""
        if offset == self._chosen:
            self._chosen = -1
            return True
        backlog.park(offset)
        heappush(self._queues[priority_of(chunk.headers[at])], offset)
        return False

    def admits_alone(self, backlog: Compares, offset: int, chunk: Chunk, at: int) -> bool:
        """The message that the cursor is at is delivered: nothing else is ready."""
        self.settle(backlog)
        return not any(self._queues)

    def waits_for(self, backlog: Compares, offset: int, key: bytes) -> int | None:
        """The message that has to be finished before it: none has."""
        return None

    def check(self, backlog: Compares, parked: set[int], settling: Container[int]) -> None:
        """Assert the invariants."""
        assert parked <= {self._chosen, *self._all()}, "a parked message will never be chosen"

    def _all(self) -> Iterator[int]:
        for queue in self._queues:
            yield from queue


def _waits(queue: list[int], backlog: Compares) -> bool:
    """Whether something waits there: then it is the first."""
    while queue and not backlog.ready.is_parked(queue[0]):
        heappop(queue)
    return bool(queue)


_DIGITS: Final = {b"%d\r\n" % number: number for number in range(PRIORITY_MAX + 1)}


def priority_of(headers: bytes) -> int:
    """Of a message with these lines, 0 to 9."""
    at = 0 if headers.startswith(LINE) else headers.find(b"\r\n" + LINE) + 2
    if at == 1:
        return 0
    value = headers[at + len(LINE) : at + len(LINE) + 3]
    return _DIGITS.get(value, 0)
