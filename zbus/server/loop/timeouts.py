"""What only a timer notices about connections: half requests, silence, peers that take nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zbus.config.server import Timeouts
from zbus.core.api import Containment
from zbus.server.loop.readiness import READ
from zbus.wire.errors import WireError
from zbus.wire.websocket import GOING_AWAY

if TYPE_CHECKING:
    from zbus.edge.connection import Framing
    from zbus.server.loop.socket_connection import SocketConnection

EVERY_MS = 1_000

log = logging.getLogger("zbus")


_LINKS_PER_TURN = 500

OUTPUT_BYTES_LEAST = 16 << 10
"""What each connection may leave untaken, however many there are."""


class ConnectionTimeouts:
    """Looks at every connection once a second, at some of them in each turn."""

    def __init__(
        self,
        links: Iterable[SocketConnection],
        drop: Callable[[SocketConnection], None],
        leave: Callable[[SocketConnection], None],
        timeouts: Timeouts,
        also: Callable[[], None],
        output_bytes_max: int,
        faults: Containment,
    ) -> None:
        """`output_bytes_max` is what one connection may leave untaken."""
        self._usual_bytes = output_bytes_max
        self._faults = faults
        self._links = links
        self._drop = drop
        self._leave = leave
        self._timeouts = timeouts
        self._also = also  # what else is to be done now and then
        self._next_ms = 0
        self.left: list[SocketConnection] = []  # not looked at yet in this second
        # Of the replies that are not taken or have not had their turn: how much that may be of all
        # connections (0 = without a bound), how much it was a second ago, and what one may leave.
        self.output_bytes_max = 0
        self.output_bytes = 0
        self._counted_bytes = 0
        self._each_bytes = 0

    def run(self, now_ms: int) -> None:
        if not self.left:
            if now_ms < self._next_ms:
                return
            self._next_ms = now_ms + EVERY_MS
            self.left = list(self._links)
            self._share_output(len(self.left))
            self._faults.guard(self._also)
        portion, self.left = self.left[-_LINKS_PER_TURN:], self.left[:-_LINKS_PER_TURN]
        for link in portion:
            if not link.closed:
                self._counted_bytes += link.out_bytes + link.held_bytes
                if self._each_bytes:
                    link.out_bytes_max = self._each_bytes
                try:
                    self._look(link, now_ms)
                except Exception as error:
                    self._faults.quarantine(link, error)

    def _share_output(self, count: int) -> None:
        """With much untaken, each connection may leave less."""
        self.output_bytes, self._counted_bytes = self._counted_bytes, 0
        most = self.output_bytes_max
        if most and self.output_bytes > most // 2:
            self._each_bytes = max(OUTPUT_BYTES_LEAST, most // (2 * max(count, 1)))
            self._each_bytes = min(self._each_bytes, self._usual_bytes)
        elif self._each_bytes:
            self._each_bytes = self._usual_bytes  # given back, also to those that had less

    def _look(self, link: SocketConnection, now_ms: int) -> None:
        timeouts = self._timeouts
        if link.linger_until_ms:
            if now_ms >= link.linger_until_ms:
                self._drop(link)
            return
        if link.tls is not None and not (link.tls.established or link.tls.over):
            if now_ms - link.half_head_since_ms > timeouts.head_timeout_ms:
                log.info("TLS failed", extra={"peer": link.address, "why": "it took too long"})
                self._drop(link)
            return
        if link.unsent:
            stall_ms = timeouts.stall_timeout_ms
            slow = self._is_slow(link, "output", link.taken_bytes, stall_ms, now_ms)
            if slow or now_ms - link.sent_ms > stall_ms:
                self._drop(link)
            return
        if (
            link.heartbeat
            and now_ms - link.sent_ms >= timeouts.sse_heartbeat_ms
            and not link.closing
        ):
            link.write(link.heartbeat)
            return
        silent = now_ms - max(link.heard_ms, link.sent_ms) > timeouts.idle_timeout_ms
        if link.closing:
            # What it is told in this turn leaves first. Who is patient is looked after elsewhere.
            if silent and not (link.out or link.patient):
                self._drop(link)
            return
        reads = link.interest & READ  # who is not read from owes us nothing
        if reads and link.framing is not None and link.framing.begun:
            self._look_at_framed(link, link.framing, now_ms)
            return
        waiting_for = link.reader.waiting_for() if reads else "nothing"
        if waiting_for != "head":
            link.half_head_since_ms = 0
        if waiting_for != "body":
            link.pace = None
        if waiting_for == "head":
            since_ms = link.half_head_since_ms = link.half_head_since_ms or now_ms
            if now_ms - since_ms > timeouts.head_timeout_ms:
                link.refuse(WireError(408, "timeout: the head of the request is incomplete"))
        elif waiting_for == "body":
            if self._is_late(link, now_ms):
                link.refuse(WireError(408, "timeout: the body of the request is incomplete"))
        elif silent and not (link.patient or link.has_requests or link.stalled):
            log.debug("closing, nothing was heard", extra={"peer": link.address})
            link.forget_requests()  # they wait behind its own waits, and nothing would end them
            # Pulls and calls that wait end now, where the dialect has a word for it.
            self._leave(link)
            link.closing = True
            link.write(b"")

    def _is_late(self, link: SocketConnection, now_ms: int) -> bool:
        """Of a body or message that has come in part: nothing came for long, or too little."""
        body_ms = self._timeouts.body_timeout_ms
        slow = self._is_slow(link, "body", link.reader.came_bytes, body_ms, now_ms)
        return slow or now_ms - link.heard_ms > body_ms

    def _is_slow(
        self, link: SocketConnection, what: str, count: int, window_ms: int, now_ms: int
    ) -> bool:
        """Fewer bytes went this way than must, for all of a window; `count` of them by now."""
        pace = link.pace
        if pace is None or pace[0] != what:
            link.pace = (what, now_ms, count)
            return False
        passed_ms = now_ms - pace[1]
        if passed_ms < window_ms:
            return False
        link.pace = (what, now_ms, count)
        return (count - pace[2]) * 1_000 < self._timeouts.bytes_per_s_min * passed_ms

    def _look_at_framed(self, link: SocketConnection, framing: Framing, now_ms: int) -> None:
        """A page cannot send heartbeats, but its browser answers pings: who says nothing is asked
        after half the time, and who does not answer is gone, whatever was sent to him."""
        timeouts = self._timeouts
        unheard_ms = now_ms - link.heard_ms
        if unheard_ms > timeouts.idle_timeout_ms:
            link.refuse(WireError(GOING_AWAY, "timeout: no data, and no answer to a ping"))
            return
        if link.reader.waiting_for() != "nothing":
            if self._is_late(link, now_ms):
                link.refuse(WireError(408, "timeout: the message is incomplete"))
            return
        link.pace = None
        if unheard_ms > timeouts.idle_timeout_ms // 2 and link.pinged_ms <= link.heard_ms:
            link.pinged_ms = now_ms
            link.write(framing.ping())
