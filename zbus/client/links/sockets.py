"""A connected socket of the blocking client. To wait and to receive are two steps: a caller
that is interrupted while it waits has lost nothing."""

from __future__ import annotations

import math
import select
import socket

from zbus.client.links.forking import disown


class Socket:
    """`wait` and `receive` are called by one thread at a time, and so is `send`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Wait until something can be received; whether it can."""
        return bool(self._readable.poll(math.ceil(max(0.0, timeout_s) * 1000)))

    def receive(self, count: int) -> bytes:
        """What is there; empty when the other side is done. Raises OSError, and BlockingIOError if
        nothing is there yet."""
        return self._socket.recv(count)

    def send(self, data: bytes, pause_s: float) -> None:
        """Send all. Raises OSError, and TimeoutError if for `pause_s` none of it could be sent."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                writable = select.poll()
                writable.register(self._socket, select.POLLOUT)
                if not writable.poll(math.ceil(pause_s * 1000)):
                    raise TimeoutError(f"the broker read nothing for {pause_s:g} s") from None

    def shutdown(self) -> None:
        """End it; who waits is woken."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self._socket.close()

    def disown(self) -> None:
        """In a child: the connection is the parent's alone."""
        disown(self._socket.fileno())
