"""Connected sockets of the blocking client. To wait and to receive are two steps: a caller that is
interrupted while it waits has lost nothing."""

from __future__ import annotations

import math
import select
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from zbus.client.links.forking import disown
from zbus.client.options import Address, Options

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

RECEIVE_BYTES = 64 << 10


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

    def receive(self) -> bytes:
        """What is there; empty when the other side is done. Raises OSError, and BlockingIOError if
        nothing is there yet."""
        return self._socket.recv(RECEIVE_BYTES)

    def send(self, data: bytes, pause_s: float) -> None:
        """Send all. Raises OSError, and TimeoutError if for `pause_s` none of it could be sent."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._send_some(rest) :]
            except BlockingIOError:
                writable = select.poll()
                writable.register(self._socket, select.POLLOUT)
                if not writable.poll(math.ceil(pause_s * 1000)):
                    raise TimeoutError(f"the broker read nothing for {pause_s:g} s") from None

    def _send_some(self, data: memoryview) -> int:
        return self._socket.send(data)

    def shutdown(self) -> None:
        """End it; who waits is woken."""
        try:
            # Not that of TLS: no plain bytes after it.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def disown(self) -> None:
        """In a child: the connection is the parent's alone."""
        disown(self._socket.fileno())


class TlsSocket(Socket):
    """One thread may send while another receives, which `ssl.SSLSocket` does not allow: a lock is
    held while it works, but not while the network is waited for.

    OpenSSL cannot change keys while a record is half sent: a peer that asks for new ones then (TLS
    1.3; brokers never do) ends the connection with "bad length", and it is made again."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        import ssl  # here: it takes a while, and plain connections do without

        super().__init__(connection)
        self._tls = connection
        self._lock = threading.Lock()
        self._not_yet = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def _locked(self, do: Callable[[], T]) -> T:
        try:
            with self._lock:
                return do()
        except self._not_yet:
            raise BlockingIOError from None

    def wait(self, timeout_s: float) -> bool:
        return self._locked(self._tls.pending) > 0 or super().wait(timeout_s)

    def receive(self) -> bytes:
        return self._locked(super().receive)

    def _send_some(self, data: memoryview) -> int:
        return self._locked(lambda: self._tls.send(data))


def open_socket(address: Address, options: Options, timeout_s: float) -> Socket:
    """A connection. Raises OSError (TLS errors are OSErrors too)."""
    if address.kind == "unix":
        connection = socket.socket(socket.AF_UNIX)
    else:
        connection = socket.create_connection(address[1:], timeout_s)
    try:
        if address.kind == "unix":
            connection.settimeout(timeout_s)
            connection.connect(address.host)
            return Socket(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.kind == "tcp":
            return Socket(connection)
        return TlsSocket(options.tls().wrap_socket(connection, server_hostname=address.host))
    except TimeoutError:
        connection.close()
        raise TimeoutError("timed out") from None  # and not which step of which library
    except BaseException:
        connection.close()
        raise
