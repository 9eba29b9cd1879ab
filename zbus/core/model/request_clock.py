"""Time as the broker's peers see it, which a long turn may outlast.

Within a turn the broker knows one time, that of its beginning. A time that runs from the
moment of a request or of a delivery must not be counted from there: it would end early.

Tests: `tests/conformance/test_never_early.py`.
"""

from __future__ import annotations

from collections.abc import Callable


class RequestClock:
    """The driver of the broker sets these; a broker under virtual time needs neither."""

    __slots__ = ("ahead_ms", "drift_ms", "received_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        # The broker's time right now, rounded up: what is read now was sent no later.
        self.received_ms = now_ms
        # How far the broker's clock is ahead of those outside, rounded up; negative = behind.
        self.ahead_ms: Callable[[], int] = lambda: 0
        self.drift_ms: Callable[[], int] = lambda: 0  # the same, to the nearest millisecond
