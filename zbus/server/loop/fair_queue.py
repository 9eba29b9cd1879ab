"""Who is served when there is more to do than fits into a turn.

What a connection asks for has a price in work (`Peer.work`, units of about a microsecond). Most ask
for little: they are served as soon as they are heard. A connection that used more than a *light*
share when it was served last, or that is new, goes to the ring instead, where connections have
turns: each may use a quantum, and all together what one turn of the loop gives to the ring. What
one request takes beyond the quantum is a debt, which is paid before it is served again.

So however many connections ask for however much, a light one waits for little more than one turn of
bounded length; and no link in the ring is passed over. (The idea is that of deficit round robin
with sparse flows first, as in RFC 8290.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zbus.server.loop.socket_connection import SocketConnection

QUANTUM = 200
"""Work of one connection in one turn."""

LIGHT = 60
"""Who uses no more than this is served without waiting for a turn in the ring."""

HEAVY_BELOW = QUANTUM - LIGHT
"""A connection whose `work` is less than this is served in the ring."""

TURN_WORK = 1_000
"""What a turn of the loop gives to the ring."""

SMALL_BYTES = 4 << 10
"""A link that sends more at once may ask for much: that waits for its turn in the ring, if what
others have asked for is enough for this turn of the loop."""

VISIT_WORK = 5
"""What it costs to look after a connection that asks for nothing."""


class FairQueue:
    def __init__(self, serve: Callable[[SocketConnection], None]) -> None:
        """`serve` reads from a connection, or goes on with what it has asked for."""
        self._serve = serve
        self.links: deque[SocketConnection] = deque()  # whose turn it is next, first
        self.used = 0  # of what this turn of the loop gives; debts that others made count as well

    def add(self, link: SocketConnection) -> None:
        """It has something to do, or to say."""
        if not link.queued:
            link.queued = True
            self.links.append(link)

    def run(self) -> None:
        """Serve those whose turn it is."""
        self._let_debtors_in()
        left = TURN_WORK
        for _ in range(len(self.links)):
            link = self.links.popleft()
            link.queued = False
            if link.closed:
                continue
            link.work = min(link.work + QUANTUM, QUANTUM)
            if link.work <= 0:
                self.add(link)
                continue
            before = link.work
            self._serve(link)
            used = before - link.work
            if link.has_requests and not link.closed:
                self.add(link)
            elif used <= LIGHT:
                link.work = QUANTUM
            left -= used + VISIT_WORK
            if left <= 0:
                break
        self.used = TURN_WORK - left

    def _let_debtors_in(self) -> None:
        """If all are in debt, no other link gains by letting them wait."""
        most = max((link.work for link in self.links), default=0)
        if most <= -QUANTUM:
            for link in self.links:
                link.work -= most
