"""The broker's only clock: epoch milliseconds that never go back and never stand still.

It follows the wall, and where the wall jumps back (or the log already holds later times) it goes
on at the pace of the monotonic clock until the wall has caught up.
"""

from __future__ import annotations

import time


class Clock:
    """See above."""

    def __init__(self, not_before_ms: int = 0) -> None:
        self._last_ms = not_before_ms
        self._last_monotonic_ms = time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        monotonic_ms = time.monotonic_ns() // 1_000_000
        now_ms = max(
            time.time_ns() // 1_000_000, self._last_ms + monotonic_ms - self._last_monotonic_ms
        )
        self._last_ms, self._last_monotonic_ms = now_ms, monotonic_ms
        return now_ms
