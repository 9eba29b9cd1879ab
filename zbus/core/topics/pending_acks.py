"""What a partition knows of deliveries that are settled by what was put into it.

Tests: `tests/core/patterns/test_put_and_ack.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from zbus.core.cursor.state import Settlement


class PendingAcks:
    """Those that are open, by number, and what is to be written of them."""

    __slots__ = ("fresh", "open", "settled")

    def __init__(self) -> None:
        self.open: dict[int, Settlement] = {}
        self.fresh: list[Settlement] = []  # not written yet
        self.settled: list[int] = []  # numbers, likewise

    @classmethod
    def found(cls, stored: Iterable[Settlement], end: int) -> PendingAcks | None:
        """Of a partition that was read again and ends there. What lost its messages does not count,
        and that is written before anything takes their place."""
        found = cls()
        for settlement in stored:
            if settlement.end <= end:
                found.open[settlement.number] = settlement
            else:
                found.settled.append(settlement.number)
        return found if found.open or found.settled else None

    @property
    def next_number(self) -> int:
        return 1 + max([*self.open, *self.settled], default=0)

    def add(self, settlement: Settlement) -> None:
        """Open one; it is written before the messages that it counts by."""
        self.open[settlement.number] = settlement
        self.fresh.append(settlement)

    def close(self, number: int) -> None:
        """What it settles is settled, durably."""
        if self.open.pop(number, None) is not None:
            self.settled.append(number)

    def truncate(self, end: int) -> None:
        """Messages from `end` on were never there."""
        self.fresh = [one for one in self.fresh if one.end <= end]
        self.open = {number: one for number, one in self.open.items() if one.end <= end}

    def take(self) -> tuple[tuple[Settlement, ...], tuple[int, ...]]:
        """What is to be written, once."""
        fresh, self.fresh = self.fresh, []
        settled, self.settled = self.settled, []
        return tuple(fresh), tuple(settled)
