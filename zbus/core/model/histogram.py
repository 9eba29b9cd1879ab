"""How long things take, counted by size: what a histogram of a monitoring system is made of.

Tests: `tests/conformance/test_metrics.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

MS_BOUNDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000)
"""Of what is measured in milliseconds."""

S_BOUNDS = (
    0.000_05,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""Of what is measured in seconds."""


class Histogram:
    """One writer; who reads meanwhile sees the last value or not yet."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = S_BOUNDS) -> None:
        self.bounds = bounds  # a value belongs to the first that is not less; else behind the last
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float, count: int = 1) -> None:
        """This many times this value."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def quantile(self, part: float) -> float:
        """A bound below which that many of a thousand are, as far as the bounds tell."""
        wanted = part * sum(self.counts)
        for bound, count in zip(self.bounds, self.counts, strict=False):
            wanted -= count
            if wanted <= 0:
                return bound
        return self.bounds[-1]

    def since(self, counts: Sequence[int]) -> Histogram:
        """What was counted after the counts were these; its total is not known."""
        found = Histogram(self.bounds)
        found.counts = [now - then for now, then in zip(self.counts, counts, strict=True)]
        return found

    def add(self, other: Histogram) -> None:
        """What another one of the same bounds has counted, too."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
