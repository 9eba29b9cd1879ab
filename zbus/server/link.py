"""One accepted socket and its peer."""

from __future__ import annotations

import socket
from collections.abc import Callable

from zbus.faces.peer import Peer, Planner
from zbus.wire.http import HttpReader
from zbus.wire.tls import TlsStream


class Link(Peer):
    """A peer with a socket. The loop does the IO; this only holds what it has to know."""

    __slots__ = (
        "gone",
        "half_head_since_ms",
        "heard_ms",
        "hung_up",
        "interest",
        "linger_until_ms",
        "pinged_ms",
        "queued",
        "recv",
        "send_some",
        "sent_ms",
        "sock",
        "tls",
        "turn",
        "unsent",
    )

    def __init__(
        self,
        sock: socket.socket,
        id: bytes,
        address: str,
        reader: HttpReader,
        planner: Planner,
        ready: Callable[[Link], None],
        out_bytes_max: int,
        now_ms: int,
        tls: TlsStream | None = None,
        gone: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(id, address, reader, planner, ready, out_bytes_max)
        self.sock = sock
        self.recv, self.send_some = sock.recv, sock.send  # looked up once, used for every request
        self.tls = tls  # None: plain
        self.secure = tls is not None
        self.unsent = bytearray()  # what the socket did not take yet
        self.interest = 0  # the selector's events that it is registered for
        # Monotonic milliseconds.
        self.heard_ms = now_ms
        self.turn = 0  # of the loop, in which it was served last
        self.sent_ms = now_ms  # last time the socket took bytes, or had none to take
        # As noticed by a sweep; 0 = no half head. A handshake counts from the start.
        self.half_head_since_ms = 0 if tls is None else now_ms
        self.pinged_ms = 0  # 0 = never
        self.linger_until_ms = 0  # 0 = not lingering
        self.gone = gone  # called when the socket is closed
        self.work = 0  # a new one has its first turn in the ring
        self.queued = False  # it is in the ring (`zbus.server.ring`)
        self.hung_up = False  # sends no more

    def close(self) -> None:
        """Let go of the socket, and of what was read of it."""
        self.sock.close()
        self.forget_requests()
        if self.gone is not None:
            self.gone()
