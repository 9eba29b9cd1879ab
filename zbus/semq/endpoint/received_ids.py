"""Which messages have ever come: of each stream of each store, intervals of numbers (section 9).

Stream 3 has no gaps for long, so it is one interval for ever. Stream 2 may have any: beyond
`GAPS_MAX` intervals the oldest two become one, so what is missing between them counts as seen: it
would come too late, and nothing is ever handed over twice.

Numbers whose message was void when it came are remembered beside that, the newest of them: a
sender that asks for such a one does not hear that its message was received.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from zbus.semq.endpoint.context import Context
from zbus.semq.protocol.words import Mid, Store, Stream, read_intervals, show_seqs

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

    def add(self, given: range) -> None:
        """It is one with all that it meets or overlaps."""
        begin = bisect_left(self.stops, given.start)
        end = bisect_right(self.starts, given.stop)
        start, stop = given.start, given.stop
        if begin < end:
            start, stop = min(start, self.starts[begin]), max(stop, self.stops[end - 1])
        self.starts[begin:end], self.stops[begin:end] = [start], [stop]

    @property
    def complete(self) -> int:
        """All numbers below this one were seen."""
        return self.stops[0] if self.starts and self.starts[0] == 1 else 1

    def ranges(self) -> list[range]:
        return [range(*each) for each in zip(self.starts, self.stops, strict=True)]


class Seen(Intervals):
    """Those of a stream, with those that were void."""

    __slots__ = ("since", "void")

    def __init__(self, since_ms: int, seen: str = "", void: str = "") -> None:
        super().__init__(read_intervals(seen))
        self.since = since_ms  # when the first of them came
        self.void = Intervals(read_intervals(void))

    def take(self, given: range, void: bool, gaps: bool) -> None:
        """These have come."""
        self.add(given)
        if gaps and len(self.starts) > GAPS_MAX:
            del self.starts[1], self.stops[0]
        if void:
            self.void.add(given)
            if len(self.void.starts) > GAPS_MAX:
                del self.void.starts[0], self.void.stops[0]


class ReceivedIds:
    """What a step has added is written at its end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[Key, Seen] = {}
        self._changed: dict[Key, None] = {}
        self._epochs: dict[Store, list[str]] = {}  # of stream 3, the newest last

    def of(self, mid: Mid) -> Seen:
        """The stream of a message."""
        key = (*mid.store, mid.epoch, mid.stream)
        found = self._known.get(key)
        if found is None:
            row = self._context.execute(
                "SELECT since, seen, void FROM semq_ledger WHERE src = ? AND semq_id = ?"
                " AND semq_db_id = ? AND epoch = ? AND stream = ?",
                key,
            ).fetchone()
            found = self._known[key] = Seen(*(row or (self._context.now_ms,)))
        return found

    def add(self, mid: Mid, void: bool = False, skips: Iterable[range] = ()) -> bool:
        """A message has come, with numbers of its stream for which none will. Says whether it is
        new; if it is not, so are they."""
        seen = self.of(mid)
        if mid.seq in seen:
            return False
        gaps = mid.stream != Stream.CONTIGUOUS
        seen.take(range(mid.seq, mid.seq + 1), void, gaps)
        for each in skips:
            seen.take(each, True, gaps)
        self._changed[(*mid.store, mid.epoch, mid.stream)] = None
        epochs = self._epochs_of(mid.store)
        if not gaps and mid.epoch not in epochs:
            epochs.append(mid.epoch)
        return True

    def give_up(self, mid: Mid) -> None:
        """What is missing before this number does not come any more."""
        self.of(mid).take(range(1, mid.seq), False, False)
        self._changed[(*mid.store, mid.epoch, mid.stream)] = None

    def former(self, mid: Mid) -> list[str]:
        """Epochs of its store before its own, as far as they are known by stream 3."""
        epochs = self._epochs_of(mid.store)
        return epochs[: epochs.index(mid.epoch)] if mid.epoch in epochs else []

    def _epochs_of(self, store: Store) -> list[str]:
        found = self._epochs.get(store)
        if found is None:
            rows = self._context.execute(
                "SELECT epoch FROM semq_ledger WHERE src = ? AND semq_id = ? AND semq_db_id = ?"
                " AND stream = ? ORDER BY since",
                (*store, int(Stream.CONTIGUOUS)),
            )
            found = self._epochs[store] = [epoch for (epoch,) in rows.fetchall()]
        return found

    def write(self) -> None:
        """What is new, before the commit."""
        rows = []
        for key in self._changed:
            seen = self._known[key]
            texts = show_seqs(seen.ranges()), show_seqs(seen.void.ranges())
            rows.append((*key, *texts, seen.since))
        if rows:
            put = "INSERT OR REPLACE INTO semq_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            self._context.database.executemany(put, rows)
            self._changed.clear()
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
            self._epochs.clear()

    def forget(self) -> None:
        """The step has failed: the database knows."""
        self._known.clear()
        self._changed.clear()
        self._epochs.clear()
