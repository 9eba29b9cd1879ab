"""How long replies take, by samples: one request at a time is followed from socket to socket.

To measure every request would cost some percent of what a broker can do. Samples are of connections
on which nothing else was open, and none of requests that wait for messages or for a service: how
long those take, others decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from zbus.core.api import S_BOUNDS, Histogram
from zbus.dialects.zbus.settings import Timings
from zbus.edge.connection import Plan
from zbus.server.loop.socket_connection import SocketConnection
from zbus.wire.heads.heads import Head

PAUSE_MS = 5
"""Between two samples: 200 a second cost nothing that can be measured."""

COMMANDS_MAX = 100
"""Names that are kept distinct."""

_NEVER_MS = 1 << 62
_QUICK_S = S_BOUNDS[0]


class Sampler:
    """Called by the loop when a turn begins and ends."""

    def __init__(self, timings: Timings, name_of: Callable[[object], str]) -> None:
        """`name_of` says under which name a plan is counted."""
        self._timings = timings
        self._name_of = name_of
        self._turns = timings.turn
        self._link: SocketConnection | None = None  # whose request is followed
        self._head: Head | None = None  # of it, until it is planned
        self._plan: object = None  # what is run for it
        self._began_s = 0.0
        self.next_ms = self._after_ms = 0

    def begin(self, link: object, now_ms: int) -> None:
        """This is about to be read from, if it is a link. To be called from `next_ms` on."""
        if type(link) is SocketConnection and not link.open_tickets and link.heartbeat is None:
            self._link, self._began_s = link, time.monotonic()
            link.sample = self
            self.next_ms = _NEVER_MS  # one at a time
            self._after_ms = now_ms + PAUSE_MS

    def read(self, head: Head) -> None:
        """It asks for this."""
        self._head = head
        if head.plan is not None and self._link is not None:
            self._plan = head.plan
            self._link.sample = None

    def planned(self, head: Head, plan: Plan) -> None:
        """A plan is not kept with a head that never comes again, so it is noted here."""
        if head is self._head and self._link is not None:
            self._plan = plan
            self._link.sample = None

    def turned(self, began_s: float) -> None:
        """A turn is over that began then, and what it had to say is sent."""
        now_s = time.monotonic()
        took_s, turns = now_s - began_s, self._turns
        if took_s <= _QUICK_S:  # most are, and this is on the way of each
            turns.counts[0] += 1
            turns.total += took_s
        else:
            turns.observe(took_s)
        link = self._link
        if link is None:
            return
        plan = self._plan
        if plan is None or link.closed or link.open_waits or link.heartbeat is not None:
            link.sample = None
        elif link.open_tickets:
            return  # it waits for the disk
        else:
            self._observe(self._name_of(plan), now_s - self._began_s)
        self._link = self._head = self._plan = None
        self.next_ms = self._after_ms

    def _observe(self, name: str, seconds: float) -> None:
        replies = self._timings.replies
        histogram = replies.get(name)
        if histogram is None:
            if len(replies) >= COMMANDS_MAX:
                return
            histogram = replies[name] = Histogram()
        histogram.observe(seconds)
