"""The broker's only clock: epoch milliseconds that count elapsed time, whatever the wall does.

It is set once, at the start, by the system's clock (or the latest time in the log, if that is
later). From there on it counts the time that passes, a suspended machine's included. Somebody who
sets the system's clock, by an hour or by a month, changes nothing: no lease ends early, no message
expires or comes before its time. Times that come from outside are translated by `ahead_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def _elapsed_ns() -> int:
    """Time since some moment, suspension included where the system counts that."""
    return time.clock_gettime_ns(_ELAPSED)


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """See above. `wall_ns` and `elapsed_ns` are the system's, unless a test has others."""

    def __init__(
        self,
        not_before_ms: int = 0,
        wall_ns: Callable[[], int] = time.time_ns,
        elapsed_ns: Callable[[], int] = _elapsed_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        start_ns = max(wall_ns(), not_before_ms * 1_000_000)
        self._zero_ns = start_ns - elapsed_ns()

    def now_ms(self) -> int:
        return (self._zero_ns + self._elapsed_ns()) // 1_000_000

    def asked_ms(self) -> int:
        """The same, rounded up: what is counted from it never ends early."""
        return -(-(self._zero_ns + self._elapsed_ns()) // 1_000_000)

    def ahead_ms(self) -> int:
        """How far this clock is ahead of the system's, rounded up: so what is due at a time of day
        never is before it. Negative = behind."""
        return -((self._wall_ns() - self._zero_ns - self._elapsed_ns()) // 1_000_000)
