"""Percentiles of what a brisk client waited.

A client that waits for its answers asks nothing meanwhile, so a stall of a second would be one slow
operation among hundreds of quick ones, and no percentile would show it. So an operation that took
longer than a round counts once for each round that it held up, less by a round each time: as if
clients had gone on asking at their pace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


def with_held_up(took_ms: Iterable[float], period_ms: float) -> list[float]:
    """These, and what the rounds that they held up would have waited; sorted."""
    found = []
    for ms in took_ms:
        found.append(ms)
        found.extend(ms - held * period_ms for held in range(1, int(ms / period_ms)))
    found.sort()
    return found


class Figures(NamedTuple):
    """In milliseconds; NaN = there was nothing."""

    p50: float
    p99: float
    p999: float
    max: float
    operations: int

    @classmethod
    def of(cls, took_ms: Iterable[float], period_ms: float) -> Figures:
        taken = list(took_ms)
        waited = with_held_up(taken, period_ms)
        if not waited:
            return cls(math.nan, math.nan, math.nan, math.nan, 0)

        def at(part: float) -> float:
            return waited[min(len(waited) - 1, int(part * len(waited)))]

        return cls(at(0.5), at(0.99), at(0.999), waited[-1], len(taken))
