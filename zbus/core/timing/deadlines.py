"""When leases end: offsets, each with a due time. Made for a million of them.

`dues` is the truth: offset -> due time. Beside it, for each due time there is a queue of the
offsets that were set to be due then, and a heap has the times. An entry of a queue whose offset is
due at another time by now, or not at all, is stale: it is dropped when it surfaces, or with all
others when more than half are.

Why so: what a turn leases is due at one time, so an offset costs its place in `dues` and 8 bytes of
a queue, and no entry of a heap with a tuple of its own. A queue of one is that offset itself: with
one lease in a millisecond, for hours, an array for each would be dear.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from sys import maxsize
from typing import Final

_COMPACT_FROM: Final = 1024
"""Fewer entries are never rebuilt: the stale ones cost less than the rebuilding."""


class Deadlines:
    """A set of offsets, each with a due time in epoch milliseconds; first due, first out.

    Equal due times come out in the order in which they were set. So do all offsets when iterated:
    to store them and set them again in that order gives the same object.
    """

    __slots__ = ("_heap", "_last_ms", "_queued", "_queues", "dues")

    def __init__(self) -> None:
        self.dues: dict[int, int] = {}
        self._queues: dict[int, int | array[int]] = {}  # by due time
        self._queued = 0  # entries of all queues
        self._heap: list[int] = []  # due times; of those without a queue nothing is left
        self._last_ms = 0  # the due time that was set last: equal ones are one object

    def __len__(self) -> int:
        return len(self.dues)

    def __contains__(self, offset: object) -> bool:
        return offset in self.dues

    def __iter__(self) -> Iterator[int]:
        return iter(self.dues)

    def due_of(self, offset: int) -> int:
        """When the offset is due; KeyError if it is not here."""
        return self.dues[offset]

    def set(self, offset: int, due_ms: int) -> None:
        """Add the offset, or move it."""
        if due_ms == self._last_ms:
            due_ms = self._last_ms
        else:
            self._last_ms = due_ms
        dues = self.dues
        if offset in dues:
            del dues[offset]  # so that a moved one is iterated last, too
        dues[offset] = due_ms
        queue = self._queues.get(due_ms)
        if queue is None:
            self._queues[due_ms] = offset
            heapq.heappush(self._heap, due_ms)
        elif type(queue) is int:
            self._queues[due_ms] = array("Q", (queue, offset))
        else:
            queue.append(offset)  # type: ignore[union-attr]  # mypy does not narrow by `type`
        self._queued += 1
        if self._queued > _COMPACT_FROM and self._queued > 2 * len(dues):
            self._compact()

    def discard(self, offset: int) -> bool:
        """Take the offset out; say whether it was here."""
        return self.dues.pop(offset, None) is not None

    def next_due(self) -> int | None:
        """The earliest due time, None when empty."""
        heap = self._heap
        while heap:
            if self._lives(heap[0]):
                return heap[0]
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int, count_max: int = maxsize) -> list[int]:
        """Take out what is due at `now_ms` or before, at most that many, in order."""
        out: list[int] = []
        dues, queues = self.dues, self._queues
        while len(out) < count_max and (due_ms := self.next_due()) is not None and due_ms <= now_ms:
            queue = queues.pop(due_ms)
            entries = (queue,) if isinstance(queue, int) else queue
            self._queued -= len(entries)
            # One that was set to this time twice has its place by the last.
            alive = [offset for offset in reversed(entries) if dues.get(offset) == due_ms]
            found = list(reversed(dict.fromkeys(alive)))
            if rest := found[count_max - len(out) :]:
                del found[count_max - len(out) :]
                queues[due_ms] = array("Q", rest)
                self._queued += len(rest)
            for offset in found:
                del dues[offset]
            out += found
        return out

    def _lives(self, due_ms: int) -> bool:
        """Something is due at this time. What is stale at the end of its queue goes."""
        queue = self._queues.get(due_ms)
        if queue is None:
            return False
        get = self.dues.get
        if isinstance(queue, int):
            if get(queue) == due_ms:
                return True
            self._queued -= 1
        else:
            while queue:
                if get(queue[-1]) == due_ms:
                    return True
                queue.pop()
                self._queued -= 1
        del self._queues[due_ms]
        return False

    def _compact(self) -> None:
        queues: dict[int, array[int]] = {}
        for offset, due_ms in self.dues.items():
            queue = queues.get(due_ms)
            if queue is None:
                queue = queues[due_ms] = array("Q")
            queue.append(offset)
        self._queues = {at: queue if len(queue) > 1 else queue[0] for at, queue in queues.items()}
        self._queued = len(self.dues)
        self._heap = sorted(queues)

    def check(self) -> None:
        """Assert the invariants of this structure."""
        queues = {at: (q,) if isinstance(q, int) else q for at, q in self._queues.items()}
        assert sum(map(len, queues.values())) == self._queued
        assert queues.keys() <= set(self._heap), "a due time that will not surface"
        places = {offset: at for at, offset in enumerate(self.dues)}
        queued = 0
        for due_ms, queue in queues.items():
            last = {offset: at for at, offset in enumerate(queue)}
            alive = sorted((o for o in last if self.dues.get(o) == due_ms), key=last.__getitem__)
            assert sorted(alive, key=places.__getitem__) == alive
            queued += len(alive)
        assert queued == len(self.dues), "an offset is in no queue"
