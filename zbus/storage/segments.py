"""The segments of a lane: which there are, what they hold, and which end before an offset.

A segment is what is forgotten as a whole. Whoever has to know a lane's segments keeps them in this
list: an engine with the place of each, the broker with what retention goes by.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

Measure = Callable[[], tuple[int, int]]
"""Bytes of a segment and the time it begins with (epoch milliseconds)."""

_base = attrgetter("base")


S = TypeVar("S")


class Segments(list[S]):
    """Each with its `base`, the offset that it begins with; the oldest first, the newest last."""

    __slots__ = ()

    def holding(self, offset: int) -> int:
        """The number of the segment that holds an offset; the oldest for what is before it."""
        return max(bisect_right(self, offset, key=_base) - 1, 0)

    def begin(self, segment: S) -> S | None:
        """Another one begins. Give the one that it replaces: without messages, of the same base."""
        replaced = self.pop() if self and _base(self[-1]) == _base(segment) else None
        self.append(segment)
        return replaced

    def forget_before(self, offset: int) -> list[S]:
        """Take off those that end at or before an offset, but never the newest, and give them."""
        count = self.holding(offset)
        forgotten = self[:count]
        del self[:count]
        return forgotten


class StoredSegment:
    """One segment. What only its file can tell is found out when it is asked for first."""

    __slots__ = ("_begun_ms", "_bytes", "_measure", "base")

    def __init__(
        self, base: int, begun_ms: int = 0, bytes: int = 0, measure: Measure | None = None
    ) -> None:
        self.base = base  # the offset it begins with
        self._begun_ms = begun_ms
        self._bytes = bytes
        self._measure = measure

    @property
    def begun_ms(self) -> int:
        """No message before this segment is younger."""
        self._know()
        return self._begun_ms

    @property
    def bytes(self) -> int:
        """Of an ended segment."""
        self._know()
        return self._bytes

    def end(self, bytes: int) -> None:
        """The next segment was begun."""
        self._know()
        self._bytes = bytes

    def _know(self) -> None:
        if self._measure is not None:
            self._bytes, self._begun_ms = self._measure()
            self._measure = None
