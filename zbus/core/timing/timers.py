"""Everything that becomes due, in one heap: waiting pulls, leases, delays, calls, retention.

A part that waits for times makes a `Timer` for their kind and sets items in it. The broker
asks one heap when the next is due, and a turn in which nothing is due costs one comparison.

The heap's entries are deleted lazily. A timer's own table is the truth; any other entry is stale
and dropped when it surfaces, or all at once when more than half of the heap is stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from zbus.core.model.containment import Containment

T = TypeVar("T", bound=Hashable)

_COMPACT_FROM = 1024
"""Smaller heaps are never rebuilt: their stale entries cost less than the rebuilding."""

_ROOM_BYTES_MAX = 64 << 10

_Entry = tuple[int, int, Any, "Timer[Any]"]
"""Due time in epoch milliseconds, serial, item, timer."""


class Timers:
    """The heap. Equal due times come in the order in which they were set."""

    __slots__ = ("count", "faults", "heap", "serial")

    def __init__(self, faults: Containment | None = None) -> None:
        self.faults = faults or Containment()
        self.heap: list[_Entry] = []
        self.serial = 0
        self.count = 0  # entries that are not stale

    def timer(
        self, call: Callable[[T], None], culprit: Callable[[T], object] = lambda item: None
    ) -> Timer[T]:
        """A timer that calls this with each item that is due. `culprit` says whose fault it is if
        that raises: the others that are due are called all the same."""
        return Timer(self, call, culprit)

    def next_due(self) -> int | None:
        """The earliest due time, None if nothing is set."""
        heap = self.heap
        while heap:
            entry = heap[0]
            if entry[3].entries.get(entry[2]) is entry:
                return entry[0]
            heapq.heappop(heap)
        return None

    def run(self, now_ms: int) -> None:
        """Call for everything due at `now_ms` or before. What is set meanwhile waits for the next
        run, even if it is due: a task that has done enough for one turn sets itself again."""
        heap, last = self.heap, self.serial
        later: list[_Entry] = []
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            _, serial, item, timer = entry
            if timer.entries.get(item) is not entry:
                continue
            if serial > last:
                later.append(entry)
                continue
            del timer.entries[item]
            self.count -= 1
            try:
                timer._call(item)
            except Exception as error:
                self.faults.quarantine(timer._culprit(item), error)
        for entry in later:
            heapq.heappush(heap, entry)

    def compact(self) -> None:
        """Drop what is stale, if that is more than half."""
        if len(self.heap) > _COMPACT_FROM and len(self.heap) > 2 * self.count:
            # In place: `run` may be at work on it.
            self.heap[:] = [e for e in self.heap if e[3].entries.get(e[2]) is e]
            heapq.heapify(self.heap)

    def check(self) -> None:
        """Assert the invariants."""
        alive = [entry for entry in self.heap if entry[3].entries.get(entry[2]) is entry]
        assert len(alive) == self.count
        pairs = zip(
            self.heap[1:], (self.heap[at // 2] for at in range(len(self.heap))), strict=False
        )
        assert all(parent[:2] <= child[:2] for child, parent in pairs), "not a heap"


class Timer(Generic[T]):
    """Items of one kind, each with a due time in epoch milliseconds."""

    __slots__ = ("_call", "_culprit", "_timers", "entries")

    def __init__(
        self, timers: Timers, call: Callable[[T], None], culprit: Callable[[T], object]
    ) -> None:
        self._timers = timers
        self._call = call
        self._culprit = culprit
        self.entries: dict[T, _Entry] = {}  # as in the heap

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, item: object) -> bool:
        return item in self.entries

    def __iter__(self) -> Iterator[T]:
        return iter(self.entries)

    def due_of(self, item: T) -> int:
        """When the item is due; KeyError if it is not set."""
        return self.entries[item][0]

    def set(self, item: T, due_ms: int) -> None:
        """Add the item, or move it."""
        timers, entries = self._timers, self.entries
        timers.serial += 1
        if item not in entries:
            timers.count += 1
        entries[item] = entry = (due_ms, timers.serial, item, self)
        heapq.heappush(timers.heap, entry)
        if len(timers.heap) > _COMPACT_FROM:
            timers.compact()

    def discard(self, item: T) -> bool:
        """Take the item out; say whether it was here."""
        entries = self.entries
        if entries.pop(item, None) is None:
            return False
        self._timers.count -= 1
        if not entries and entries.__sizeof__() > _ROOM_BYTES_MAX:
            self.entries = {}  # a table keeps the room that it once needed
        return True
