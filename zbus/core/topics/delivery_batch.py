"""What one pull has got so far, and how much more it may get.

Tests: `tests/core/delivery/test_dispatch.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import add

from zbus.core.model.chunk import Chunk
from zbus.core.topics.outcomes import Slice


class DeliveryBatch:
    __slots__ = ("bytes_left", "count_left", "found")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.found: list[Slice] = []
        self.count_left = count_max
        self.bytes_left = bytes_max

    @property
    def full(self) -> bool:
        return self.count_left <= 0 or self.bytes_left <= 0

    def add(self, index: int, chunk: Chunk, at: int, attempts: int) -> None:
        """One message; it may continue the last piece."""
        self.count_left -= 1
        self.bytes_left -= len(chunk.bodies[at]) + len(chunk.headers[at])
        if self.found:
            last = self.found[-1]
            if last.chunk is chunk and last.stop == at and last.attempts == attempts:
                self.found[-1] = Slice(index, chunk, last.start, at + 1, attempts)
                return
        self.found.append(Slice(index, chunk, at, at + 1, attempts))

    def add_run(self, index: int, chunk: Chunk, start: int, stop: int) -> int:
        """Rows of a chunk up to `stop` at most, as many as fit; give the row after them."""
        stop = min(stop, start + self.count_left, len(chunk.bodies))
        rows = slice(start, stop)
        sizes = map(add, map(len, chunk.bodies[rows]), map(len, chunk.headers[rows]))
        totals = list(accumulate(sizes))
        count = min(bisect_left(totals, self.bytes_left) + 1, stop - start)
        size = totals[count - 1]
        self.count_left -= count
        self.bytes_left -= size
        self.found.append(Slice(index, chunk, start, start + count))
        return start + count
