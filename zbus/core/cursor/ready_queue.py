"""What of a backlog is ready behind its cursor: each offset has a place in line, a rank and a
serial number, so that equal ranks keep their order. The smallest goes first.

Some of it may be *parked* (`zbus.core.cursor.key_order`): it has its place, and yet is not in line.

Tests: `tests/core/cursor/test_backlog.py`.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from sortedcontainers import SortedDict

from zbus.core.cursor.due_queue import Place

_NO_READY: Final[SortedDict[tuple[int, int], int]] = SortedDict()
"""Stays empty. Most backlogs never have an exception, and an empty one of these is 1.5 KB."""


UNWRITTEN_MAX: Final = 1_000
"""Messages in front that are not written yet and that `next` looks behind."""


class ReadyQueue:
    __slots__ = ("_ready", "_serial", "places")

    def __init__(self) -> None:
        self._ready = _NO_READY  # a SortedDict of its own as soon as there is something in it
        self.places: dict[int, Place] = {}  # offset -> its key in _ready, unless it is parked
        self._serial = 0

    @property
    def parked_count(self) -> int:
        return len(self.places) - len(self._ready)

    def unpark(self, offset: int) -> None:
        """It is in line again, if it was parked."""
        place = self.places.get(offset)
        if place is not None:
            self._ready[place] = offset

    def unpark_all(self) -> None:
        for offset, place in self.places.items():
            self._ready[place] = offset

    def _all_in_order(self) -> list[int]:
        """Parked or not."""
        if not self.parked_count:
            return list(self._ready.values())
        return sorted(self.places, key=self.places.__getitem__)

    def _written(self, reached: int, end: int) -> int | None:
        """What is next behind messages that were put in front and are not written yet; None if
        there is nothing, or if those are too many to look behind them."""
        for (rank, _), offset in islice(self._ready.items(), UNWRITTEN_MAX):
            if rank > reached:
                return None
            if offset < end:
                return offset
        return None

    def _insert(self, offset: int, rank: int) -> None:
        self._serial += 1
        self._insert_at(offset, (rank, self._serial))

    def _insert_at(self, offset: int, key: Place) -> None:
        if self._ready is _NO_READY:
            self._ready = SortedDict()
        self.places[offset] = key
        self._ready[key] = offset

    def _leave(self, offset: int) -> bool:
        """It has no place any more; whether it had one."""
        key = self.places.pop(offset, None)
        if key is None:
            return False
        self._ready.pop(key, None)
        return True

    def _end_at(self, end: int) -> None:
        """Put back behind what was never written: that is now the end."""
        for offset, key in [(o, key) for o, key in self.places.items() if key[0] > end]:
            self.places[offset] = (end, key[1])
            if self._ready.pop(key, None) is not None:
                self._ready[end, key[1]] = offset

    def _front(self) -> int:
        """The rank before everything else."""
        first = next(iter(self._ready))[0] if self._ready else 0
        return min(first, 0) - 1

    def _parked(self) -> set[int]:
        """All of them, and the invariants hold. Tests ask."""
        ready = {self._ready[key]: key for key in self._ready}
        assert all(self.places[offset] == key for offset, key in ready.items())
        return set(self.places) - set(ready)
