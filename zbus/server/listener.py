"""Accepting connections."""

from __future__ import annotations

import errno
import logging
import socket
import uuid

from zbus.server.assembly import Assembly
from zbus.server.certificates import Certificates
from zbus.server.loop import Loop
from zbus.server.sockets import Listening, peer_address
from zbus.wire.tls import TlsStream

_ACCEPTS_PER_TURN = 16
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("zbus")


class Listener:
    """One listening socket. Full, or out of descriptors, it lets connections wait outside."""

    def __init__(
        self,
        listening: Listening,
        assembly: Assembly,
        loop: Loop,
        connections_max: int,
        certificates: Certificates | None = None,
    ) -> None:
        """With `certificates`, TLS is spoken."""
        self._listening = listening
        self._sock = listening.sock
        self._assembly = assembly
        self._loop = loop
        self._connections_max = connections_max
        self._certificates = certificates
        self._watching = True
        self._open = True

    def accept(self) -> None:
        if not self._open:  # closed since it was found ready
            return
        for _ in range(_ACCEPTS_PER_TURN):
            if len(self._loop.links) >= self._connections_max:
                self._pause("connections_max is reached")
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(str(error))
                return
            self._welcome(sock, address)

    def _welcome(self, sock: socket.socket, address: object) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        certificates = self._certificates
        tls = None if certificates is None else TlsStream(certificates.context)
        id = str(uuid.uuid4()).encode()
        self._assembly.welcome(self._loop, sock, id, peer_address(sock, address), tls)

    def _pause(self, why: str) -> None:
        log.warning("accepting paused", extra={"why": why, "connections": len(self._loop.links)})
        self._loop.watch_acceptor(self, self._sock, False)
        self._watching = False

    def resume(self) -> None:
        """Try again, if it was paused and there is room."""
        if self._open and not self._watching and len(self._loop.links) < self._connections_max:
            self._watching = True
            self._loop.watch_acceptor(self, self._sock, True)

    def close(self) -> None:
        if self._open and self._watching:
            self._loop.watch_acceptor(self, self._sock, False)
        self._open = False
        self._listening.close()
