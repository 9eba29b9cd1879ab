"""TLS for the blocking client, so that one thread may send while another receives.

An `ssl.SSLSocket` may not be used by two threads at once. Here the encryption is done in memory,
under a lock that is never held while the network is waited for.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time

from zbus.client.links.sockets import Socket

_RECEIVE_BYTES = 64 << 10


class TlsSocket(Socket):
    """The handshake is done at once, within `timeout_s`. Raises OSError."""

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, name: str, timeout_s: float
    ) -> None:
        super().__init__(connection)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._pause_s = timeout_s
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        try:
            self._shake_hands(time.monotonic() + timeout_s)
        except BaseException:
            connection.close()
            raise

    def _shake_hands(self, until_s: float) -> None:
        while True:
            try:
                self._tls.do_handshake()
                self._send_out()
                return
            except ssl.SSLWantReadError:
                self._send_out()
                if not self.wait(until_s - time.monotonic()):
                    raise TimeoutError("timed out") from None
                self._take_in()

    def _send_out(self) -> None:
        with self._sending:
            with self._lock:
                data = self._outgoing.read()
            if data:
                super().send(data, self._pause_s)

    def _take_in(self) -> None:
        data = super().receive(_RECEIVE_BYTES)
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def wait(self, timeout_s: float) -> bool:
        with self._lock:
            ready = self._incoming.pending > 0 or self._tls.pending() > 0
        return ready or super().wait(timeout_s)

    def receive(self, count: int) -> bytes:
        """Decrypted bytes; as `Socket` has it."""
        while True:
            try:
                with self._lock:
                    return self._tls.read(count)
            except ssl.SSLWantReadError:
                self._send_out()  # the answer to a request of the protocol itself, if any
                self._take_in()
            except ssl.SSLZeroReturnError:
                return b""

    def send(self, data: bytes, pause_s: float) -> None:
        self._pause_s = pause_s
        with self._lock:
            self._tls.write(data)
        self._send_out()
