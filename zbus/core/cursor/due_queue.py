"""What is due and not ready yet: its ranks.

A message that became due goes behind what its log had then: that is its rank. To make it ready
takes some objects and an entry in the journal. So when thousands are due, a lot of them becomes
ready, and the others stay in `Delays`, where a message costs 8 bytes, until the group has come so
far. For them is remembered here: what is due by this time has that rank.

After a restart they are due at once, and have the rank of that moment.

Tests: `tests/core/delivery/test_due_messages.py`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import attrs

from zbus.core.model.lateness import Lateness
from zbus.core.timing.delays import Delays

LOT: Final = 1_000
"""Messages that are made ready at once."""

LOOK_MS: Final = 50
"""While messages are overdue, the others that become due are noted that often."""

RANKS_MAX: Final = 1_000
"""With more, every second goes: what it stood for has the next one's, which is later."""

_SERIALS: Final = 1 << 40  # enough for all messages of one rank

Place = tuple[int, int]
"""A rank, and a serial number: equal ranks keep their order."""


@attrs.define
class _Rank:
    """Of what is due by a time, and not by that of the one before."""

    until_ms: int
    rank: int
    serial: int  # of the last that was made ready
    serial_end: int  # all of them have lower ones than what gets this rank later


class Overdue:
    __slots__ = ("ranks",)

    def __init__(self) -> None:
        self.ranks: list[_Rank] = []

    def __bool__(self) -> bool:
        return bool(self.ranks)

    @property
    def until_ms(self) -> int:
        """What is due by then is overdue, if anything is."""
        return self.ranks[-1].until_ms

    @property
    def first(self) -> Place:
        """The place before the first of them."""
        return self.ranks[0].rank, self.ranks[0].serial

    def add(self, now_ms: int, rank: int, serial: int) -> int:
        """What is due by now has this rank, and serials from this one on; the one behind them."""
        ranks = self.ranks
        if ranks and (ranks[-1].rank, ranks[-1].serial_end) == (rank, serial):
            ranks[-1].until_ms = now_ms
            return serial
        ranks.append(_Rank(now_ms, rank, serial, serial + _SERIALS))
        if len(ranks) > RANKS_MAX:
            del ranks[-2::-2]
        return serial + _SERIALS

    def take(self, delayed: Delays, tally: Lateness) -> list[tuple[int, Place]]:
        """The first lot, out of `delayed`: offsets and places."""
        first = self.ranks[0]
        rank, serial = first.rank, first.serial + 1
        late_ms = first.until_ms - (delayed.next_due() or first.until_ms)
        offsets = delayed.pop_due(first.until_ms, LOT)
        tally.became_due(len(offsets), late_ms)
        first.serial += len(offsets)
        due_ms = delayed.next_due()
        while self.ranks and (due_ms is None or due_ms > self.ranks[0].until_ms):
            del self.ranks[0]
        return [(offset, (rank, place)) for place, offset in enumerate(offsets, serial)]

    def truncate(self, end: int) -> None:
        """The log ends there."""
        for rank in self.ranks:
            rank.rank = min(rank.rank, end)

    def clear(self) -> None:
        self.ranks.clear()

    def check(self) -> None:
        """Assert the invariants."""
        ranks = self.ranks
        assert len(ranks) <= RANKS_MAX
        for one, other in pairwise(ranks):
            assert one.until_ms <= other.until_ms
            assert one.serial <= one.serial_end <= other.serial
