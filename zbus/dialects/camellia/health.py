"""Whether load balancers are to send requests here, as the original's deploy scripts ask."""

from __future__ import annotations

from typing import Final

QUIET_MS: Final = 20_000
"""Without a message verb for this long, a broker that was set offline may be stopped."""


class Health:
    """Kept in memory: after a start it is online."""

    __slots__ = ("_used_ms", "online", "started_ms")

    def __init__(self) -> None:
        self.online = True
        self.started_ms = 0
        self._used_ms = -QUIET_MS

    def begin(self, now_ms: int) -> None:
        """The broker has a time now; it is that of the start if there was none before."""
        self.started_ms = self.started_ms or now_ms

    def use(self, now_ms: int) -> None:
        """A message verb was called."""
        self._used_ms = now_ms

    def quiet(self, now_ms: int) -> bool:
        return now_ms - self._used_ms > QUIET_MS
