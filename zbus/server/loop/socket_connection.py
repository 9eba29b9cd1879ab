"""One accepted socket and its peer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from sys import maxsize

from zbus.edge.connection import Connection, Planner
from zbus.edge.reader import Reader
from zbus.wire.tls import TlsStream

LINGER_MS, LINGER_MS_MAX = 1_000, 10_000
"""A peer that goes on sending may do so for this long after the last of it, and in all."""

STREAM_BUFFER_BYTES = 128 << 10
"""Of the system, for each stream of events."""


class SocketConnection(Connection):
    """A peer with a socket. The loop does the IO; this only holds what it has to know."""

    may_stall = True
    """It is not heard while it takes nothing."""

    __slots__ = (
        "gone",
        "half_head_since_ms",
        "heard_ms",
        "hung_up",
        "in_bytes",
        "interest",
        "linger_end_ms",
        "linger_until_ms",
        "opened_ms",
        "pace",
        "pinged_ms",
        "queued",
        "recv",
        "send_some",
        "sent_bytes",
        "sent_ms",
        "sock",
        "taken_bytes",
        "tls",
        "turn",
        "unsent",
        "unsent_bytes",
    )

    def __init__(
        self,
        sock: socket.socket,
        id: bytes,
        address: str,
        reader: Reader,
        planner: Planner,
        ready: Callable[[SocketConnection], None],
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
        # What the socket did not take yet: large pieces as they are, which may be shared with
        # others, and what is small together.
        self.unsent: list[bytearray | memoryview] = []
        self.unsent_bytes = 0
        self.interest = 0  # the selector's events that it is registered for
        # Monotonic milliseconds.
        self.opened_ms = self.heard_ms = now_ms
        self.turn = 0  # of the loop, in which it was served last
        self.sent_ms = now_ms  # last time the socket took bytes, or had none to take
        # As noticed by a sweep; 0 = no half head. A handshake counts from the start.
        self.half_head_since_ms = 0 if tls is None else now_ms
        self.pinged_ms = 0  # 0 = never
        self.linger_until_ms = 0  # 0 = not lingering
        self.linger_end_ms = 0
        # What it is slow in, as was noticed at this time, with that many bytes by then.
        self.pace: tuple[str, int, int] | None = None
        self.in_bytes = 0  # as they came, with TLS
        self.sent_bytes = 0  # at once; what the socket did not take at once is counted by itself
        self.taken_bytes = 0
        self.gone = gone  # called when the socket is closed
        self.work = 0  # a new one has its first turn in the ring
        self.queued = False  # it is in the ring (`zbus.server.loop.fair_queue`)
        self.hung_up = False  # sends no more

    @property
    def only_waits(self) -> bool:
        """All that is under way may take for ever, and every other reply waits behind that."""
        goes_on = self.stalled or self.hung_up or self.has_requests
        return not goes_on and 0 < self.open_waits == self.open_tickets

    def output_mark(self) -> int:
        if self.tls is not None:  # what is written is longer when it is encrypted
            return maxsize
        return self.sent_bytes + self.taken_bytes + self.out_bytes

    def has_sent(self, mark: int) -> bool:
        return not self.out_bytes or self.sent_bytes + self.taken_bytes >= mark

    def linger(self, now_ms: int) -> None:
        """All is said: its bytes are dropped until it has read that, or does not end."""
        self.linger_end_ms = self.linger_end_ms or now_ms + LINGER_MS_MAX
        self.linger_until_ms = min(now_ms + LINGER_MS, self.linger_end_ms)

    def begin_stream(self, heartbeat: bytes) -> None:
        super().begin_stream(heartbeat)
        # Else the system keeps megabytes for a peer that takes nothing.
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER_BYTES)

    def close(self) -> None:
        """Let go of the socket, and of what was read of it."""
        self.sock.close()
        self.forget_requests()
        self.turns = None  # they know the link, and are not answered any more
        if self.gone is not None:
            self.gone()
