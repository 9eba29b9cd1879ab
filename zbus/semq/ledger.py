"""Which messages have ever come: of each stream of each store, intervals of numbers (section 9).

Stream 3 has no gaps for long, so it is one interval for ever. Stream 2 may have any: of it no more
than `GAPS_MAX` intervals are remembered, the newest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from zbus.semq.context import Context
from zbus.semq.words import Mid, Stream, read_seqs, show_seqs

GAPS_MAX: Final = 500
_KNOWN_MAX: Final = 10_000

Key = tuple[str, int, int, str, int]


class Intervals:
    """Numbers that were seen."""

    __slots__ = ("starts", "stops")

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        for each in ranges:
            self.starts.append(each.start)
            self.stops.append(each.stop)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self.starts, seq) - 1
        return at >= 0 and seq < self.stops[at]

    def add(self, seq: int) -> None:
        """One that is not in it."""
        at = bisect_right(self.starts, seq)
        joins = at > 0 and self.stops[at - 1] == seq
        meets = at < len(self.starts) and self.starts[at] == seq + 1
        if joins and meets:
            self.stops[at - 1] = self.stops[at]
            del self.starts[at], self.stops[at]
        elif joins:
            self.stops[at - 1] = seq + 1
        elif meets:
            self.starts[at] = seq
        else:
            self.starts.insert(at, seq)
            self.stops.insert(at, seq + 1)

    @property
    def complete(self) -> int:
        """All numbers below this one were seen."""
        return self.stops[0] if self.starts and self.starts[0] == 1 else 1

    def ranges(self) -> list[range]:
        return [range(*each) for each in zip(self.starts, self.stops, strict=True)]


class Ledger:
    """See the module. What a step has added is written at its end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[Key, Intervals] = {}
        self._changed: dict[Key, None] = {}

    def of(self, mid: Mid) -> Intervals:
        """The stream of a message."""
        key = (*mid.store, mid.epoch, mid.stream)
        found = self._known.get(key)
        if found is None:
            row = self._context.execute(
                "SELECT seen FROM semq_ledger WHERE src = ? AND semq_id = ? AND semq_db_id = ?"
                " AND epoch = ? AND stream = ?",
                key,
            ).fetchone()
            found = self._known[key] = Intervals(_read(row[0]) if row else ())
        return found

    def add(self, mid: Mid) -> bool:
        """Says whether it is new."""
        seen = self.of(mid)
        if mid.seq in seen:
            return False
        seen.add(mid.seq)
        if mid.stream != Stream.CONTIGUOUS and len(seen.starts) > GAPS_MAX:
            del seen.starts[0], seen.stops[0]
        self._changed[(*mid.store, mid.epoch, mid.stream)] = None
        return True

    def write(self) -> None:
        """What is new, before the commit."""
        rows = [(*key, show_seqs(self._known[key].ranges())) for key in self._changed]
        if rows:
            put = "INSERT OR REPLACE INTO semq_ledger VALUES (?, ?, ?, ?, ?, ?)"
            self._context.database.executemany(put, rows)
            self._changed.clear()
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()

    def forget(self) -> None:
        """The step has failed: the database knows."""
        self._known.clear()
        self._changed.clear()


def _read(text: str) -> list[range]:
    """What was written: that may be more numbers than a frame has, so it is read in parts."""
    return [part for piece in text.split(",") for part in _interval(piece)]


def _interval(piece: str) -> list[range]:
    first, dash, last = piece.partition("-")
    if dash:
        return [range(read_seqs(first)[0].start, read_seqs(last)[0].start + 1)]
    return read_seqs(first)
