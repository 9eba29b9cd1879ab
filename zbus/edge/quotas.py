"""What the holders of one entry of the table of tokens may use, all of them together.

An entry without limits has no meter, and its requests pay nothing for that there are such.
"""

from __future__ import annotations

import attrs

from zbus.core.model.rate_limit import RateLimit, so_many
from zbus.core.topics.topic import Session
from zbus.edge.guard import Answer
from zbus.edge.status import retry_after


def share(limit: int, parts: int) -> int:
    """That of one of so many processes, together about the limit; 0 stays what it means."""
    return limit and max(1, limit // parts)


@attrs.frozen
class Limits:
    """As an entry says; 0 = none."""

    requests_per_s: int = 0
    bytes_per_s: int = 0  # of bodies that are received
    connections_max: int = 0  # open ones that have used it

    @property
    def any(self) -> bool:
        return bool(self.requests_per_s or self.bytes_per_s or self.connections_max)

    def shared(self, parts: int) -> Limits:
        """Those of one of so many processes that count by themselves."""
        return Limits(*[share(value, parts) for value in attrs.astuple(self)])


NO_LIMITS = Limits()


class Meter:
    """What was used of these limits."""

    __slots__ = ("_connections", "_quota", "limits")

    def __init__(self, limits: Limits) -> None:
        self._connections: dict[Session, None] = {}
        self.change(limits)

    def change(self, limits: Limits) -> None:
        """Other limits count from now on; the connections are the same."""
        self.limits = limits
        self._quota = RateLimit(limits.requests_per_s, limits.bytes_per_s)

    def admit(self, session: Session, now_ms: int, size: int) -> Answer | None:
        """Count a request with a body of that size, or give what is answered instead."""
        limits = self.limits
        if limits.connections_max and session not in self._connections:
            if len(self._connections) >= limits.connections_max:
                most = so_many((limits.connections_max, "connection"))
                text = f"429: quota reached: this token may have {most}"
                return Answer(429, text, retry_after(1))
            self._connections[session] = None
            session.when_left(self._left)
        if wait_s := self._quota.wait_s(now_ms):
            return Answer(429, self._throttled(wait_s), retry_after(wait_s))
        self._quota.take(1, size)
        return None

    def _left(self, session: Session) -> None:
        self._connections.pop(session, None)

    def _throttled(self, wait_s: int) -> str:
        limits = self.limits
        most = so_many((limits.requests_per_s, "request"), (limits.bytes_per_s, "byte"))
        return f"429: this token may send {most} a second: retry in {wait_s} s"
