"""Things that become due: leases, delays, pulls that stop waiting, calls without an answer.

A heap with lazy deletion. `_entry_of` is the truth; any other heap entry is stale and dropped when
it surfaces, or all at once when more than half of the heap is stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_COMPACT_FROM = 1024
"""Smaller heaps are never rebuilt: their stale entries cost less than the rebuilding."""


class Deadlines(Generic[T]):
    """A set of items, each with a due time in epoch milliseconds; first due, first out.

    Equal due times come out in the order in which they were set. So do all items when iterated:
    whoever stores them and sets them again in that order has the same thing.
    """

    __slots__ = ("_entry_of", "_heap", "_serial")

    def __init__(self) -> None:
        self._entry_of: dict[T, tuple[int, int, T]] = {}  # due, serial, item: the very heap entry
        self._heap: list[tuple[int, int, T]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entry_of)

    def __contains__(self, item: object) -> bool:
        return item in self._entry_of

    def __iter__(self) -> Iterator[T]:
        return iter(self._entry_of)

    def due_of(self, item: T) -> int:
        """When the item is due; KeyError if it is not here."""
        return self._entry_of[item][0]

    def set(self, item: T, due_ms: int) -> None:
        """Add the item, or move it."""
        self._serial += 1
        entry = (due_ms, self._serial, item)
        self._entry_of.pop(item, None)  # so that a moved item is iterated last, too
        self._entry_of[item] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * len(self._entry_of):
            self._compact()

    def discard(self, item: T) -> bool:
        """Take the item out; say whether it was here."""
        return self._entry_of.pop(item, None) is not None

    def clear(self) -> None:
        self._entry_of.clear()
        self._heap.clear()

    def next_due(self) -> int | None:
        """The earliest due time, None when empty."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if self._entry_of.get(entry[2]) is entry:
                return entry[0]
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int) -> list[T]:
        """Take out everything due at `now_ms` or before, in order."""
        out: list[T] = []
        while (due_ms := self.next_due()) is not None and due_ms <= now_ms:
            item = heapq.heappop(self._heap)[2]
            del self._entry_of[item]
            out.append(item)
        return out

    def pop_first(self, now_ms: int) -> T | None:
        """Take out the first of what is due at `now_ms` or before, None if nothing is."""
        due_ms = self.next_due()
        if due_ms is None or due_ms > now_ms:
            return None
        item = heapq.heappop(self._heap)[2]
        del self._entry_of[item]
        return item

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._entry_of.get(entry[2]) is entry]
        heapq.heapify(self._heap)

    def check(self) -> None:
        """Assert the invariants of this structure."""
        current = [entry for entry in self._heap if self._entry_of.get(entry[2]) is entry]
        assert sorted(entry[1] for entry in current) == [e[1] for e in self._entry_of.values()]
