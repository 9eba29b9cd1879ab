"""Clients of other workers, as the worker that has the topic knows them."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

import attrs

from zbus.documents import NOT_JSON
from zbus.protocol.places import NODE_PROTOCOL, speaks_with
from zbus.server.assembly import Assembly
from zbus.server.loop.loop import Loop
from zbus.server.loop.socket_connection import SocketConnection
from zbus.server.loop.sockets import peer_address
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.server.process.listener import EXHAUSTED
from zbus.wire.errors import WireError
from zbus.wire.tls import TlsStream
from zbus.workers.inner_puts import InnerPlanner
from zbus.workers.introduction import decode_introduction

_ACCEPTS_PER_TURN: Final = 16
_PAUSE_MS: Final = 1_000
"""When no descriptor was left; those who came wait."""

log = logging.getLogger("zbus")


@attrs.frozen
class Visit:
    """What is done when a visitor has gone."""

    id: bytes
    visitors: dict[bytes, bytes]
    shard: int  # that is here
    cluster: str

    def __call__(self) -> None:
        self.visitors.pop(self.id, None)


class Visitor(SocketConnection):
    """One of them. What it is comes before its first request, in one piece."""

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        self.__class__ = SocketConnection  # type: ignore[assignment]  # from here on it is like any
        line, found, rest = data.partition(b"\n")
        try:
            client = decode_introduction(line if found else b"")
        except NOT_JSON:
            self.refuse(WireError(400, "another worker does not say whose requests come"))
            return
        self.address, self.principal, self.secure = client.address, client.principal, client.secure
        door = self.planner
        assert isinstance(door, InnerPlanner)
        assert isinstance(self.gone, Visit)
        if client.cluster != self.gone.cluster:
            self.refuse(WireError(503, f"this node is of the cluster {self.gone.cluster}"))
        elif client.cluster and not speaks_with(client.protocol):
            self.refuse(WireError(503, f"this node speaks protocol {NODE_PROTOCOL}"))
        elif client.shard not in (None, self.gone.shard):
            self.refuse(WireError(503, "the shard has moved; retry in 1 s"))
        elif client.inner:
            door.admit(self)
        else:
            self.planner = door.router
            self.gone.visitors[self.id] = client.id.encode()
        if not self.closing:
            self.receive(rest)


class VisitorListener:
    """Where other workers connect."""

    def __init__(
        self,
        sock: socket.socket,
        assembly: Assembly,
        door: InnerPlanner,
        loop: Loop,
        session_id: Callable[[], bytes],
        limits: ConnectionLimits,
        visitors: dict[bytes, bytes],
        shard: int,
        cluster: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`cluster`: of which this is a node. `visitors` are those that there are, and the ids that
        their clients have where they are connected. `tls`: other nodes connect."""
        self._shard = shard
        self._cluster = cluster
        self._tls = tls
        self._visitors = visitors
        self._sock = sock
        self._assembly = assembly
        self._door = door
        self._heads = assembly.make_heads()  # their plans are all of this worker
        self._loop = loop
        self._session_id = session_id
        self._limits = limits
        self._timer = assembly.broker.timers.timer(VisitorListener._resume)

    def _resume(self) -> None:
        self._loop.watch_acceptor(self, self._sock, True)

    def accept(self) -> None:
        loop = self._loop
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                log.warning("accepting other workers paused", extra={"why": error})
                loop.watch_acceptor(self, self._sock, False)
                self._timer.set(self, loop.now_ms + _PAUSE_MS)
                return
            if self._limits.exhausted:
                sock.close()  # its client is told to come again
                continue
            sock.setblocking(False)
            if self._tls is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            id = self._session_id()
            visitor = Visitor(
                sock,
                id,
                peer_address(sock, address) if self._tls is not None else "",
                self._assembly.reader(self._heads),
                self._door,
                loop.ready.append,
                loop.limits.output_bytes_max,
                loop.now_ms,
                None if self._tls is None else TlsStream(self._tls),
                Visit(id, self._visitors, self._shard, self._cluster),
            )
            visitor.patient = 1  # it goes with its client, which the other worker looks after
            loop.add(visitor)

    def close(self) -> None:
        if self in self._timer:
            self._timer.discard(self)
        else:
            self._loop.watch_acceptor(self, self._sock, False)
        self._sock.close()
