"""A worker's connection to another, on behalf of one client: what that client asks there, and what
it is answered.

The other worker takes it for the client's own: it says whose it is before the first request
(`zbus.workers.introduction`), ends with the client, and holds what the client holds there, which is
leases, registrations and pulls. The sockets between the two have the bounds that any socket has, so
a client that takes nothing stalls its own requests and nobody else's.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Final, Protocol

from zbus.edge.connection import Planner
from zbus.edge.reader import DEAF
from zbus.server.loop.fair_queue import QUANTUM
from zbus.server.loop.socket_connection import SocketConnection
from zbus.wire.tls import TlsStream

HEAD_BYTES_MAX: Final = 256 << 10
"""Of an answer: another worker is trusted, and a mistake of its must not take all memory."""

_LATE: Final = b"\r\ntransfer-encoding: chunked\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d{1,15})\r\n", re.ASCII)
_BODILESS: Final = (b"204", b"304")


class Answers(Protocol):
    """Who asks the other worker."""

    @property
    def stalled(self) -> bool:
        """Its client takes nothing at the moment."""

    def answered(self, response: bytes) -> None:
        """A whole answer came."""

    def begins(self, head: bytes) -> None:
        """An answer began whose body comes later, in chunks, with `answered`."""

    def streams(self, head: bytes) -> None:
        """An answer without an end began; what comes next is more of it."""

    def more(self, data: bytes) -> None:
        """Of the answer without an end."""

    def closes(self, frame: bytes) -> None:
        """It ends a WebSocket, and says why."""

    def drained(self) -> None:
        """The other worker takes requests as they come."""

    def ended(self) -> None:
        """The connection is over."""


class Upstream(SocketConnection):
    """See above."""

    may_stall = False  # else both ends might wait

    __slots__ = ("_answers", "_came", "_head_only", "_late", "_needed", "_stream", "shard")

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        answers: Answers,
        planner: Planner,
        ready: Callable[[SocketConnection], None],
        out_bytes_max: int,
        now_ms: int,
        head_only: bool = False,
        tls: TlsStream | None = None,
    ) -> None:
        """`head_only`: all answers are without their bodies, those to HEAD."""
        super().__init__(
            sock, b"", address, DEAF, planner, ready, out_bytes_max, now_ms, tls, answers.ended
        )
        self._answers = answers
        self.shard = -1  # whose owner it leads to
        self._came = bytearray()
        self._needed = 0  # so many bytes must have come before there is another answer
        self._stream = False
        self._late = False  # chunks come next
        self.patient = 1  # it lives as long as its client
        self.leaving = True  # the broker does not know it
        self.work = QUANTUM
        self._head_only = head_only

    @property
    def is_connected(self) -> bool:
        """It may have sent something: with TLS nothing leaves before the handshake."""
        return self.tls is None or self.tls.established

    def write(self, data: bytes) -> None:
        """Unlike a client it is heard whatever it has not taken."""
        if not self.out:
            self._ready(self)
        self.out.append(data)
        self.out_bytes += len(data)

    def receive(self, data: bytes) -> None:
        """Cut what came into answers."""
        answers = self._answers
        if self._stream:
            answers.more(data)
            return
        if self._came:
            self._came += data
            if len(self._came) < self._needed:
                return
            data = bytes(self._came)
            self._came.clear()
        at, size = 0, len(data)
        self._needed = 0
        while at < size:
            if self._late:
                stop = _end_of_chunks(data, at)
                if not stop:
                    break
                self._late = False
                answers.answered(data[at:stop])
                at = stop
                continue
            end = data.find(b"\r\n\r\n", at)
            if end < 0:
                if size - at > HEAD_BYTES_MAX:
                    raise ValueError("what another worker sends is no answer")
                break
            length = _LENGTH.search(data, at, end + 2)
            if length is None and _LATE in data[at : end + 2]:
                self._late = True
                answers.begins(data[at : end + 4])
                at = end + 4
                continue
            if length is None and data[at + 9 : at + 12] not in _BODILESS:
                self._stream = True
                answers.streams(data[at : end + 4])
                if data[end + 4 :]:
                    answers.more(data[end + 4 :])
                return
            stop = end + 4 + (0 if self._head_only or length is None else int(length[1]))
            if stop > size:
                self._needed = stop - at
                break
            answers.answered(data[at:stop])
            at = stop
        self._came += data[at:]

    def crowded(self, tickets_max: int) -> bool:
        """Nothing is read while the client takes nothing."""
        if self.out_bytes <= self.out_bytes_max // 2:
            self._answers.drained()
        return self._answers.stalled


def connect(path: str) -> socket.socket:
    """A socket to the worker that listens there. Raises OSError if it cannot be reached."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def _end_of_chunks(data: bytes, at: int) -> int:
    """Where the body ends that begins here; 0 = it has not come."""
    while True:
        line = data.find(b"\r\n", at)
        if line < 0:
            return 0
        length = int(data[at:line], 16)
        at = line + 2 + length + 2
        if at > len(data):
            return 0
        if not length:
            return at
