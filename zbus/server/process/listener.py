"""Accepting connections, as many as there may be."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

from zbus.server.assembly import Assembly
from zbus.server.loop.loop import Loop
from zbus.server.loop.sockets import Listening, peer_address
from zbus.server.process.certificates import Certificates
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.wire.tls import TlsStream

_ACCEPTS_PER_TURN = 16
_TELL_EVERY_MS = 1_000
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("zbus")


class Listener:
    """One listening socket. Full, or out of descriptors, it lets connections wait outside."""

    def __init__(
        self,
        listening: Listening,
        assembly: Assembly,
        loop: Loop,
        limits: ConnectionLimits,
        session_id: Callable[[], bytes],
        certificates: Certificates | None = None,
    ) -> None:
        """With `certificates`, TLS is spoken."""
        self._listening = listening
        self._sock = listening.sock
        self._assembly = assembly
        self._loop = loop
        self._limits = limits
        self._session_id = session_id
        self._certificates = certificates
        self._logged_ms = -_TELL_EVERY_MS  # when refusals were logged last
        self._watching = True
        self._open = True

    def accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._limits.full:
                self._pause("connections_max is reached")
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._pause(str(error))
                return
            host = "" if sock.family == socket.AF_UNIX else str(address[0])
            if not self._limits.enter(host):
                self._refuse(sock, host)
                continue
            try:
                self._welcome(sock, address, host)
            except Exception:
                self._limits.leave(host)
                sock.close()
                raise

    def _refuse(self, sock: socket.socket, host: str) -> None:
        sock.setblocking(False)
        self._limits.refuse(sock, self._certificates is not None)
        now_ms = self._loop.now_ms
        if now_ms >= self._logged_ms + _TELL_EVERY_MS:
            self._logged_ms = now_ms
            fields = {"address": host, "times": self._limits.refused}
            log.warning("refused, an address has too many connections", extra=fields)
            self._limits.refused = 0

    def _welcome(self, sock: socket.socket, address: object, host: str) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        certificates = self._certificates
        tls = None if certificates is None else TlsStream(certificates.context)
        id = self._session_id()
        gone = partial(self._limits.leave, host)
        self._assembly.welcome(self._loop, sock, id, peer_address(sock, address), tls, gone)

    def _pause(self, why: str) -> None:
        log.warning("accepting paused", extra={"why": why, "connections": len(self._loop.links)})
        self._loop.watch_acceptor(self, self._sock, False)
        self._watching = False

    def resume(self) -> None:
        """Try again, if it was paused and there is room."""
        if self._open and not self._watching and not self._limits.full:
            self._watching = True
            self._loop.watch_acceptor(self, self._sock, True)

    def close(self) -> None:
        if self._open and self._watching:
            self._loop.watch_acceptor(self, self._sock, False)
        self._open = False
        self._listening.close()
