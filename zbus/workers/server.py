"""One worker: a whole broker for its shard, and a door for all topics of the server."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs

from zbus.config import Config
from zbus.edge.places import MAKER_DIGITS
from zbus.protocol.places import shard_of
from zbus.server.assembly import Assembly
from zbus.server.exits import EXIT_OK, EXIT_TAKEN
from zbus.server.loop.faults import each
from zbus.server.loop.loop import Loop
from zbus.server.loop.sockets import Address, Listening
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.server.process.engines import Engine
from zbus.server.process.serve import Server, Start, read_tokens, serve
from zbus.server.process.tokens import TokenFile
from zbus.server.watch.system_stats import OsStats
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.local.shards import shard_directory
from zbus.workers.forwarding import Forwarder
from zbus.workers.handing_over import Giver, Guest, Taker
from zbus.workers.inner_puts import InnerPlanner, InnerPuts
from zbus.workers.introduction import session_id
from zbus.workers.routes import LocalRoutes, Routes
from zbus.workers.seats import NO_SHARD, READY, TURNS, Seat, Shared
from zbus.workers.sharing import worker_config
from zbus.workers.visitors import VisitorListener

log = logging.getLogger("zbus")

_NO_MAKER: Final = b"f" * MAKER_DIGITS


class Worker(Server):
    """See above. `life` says when the parent has ended, `status` tells it how this one does."""

    def __init__(
        self,
        config: Config,
        shared: Shared,
        seat: Seat,
        life: socket.socket,
        status: int,
        engine: Engine | None = None,
        routes: Routes | None = None,
    ) -> None:
        """`engine` and `routes` are None for one that keeps files."""
        self._routes = routes or LocalRoutes(shared.paths)
        self._shared = shared
        self._seat = seat
        self._life = life
        self._status = status
        is_owner = seat.shard != NO_SHARD
        self._maker = b"%0*x" % (MAKER_DIGITS, seat.shard) if is_owner else _NO_MAKER
        self.disk_part *= config.workers
        gauges = OsStats()
        known = worker_config(config, gauges)
        if seat.shard != shard_of("semq", shared.shards):
            known = attrs.evolve(known, semq_nodes="")
        if engine is None:
            known = attrs.evolve(known, data_dir=shard_directory(config.data_dir, seat.shard))
        self._parts = config.workers
        super().__init__(known, gauges=gauges, engine=engine)

    def _open_addresses(self, addresses: Sequence[Address]) -> list[Listening]:
        return [
            Listening.inherited(address, sock)
            for address, sock in zip(self._shared.addresses, self._seat.doors, strict=True)
        ]

    def _read_tokens(self) -> TokenFile | None:
        return read_tokens(self.config, self._parts)

    def _secret(self) -> bytes:
        return self._shared.secret

    def _accept(self, assembly: Assembly, limits: ConnectionLimits) -> None:
        loop, shared, known = self.loop, self._shared, self.running.visitors
        forwarder = open_sockets(
            assembly, loop, shared, self._seat, self._routes, self._session_id, limits, known
        )
        self._forwarder = forwarder
        end = _End(self._life, loop, forwarder, self.stop_serving)
        loop.open_acceptor(end, self._life)
        for listening in self._listening:  # others of this port served clients until now
            listening.listen()
        super()._accept(assembly, limits)

    def _keeps(self, topic: str) -> bool:
        return shard_of(topic, self._shared.shards) == self._seat.shard

    def _shared_reserves(self) -> SharedReserves | None:
        reserves = self._shared.reserves
        return None if reserves is None else attrs.evolve(reserves, own=self._seat.shard)

    def start_again(self) -> int:
        """The parent has another one become a standby."""
        nodes = self.engine.nodes
        return EXIT_OK if nodes is not None and nodes.leaves else EXIT_TAKEN

    def _session_id(self) -> bytes:
        return session_id(self._maker)

    def tell(self, what: bytes) -> None:
        """The parent, if it listens."""
        try:
            os.write(self._status, what)
        except OSError:
            pass

    def _now_and_then(self) -> None:
        super()._now_and_then()
        self._forwarder.look()
        self.tell(TURNS)
        nodes = self.engine.nodes
        is_owner = nodes is not None and nodes.shard is not None and not nodes.leaves
        if is_owner and (better := self._routes.better(self._seat.shard)):
            log.info("a shard is given up", extra={"shard": self._seat.shard, "to": better})
            self.leave()


def open_sockets(
    assembly: Assembly,
    loop: Loop,
    shared: Shared,
    seat: Seat,
    routes: Routes,
    session_id: Callable[[], bytes],
    limits: ConnectionLimits,
    visitors: dict[bytes, bytes],
) -> Forwarder:
    """To and from other workers: what their clients ask here, connections that are handed over,
    what clients of this one ask elsewhere, and what its broker puts there."""
    router, broker, own = assembly.front, assembly.broker, seat.shard
    broker.elsewhere.port = InnerPuts(broker, loop, own, routes, router)
    door = InnerPlanner(broker, router)
    for sock, tls in ((seat.relay, None), seat.far or (None, None)):
        if sock is not None:
            listener = VisitorListener(
                sock, assembly, door, loop, session_id, limits, visitors, own, routes.cluster, tls
            )
            loop.open_acceptor(listener, sock)
    giver = Giver(shared.taker_paths, own)
    if seat.taker is not None:
        taker = Taker(seat.taker, assembly, loop, session_id, limits, giver)
        loop.open_acceptor(taker, seat.taker)
    forwarder = Forwarder(router, assembly.heads, loop, own, routes, giver)
    routes.when_moved(lambda shard: each([partial(forwarder.moved, shard)]))
    assembly.planner = forwarder
    assembly.kind = Guest
    return forwarder


class _End:
    """The parent has ended, so its workers do; or this one was asked to."""

    def __init__(
        self, life: socket.socket, loop: Loop, forwarder: Forwarder, stop: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._life = life
        self._forwarder = forwarder

    def accept(self) -> None:
        self._stop()

    def close(self) -> None:
        self._loop.watch_acceptor(self, self._life, False)
        self._forwarder.stop()


def run_worker(
    config: Config,
    shared: Shared,
    seat: Seat,
    life: socket.socket,
    status: int,
    engine: Engine | None = None,
    routes: Routes | None = None,
) -> int:
    """Returns the exit code of the process."""
    start = Start(
        partial(Worker, config, shared, seat, life, status, engine, routes),
        lambda server: server.tell(READY) if isinstance(server, Worker) else None,
    )
    return serve(config, start)
