"""What of a backlog is ready behind its cursor: each offset has a place in line, a rank and a
serial number, so that equal ranks keep their order. The smallest goes first.

Some of it may be *parked* (`zbus.core.cursor.key_order`, `zbus.core.cursor.priority_order`): it has
its place, and yet is not in line.

Tests: `tests/core/cursor/test_backlog.py`.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from sortedcontainers import SortedDict

from zbus.core.cursor.due_queue import Overdue, Place

_NO_READY: Final[SortedDict[tuple[int, int], int]] = SortedDict()
"""Stays empty. Most backlogs never have an exception, and an empty one of these is 1.5 KB."""


UNWRITTEN_MAX: Final = 1_000
"""Messages in front that are not written yet and that `next` looks behind."""


class ReadyQueue:
    __slots__ = ("_serial", "in_line", "overdue", "places")

    def __init__(self) -> None:
        self.in_line = _NO_READY  # a SortedDict of its own as soon as there is something in it
        self.places: dict[int, Place] = {}  # offset -> its key in `in_line`, unless it is parked
        self._serial = 0
        self.overdue = Overdue()  # what is due, and not made ready yet

    @property
    def parked_count(self) -> int:
        return len(self.places) - len(self.in_line)

    def next(self, reached: int, end: int) -> int | None:
        """The first that is before `end` and whose rank is at or below what the cursor has reached.
        None also if too many messages were put in front that are not written yet."""
        if not self.in_line:
            return None
        (rank, _), offset = self.in_line.peekitem(0)
        if rank > reached:
            return None
        if offset < end:
            return offset
        for (rank, _), offset in islice(self.in_line.items(), UNWRITTEN_MAX):
            if rank > reached:
                return None
            if offset < end:
                return offset
        return None

    def insert(self, offset: int, rank: int) -> None:
        self._serial += 1
        self.insert_at(offset, (rank, self._serial))

    def insert_parked(self, offset: int) -> None:
        """In its own place, and out of line."""
        if self.in_line is _NO_READY:
            self.in_line = SortedDict()
        self._serial += 1
        self.places[offset] = (offset, self._serial)

    def insert_at(self, offset: int, place: Place) -> None:
        if self.in_line is _NO_READY:
            self.in_line = SortedDict()
        self.places[offset] = place
        self.in_line[place] = offset

    def leave(self, offset: int) -> bool:
        """It has no place any more; whether it had one."""
        place = self.places.pop(offset, None)
        if place is None:
            return False
        self.in_line.pop(place, None)
        return True

    def park(self, offset: int) -> None:
        """Keep its place, and be out of line."""
        del self.in_line[self.places[offset]]

    def is_parked(self, offset: int) -> bool:
        place = self.places.get(offset)
        return place is not None and place not in self.in_line

    def unpark(self, offset: int) -> None:
        """It is in line again, if it was parked."""
        place = self.places.get(offset)
        if place is not None:
            self.in_line[place] = offset

    def unpark_all(self) -> None:
        for offset, place in self.places.items():
            self.in_line[place] = offset

    def check(self) -> None:
        """Assert the invariants."""
        self.overdue.check()
        self.parked()

    def parked(self) -> set[int]:
        """All of them, and the invariants hold. Tests ask."""
        ready = {self.in_line[key]: key for key in self.in_line}
        assert all(self.places[offset] == key for offset, key in ready.items())
        return set(self.places) - set(ready)

    def all_in_order(self) -> list[int]:
        """Parked or not."""
        if not self.parked_count:
            return list(self.in_line.values())
        return sorted(self.places, key=self.places.__getitem__)

    def became_due(self, now_ms: int, rank: int) -> bool:
        """What is due by now has this rank; whether something was overdue before it."""
        before = bool(self.overdue)
        self._serial = self.overdue.add(now_ms, rank, self._serial)
        return before

    def overdue_is_next(self, reached: int) -> bool:
        """What is overdue comes before all that is in line."""
        if not self.overdue or self.overdue.first[0] > reached:
            return False
        return not self.in_line or self.in_line.peekitem(0)[0] > self.overdue.first

    def end_at(self, end: int) -> None:
        """Put back behind what was never written: that is now the end."""
        self.overdue.truncate(end)
        for offset, place in [(o, place) for o, place in self.places.items() if place[0] > end]:
            self.places[offset] = (end, place[1])
            if self.in_line.pop(place, None) is not None:
                self.in_line[end, place[1]] = offset

    def front(self) -> int:
        """The rank before everything else."""
        first = next(iter(self.in_line))[0] if self.in_line else 0
        return min(first, 0) - 1

    def clear(self) -> None:
        self.places.clear()
        self.in_line.clear()
        self.overdue.clear()
