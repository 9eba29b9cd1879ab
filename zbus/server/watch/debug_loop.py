"""The loop of a broker with `log_level=debug`: it tells of connections and of long turns.

A class of its own, so that a broker that is not asked for it does not even look whether it is.
"""

from __future__ import annotations

import logging
import sys
import time

from zbus.server.loop.loop import Loop
from zbus.server.loop.readiness import Events
from zbus.server.loop.socket_connection import SocketConnection

SLOW_TURN_S = 0.05
"""A turn that takes this long holds everybody up noticeably."""

log = logging.getLogger("zbus")


class DebugLoop(Loop):
    def add(self, link: SocketConnection) -> None:
        super().add(link)
        fields = {"peer": link.address, "session": link.id.decode(), "open": len(self.links)}
        log.debug("connection opened", extra=fields)

    def drop(self, link: SocketConnection) -> None:
        if link.closed:
            return
        why = why_over(link, sys.exception())
        super().drop(link)
        fields = {"peer": link.address, "why": why, "open": len(self.links)}
        log.debug("connection closed", extra=fields)

    def turn(self, events: Events) -> None:
        began_s = time.monotonic()
        super().turn(events)
        seconds = time.monotonic() - began_s
        if seconds >= SLOW_TURN_S:
            log.debug("slow turn", extra={"ms": round(seconds * 1000), "ready": len(events)})


def why_over(link: SocketConnection, error: BaseException | None) -> str:
    """Why a connection ends, as far as it shows."""
    if error is not None:
        return str(error) or type(error).__name__
    if link.tls is not None and not link.tls.established:
        return link.tls.error or "TLS was not begun"
    if link.unsent:
        return f"{link.unsent_bytes} bytes were not taken"
    if link.broken:
        return "it was refused"
    if link.linger_until_ms:
        return "the last reply was sent"
    return "the client closed it" if link.hung_up else "the broker ends"
