"""The recent past of one topic or group in a fixed number of bytes: an hour, a day and a week.

Each span is a ring of rows, one for each step of it, which is 10 s, 5 min or 30 min. A row has five
whole numbers: what was counted in the step (messages, bytes), then what was there (a backlog). When
a step of a longer span is over, its row is made of those of the span before: the mean of what was
counted, as if the step were whole, and the largest of what was there, so that no peak is lost.

A number takes 16 bits, like a float without a sign: exact up to 4,095, and above that to within
1 in 4,096. All ones stand for one that is not known: no broker ran then, or it had just started.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, Literal, TypeAlias, get_args

import attrs

from zbus.protocol.documents import Span

WIDTH: Final = 5
"""Numbers of a row."""

Row: TypeAlias = "list[int | None]"
"""None = not known."""


@attrs.frozen
class SpanShape:
    """One of the spans."""

    name: Span
    step_ms: int
    count: int  # steps of it that are kept


SPANS: Final = (
    SpanShape("hour", 10_000, 360),
    SpanShape("day", 300_000, 288),
    SpanShape("week", 1_800_000, 336),
)
LEVELS: Final = {span.name: level for level, span in enumerate(SPANS)}
assert tuple(LEVELS) == get_args(Span)

_SHORT: Final = [span.step_ms // SPANS[0].step_ms for span in SPANS]
"""Steps of 10 s that are one step."""

_PER: Final = [1, *[b // a for a, b in pairwise(_SHORT)]]
"""Steps of the span before that are one step."""

ROWS: Final = sum([span.count for span in SPANS])
SERIES_BYTES: Final = 2 * WIDTH * ROWS + 400
"""About what a series takes in memory."""

ENDIAN: Final[Literal["little", "big"]] = sys.byteorder

_UNKNOWN: Final = 0xFFFF
_EXACT_BITS: Final = 12


def _no_rows(count: int) -> array[int]:
    return array("H", [_UNKNOWN]) * (WIDTH * count)


_NO_ROW: Final = _no_rows(1)


def packed(value: int | None) -> int:
    """The 16 bits of a number; what is larger than 4e12 counts as that."""
    if value is None:
        return _UNKNOWN
    shift = value.bit_length() - _EXACT_BITS
    if shift <= 0:
        return value
    rounded = (value + (1 << shift >> 1)) >> shift
    return min(rounded + (shift << _EXACT_BITS - 1), _UNKNOWN - 1)


def unpacked(bits: int) -> int | None:
    """The number again."""
    if bits == _UNKNOWN:
        return None
    shift = max(0, (bits >> _EXACT_BITS - 1) - 1)
    return (bits - (shift << _EXACT_BITS - 1)) << shift


class Ring:
    """Rows of the newest steps of one span. Steps are numbered from the epoch."""

    __slots__ = ("_cells", "_count", "last")

    def __init__(self, count: int) -> None:
        self._count = count
        self._cells = _no_rows(count)
        self.last = -1  # the newest step that has a row

    def put(self, step: int, row: Iterable[int | None]) -> None:
        """The row of a step after the last one; those between have none."""
        if self.last < step - self._count:  # nothing of it is left
            self._cells = _no_rows(self._count)
        else:
            for skipped in range(self.last + 1, step):
                self._set(skipped, _NO_ROW)
        self._set(step, array("H", [packed(value) for value in row]))
        self.last = step

    def _set(self, step: int, cells: array[int]) -> None:
        at = step % self._count * WIDTH
        self._cells[at : at + WIDTH] = cells

    def row(self, step: int) -> Row:
        """Of a step that may be any."""
        if not self.last - self._count < step <= self.last:
            return [None] * WIDTH
        at = step % self._count * WIDTH
        return [unpacked(bits) for bits in self._cells[at : at + WIDTH]]

    def save(self) -> tuple[int, bytes]:
        return self.last, self._cells.tobytes()

    def load(self, last: int, cells: bytes) -> None:
        """Raises ValueError if it is not what `save` gave."""
        if len(cells) != 2 * WIDTH * self._count:
            raise ValueError("a ring has another size")
        self._cells = array("H", cells)
        self.last = last


Saved: TypeAlias = "list[tuple[int, bytes]]"
"""What is to be kept of a series: the newest step of each ring, and its cells."""


class Series:
    """The rings of one topic or group. The first `counted` numbers of a row were counted in its
    step; the others are what was there."""

    __slots__ = ("_counted", "_rings")

    def __init__(self, counted: int) -> None:
        self._counted = counted
        self._rings = [Ring(span.count) for span in SPANS]

    @property
    def last(self) -> int:
        """The newest step of 10 s that has a row; -1 = none."""
        return self._rings[0].last

    def put(self, step: int, row: Iterable[int | None], level: int = 0) -> None:
        """The row of a step after the last one."""
        ring = self._rings[level]
        if level + 1 < len(SPANS) and ring.last >= 0:
            before = ring.last // _PER[level + 1]
            if before != step // _PER[level + 1]:
                self.put(before, self.row(before, level + 1), level + 1)
        ring.put(step, row)

    def row(self, step: int, level: int) -> Row:
        """The row of a step of a span. That of one which is not over is made of what there is."""
        ring = self._rings[level]
        if level == 0 or step <= ring.last:
            return ring.row(step)
        if step not in (self.last // _SHORT[level], self._rings[level - 1].last // _PER[level]):
            return [None] * WIDTH  # all others that there were are over, and have a row
        first = step * _PER[level]
        rows = [self.row(each, level - 1) for each in range(first, first + _PER[level])]
        return list(self._whole(rows))

    def _whole(self, rows: list[Row]) -> Iterator[int | None]:
        for column, values in enumerate(zip(*rows, strict=True)):
            known = [value for value in values if value is not None]
            if not known:
                yield None
            elif column < self._counted:
                yield round(sum(known) * len(rows) / len(known))
            else:
                yield max(known)

    def rows(self, level: int, now_step: int) -> tuple[int, list[Row]]:
        """The steps of a span up to the one of now, which is a number of 10 s, without those before
        anything was known: the first step, and a row for each."""
        end = now_step // _SHORT[level]
        first = end - SPANS[level].count + 1
        rows = [self.row(step, level) for step in range(first, end + 1)]
        known = next((n for n, row in enumerate(rows) if row != [None] * WIDTH), len(rows))
        return first + known, rows[known:]

    def save(self) -> Saved:
        return [ring.save() for ring in self._rings]

    def load(self, saved: Saved) -> None:
        """Raises ValueError if it is not what `save` gave."""
        for ring, (last, cells) in zip(self._rings, saved, strict=True):
            ring.load(last, cells)
