"""A connection whose first request is for another worker is given to that worker, as it is; so is
one whose last requests were all for that worker, when nothing of it would stay behind.

From then on it is that worker's: nothing is passed on, and it costs what a connection costs that
came there by itself. Only plain HTTP is handed over, when all that was asked is answered; what TLS
knows of a connection is in one process. If the other worker takes none now, its requests are passed
on.
"""

from __future__ import annotations

import array
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from zbus.documents import NOT_JSON
from zbus.edge.connection import Connection
from zbus.server.assembly import Assembly
from zbus.server.loop.loop import Loop
from zbus.server.loop.socket_connection import SocketConnection
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.workers.introduction import (
    Introduction,
    decode_introduction,
    encode_introduction,
    origin_of,
)

_TAKES_PER_TURN: Final = 16
_MESSAGE_BYTES_MAX: Final = 72 << 10
"""What a connection reads at once, with the introduction."""

log = logging.getLogger("zbus")


class Door(Protocol):
    """What is needed of `zbus.workers.forwarding.Forwarder`."""

    def hand_over(self, link: SocketConnection, data: bytes) -> bool:
        """Give it to the worker that its next request is for, if that is another; whether it
        was."""

    def move(self, link: SocketConnection, data: bytes) -> bool:
        """The same after many requests that were all for that worker."""

    def client(self, peer: Connection) -> Client: ...


class Client(Protocol):
    """A client of other workers."""

    row: int  # so many requests for one of them, one after another


class Guest(SocketConnection):
    """A client's connection, until its first bytes have come."""

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        self.__class__ = SocketConnection  # type: ignore[assignment]  # from here on it is like any
        door: Door = self.planner  # type: ignore[assignment]  # the planner of clients
        if self.tls is not None or not door.hand_over(self, data):
            self.receive(data)


class Passenger(SocketConnection):
    """A client's connection as long as its requests are for another worker."""

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        door: Door = self.planner  # type: ignore[assignment]  # the planner of clients
        if self.tls is None and self.framing is None and door.move(self, data):
            return
        client = door.client(self)
        before = client.row
        super().receive(data)
        if client.row == before:
            client.row = 0
            self.__class__ = SocketConnection  # type: ignore[assignment]  # it is as it was


class Giver:
    """Sends connections to other workers, at these paths."""

    def __init__(self, paths: Sequence[str], own: int) -> None:
        self._paths = paths
        self._own = own
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)

    def give(self, link: SocketConnection, worker: int, data: bytes) -> bool:
        """Whether the worker has it now; then this process is to forget it."""
        giver = self._own if self._own >= 0 else None  # an edge takes none
        return self._send(link.sock, Introduction(origin_of(link), giver=giver), worker, data)

    def give_back(self, sock: socket.socket, address: str, worker: int, data: bytes) -> bool:
        """The same of one that is to stay there."""
        return self._send(sock, Introduction(address), worker, data)

    def _send(self, sock: socket.socket, client: Introduction, worker: int, data: bytes) -> bool:
        files = array.array("i", [sock.fileno()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        try:
            self._sock.sendmsg([encode_introduction(client), data], rights, 0, self._paths[worker])
        except OSError:  # it has many waiting, or does not run
            return False
        return True


class Taker:
    """Takes connections that other workers send. With as many as it may have it declines: who sent
    one gets it back, and goes on passing on its requests."""

    def __init__(
        self,
        sock: socket.socket,
        assembly: Assembly,
        loop: Loop,
        session_id: Callable[[], bytes],
        limits: ConnectionLimits,
        giver: Giver,
    ) -> None:
        self._limits = limits
        self._giver = giver
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
            socks = [sock for file in files if (sock := _socket_of(file)) is not None]
            if len(socks) == 1:
                self._take(socks[0], data)
                continue
            log.error("what was handed over is no connection")
            for sock in socks:
                sock.close()

    def _take(self, sock: socket.socket, data: bytes) -> None:
        line, _, rest = data.partition(b"\n")
        try:
            client = decode_introduction(line)
            host = "" if sock.family == socket.AF_UNIX else str(sock.getpeername()[0])
        except NOT_JSON:
            log.error("a connection was handed over without a word about it")
            sock.close()
            return
        except OSError:  # the client has left
            sock.close()
            return
        sock.setblocking(False)
        limits = self._limits
        if client.giver is None:
            if not limits.enter(host):
                limits.refuse(sock, secure=False)
                return
        elif limits.full or not limits.enter(host):
            self._giver.give_back(sock, client.address, client.giver, rest)
            sock.close()
            return
        loop = self._loop
        link = self._assembly.welcome(
            loop,
            sock,
            self._session_id(),
            client.address,
            gone=partial(limits.leave, host),
            kind=SocketConnection,
        )
        loop.receive(link, rest)

    def close(self) -> None:
        self._loop.watch_acceptor(self, self._sock, False)


def _socket_of(file: int) -> socket.socket | None:
    """None: the descriptor is of something else."""
    try:
        return socket.socket(fileno=file)
    except OSError:
        os.close(file)
        return None
