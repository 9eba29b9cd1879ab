"""How long replies take, by samples: one request at a time is followed from socket to socket.

To measure every request would cost some percent of what a broker can do. Samples are of connections
on which nothing else was open, and none of requests that wait for messages or for a service: how
long those take, others decide.
"""

from __future__ import annotations

import time

from zbus.core.histogram import Histogram
from zbus.faces.native.face import COMMANDS
from zbus.faces.native.settings import Timings
from zbus.server.link import Link
from zbus.wire.heads import Head

PAUSE_MS = 5
"""Between two samples: 200 a second cost nothing that can be measured."""

COMMANDS_MAX = 100
"""Names that are told apart."""

_NEVER_MS = 1 << 62

_NAMES = {
    plan: name.decode() for name, plan in reversed(COMMANDS.items()) if isinstance(plan, type)
}


class Sampler:
    """Told by the loop when a turn begins and ends."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._link: Link | None = None  # whose request is followed
        self._head: Head | None = None  # of it, once it is read
        self._began_s = 0.0
        self.next_ms = self._after_ms = 0

    def begin(self, link: object, now_ms: int) -> None:
        """This is about to be read from, if it is a link. To be called from `next_ms` on."""
        if type(link) is Link and not link.open_tickets and link.heartbeat is None:
            self._link, self._head, self._began_s = link, None, time.monotonic()
            link.sample = self._read
            self.next_ms = _NEVER_MS  # one at a time
            self._after_ms = now_ms + PAUSE_MS

    def _read(self, head: Head) -> None:
        self._head = head
        if self._link is not None:
            self._link.sample = None

    def turned(self, began_s: float) -> None:
        """A turn is over that began then, and what it had to say is sent."""
        now_s = time.monotonic()
        self._timings.turn.observe(now_s - began_s)
        link = self._link
        if link is None:
            return
        head = self._head
        if head is None or link.closed or link.open_waits or link.heartbeat is not None:
            link.sample = None
        elif link.open_tickets:
            return  # it waits for the disk
        else:
            self._observe(name_of(head.plan), now_s - self._began_s)
        self._link = self._head = None
        self.next_ms = self._after_ms

    def _observe(self, name: str, seconds: float) -> None:
        replies = self._timings.replies
        histogram = replies.get(name)
        if histogram is None:
            if len(replies) >= COMMANDS_MAX:
                return
            histogram = replies[name] = Histogram()
        histogram.observe(seconds)


def name_of(plan: object) -> str:
    """The command, or the dialect if that is not the native one. Some heads are not remembered with
    what they ask for: those are `other`."""
    kind = type(plan)
    package, _, rest = kind.__module__.partition(".faces.")
    if plan is None or package != "zbus":
        return "other"
    dialect = rest.partition(".")[0]
    return _NAMES.get(kind, kind.__name__.lower()) if dialect == "native" else dialect
