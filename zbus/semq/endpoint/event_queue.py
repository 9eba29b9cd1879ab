"""What has happened since the endpoint's last step, in its order."""

from __future__ import annotations

from typing import Final

import anyio
import anyio.lowlevel

from zbus.semq.endpoint.events import Came, Event, Submit

_EVENTS_MAX: Final = 1_000
_BYTES_MAX: Final = 32 << 20
"""In one step: what comes after waits, on its connection."""


class EventQueue:
    """Filled by everybody, emptied by one task. What can wait does when there is too much of it."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._bytes = 0
        self._came = anyio.Event()
        self._room = anyio.Event()

    def __len__(self) -> int:
        return len(self._events)

    async def put(self, event: Event) -> None:
        """When there is room for it. Who is cancelled before that has said nothing."""
        while len(self._events) >= _EVENTS_MAX or self._bytes >= _BYTES_MAX:
            await self._room.wait()
        self.post(event)

    def post(self, event: Event) -> None:
        """At once: for what is said once of a connection, and cannot wait."""
        self._events.append(event)
        self._bytes += _size(event)
        self._came.set()

    def take(self) -> list[Event]:
        """All of it."""
        events, self._events, self._bytes = self._events, [], 0
        self._came = anyio.Event()
        self._room.set()
        self._room = anyio.Event()
        return events

    async def wait(self, at_most_s: float | None) -> None:
        """Until there is something, or for this long."""
        if self._events:
            return
        if at_most_s is None:
            await self._came.wait()
            return
        with anyio.move_on_after(max(0.0, at_most_s)):
            await self._came.wait()

    async def gather(self) -> None:
        """Let all connections read what is there: it belongs to the same step."""
        known = -1
        while known < len(self._events) < _EVENTS_MAX:
            known = len(self._events)
            await anyio.lowlevel.checkpoint()


def _size(event: Event) -> int:
    if isinstance(event, Came):
        return len(event.frame.body)
    return len(event.body) if isinstance(event, Submit) else 0
