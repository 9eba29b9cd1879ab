"""A connection whose first request is for another worker is given to that worker, as it is.

From then on it is that worker's: nothing is passed on, and it costs what a connection costs that
came there by itself. Only plain HTTP is handed over, before anything is answered or done; what TLS
knows of a connection is in one process. If the other worker takes none now, its requests are passed
on.
"""

from __future__ import annotations

import array
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from zbus.documents import NOT_JSON
from zbus.server.assembly import Assembly
from zbus.server.loop.fair_queue import QUANTUM
from zbus.server.loop.loop import Loop
from zbus.server.loop.socket_connection import SocketConnection
from zbus.workers.introduction import (
    Introduction,
    decode_introduction,
    encode_introduction,
)

_TAKES_PER_TURN: Final = 16
_MESSAGE_BYTES_MAX: Final = 72 << 10
"""What a connection reads at once, with the introduction."""

log = logging.getLogger("zbus")


class Door(Protocol):
    """What is needed of `zbus.workers.forwarding.Forwarder`."""

    def hand_over(self, link: SocketConnection, data: bytes) -> bool:
        """Give it to the worker that its first request is for, if that is another; whether it
        was."""


class Guest(SocketConnection):
    """A client's connection, until its first bytes have come."""

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        self.__class__ = SocketConnection  # type: ignore[assignment]  # from here on it is like any
        door: Door = self.planner  # type: ignore[assignment]  # the planner of clients
        if self.tls is not None or not door.hand_over(self, data):
            self.receive(data)


class Giver:
    """Sends connections to other workers, at these paths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)

    def give(self, link: SocketConnection, worker: int, data: bytes) -> bool:
        """Whether the worker has it now; then this process is to forget it."""
        files = array.array("i", [link.sock.fileno()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        line = encode_introduction(Introduction(link.address))
        try:
            self._sock.sendmsg([line, data], rights, 0, self._paths[worker])
        except OSError:  # it has many waiting, or does not run
            return False
        return True


class Taker:
    """Takes connections that other workers send."""

    def __init__(
        self,
        sock: socket.socket,
        assembly: Assembly,
        loop: Loop,
        session_id: Callable[[], bytes],
    ) -> None:
        self._sock = sock
        self._assembly = assembly
        self._loop = loop
        self._session_id = session_id

    def accept(self) -> None:
        for _ in range(_TAKES_PER_TURN):
            try:
                data, rights, _, _ = self._sock.recvmsg(_MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4))
            except (BlockingIOError, InterruptedError):
                return
            files = array.array("i")
            for _, kind, given in rights:
                if kind == socket.SCM_RIGHTS:
                    files.frombytes(given[: len(given) - len(given) % files.itemsize])
            for file in files:
                self._take(socket.socket(fileno=file), data)

    def _take(self, sock: socket.socket, data: bytes) -> None:
        line, _, rest = data.partition(b"\n")
        try:
            client = decode_introduction(line)
        except NOT_JSON:
            log.error("a connection was handed over without a word about it")
            sock.close()
            return
        sock.setblocking(False)
        loop = self._loop
        link = self._assembly.welcome(
            loop, sock, self._session_id(), client.address, kind=SocketConnection
        )
        link.work = QUANTUM
        try:
            link.receive(rest)
        except Exception:
            loop.failed(link)
        loop.wait_for_turn(link)

    def close(self) -> None:
        self._loop.watch_acceptor(self, self._sock, False)
