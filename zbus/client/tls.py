"""TLS for the blocking client, so that one thread may send while another receives.

An `ssl.SSLSocket` may not be used by two threads at once. Here the encryption is done in memory,
under a lock that is never held while the network is waited for.
"""

from __future__ import annotations

import socket
import ssl
import threading

_RECEIVE_BYTES = 64 << 10


class TlsSocket:
    """The part of a socket that the client uses. The handshake is done at once."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self._socket = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        try:
            self._shake_hands()
        except BaseException:
            connection.close()
            raise

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                self._send()
                return
            except ssl.SSLWantReadError:
                self._send()
                self._receive()

    def _send(self) -> None:
        with self._sending:
            with self._lock:
                data = self._outgoing.read()
            if data:
                self._socket.sendall(data)

    def _receive(self) -> None:
        data = self._socket.recv(_RECEIVE_BYTES)
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def sendall(self, data: bytes) -> None:
        with self._lock:
            self._tls.write(data)
        self._send()

    def recv(self, count: int) -> bytes:
        """Decrypted bytes; empty when the other side is done. Raises OSError."""
        while True:
            try:
                with self._lock:
                    return self._tls.read(count)
            except ssl.SSLWantReadError:
                self._send()  # the answer to a request of the protocol itself, if any
                self._receive()
            except ssl.SSLZeroReturnError:
                return b""

    def settimeout(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()
