"""One worker: a whole broker for its shard, and a door for all topics of the server."""

from __future__ import annotations

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
from zbus.server.loop.loop import Loop
from zbus.server.loop.sockets import Address, Listening
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.server.process.serve import Server, Start, read_tokens, serve
from zbus.server.process.tokens import TokenFile
from zbus.server.watch.system_stats import OsStats
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.local.shards import shard_directory
from zbus.workers.forwarding import Forwarder
from zbus.workers.handing_over import Giver, Guest, Taker
from zbus.workers.inner_puts import InnerPlanner, InnerPuts
from zbus.workers.introduction import session_id
from zbus.workers.sharing import worker_config
from zbus.workers.visitors import VisitorListener

READY: Final = b"R"
TURNS: Final = b"."


@attrs.frozen
class Shared:
    """What the parent has made for all workers."""

    addresses: Sequence[Address]
    doors: Sequence[Sequence[socket.socket]]  # of each worker, one for each address
    relays: Sequence[socket.socket]  # where other workers come, by worker
    paths: Sequence[str]  # of these
    takers: Sequence[socket.socket]  # where they send connections, by worker
    taker_paths: Sequence[str]
    secret: bytes
    reserves: SharedReserves


class Worker(Server):
    """See above. `life` says when the parent has ended, `status` tells it how this one does."""

    def __init__(
        self, config: Config, shared: Shared, number: int, life: socket.socket, status: int
    ) -> None:
        self._shared = shared
        self._number = number
        self._life = life
        self._status = status
        self._maker = b"%0*x" % (MAKER_DIGITS, number)
        has_mailboxes = number == shard_of("semq", config.workers)
        self._count = config.workers
        self.disk_part *= self._count
        gauges = OsStats()
        super().__init__(
            attrs.evolve(
                worker_config(config, gauges),
                data_dir=shard_directory(config.data_dir, number),
                semq_nodes=config.semq_nodes if has_mailboxes else "",
            ),
            gauges=gauges,
        )

    def _open_addresses(self, addresses: Sequence[Address]) -> list[Listening]:
        doors = self._shared.doors[self._number]
        return [
            Listening.inherited(address, sock)
            for address, sock in zip(self._shared.addresses, doors, strict=True)
        ]

    def _read_tokens(self) -> TokenFile | None:
        return read_tokens(self.config, self._count)

    def _secret(self) -> bytes:
        return self._shared.secret

    def _accept(self, assembly: Assembly, limits: ConnectionLimits) -> None:
        loop, shared, known = self.loop, self._shared, self.running.visitors
        forwarder = open_sockets(
            assembly, loop, shared, self._number, self._session_id, limits, known
        )
        loop.open_acceptor(_End(self._life, loop, forwarder), self._life)
        super()._accept(assembly, limits)

    def _keeps(self, topic: str) -> bool:
        return shard_of(topic, self._count) == self._number

    def _shared_reserves(self) -> SharedReserves:
        return attrs.evolve(self._shared.reserves, own=self._number)

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
        self.tell(TURNS)


def open_sockets(
    assembly: Assembly,
    loop: Loop,
    shared: Shared,
    number: int,
    session_id: Callable[[], bytes],
    limits: ConnectionLimits,
    visitors: dict[bytes, bytes],
) -> Forwarder:
    """To and from other workers: what their clients ask here, connections that are handed over,
    what clients of this one ask elsewhere, and what its broker puts there."""
    router, relay, given = assembly.front, shared.relays[number], shared.takers[number]
    broker, door = assembly.broker, InnerPlanner(assembly.broker, router)
    broker.elsewhere.port = InnerPuts(broker, loop, number, shared.paths, router)
    listener = VisitorListener(relay, assembly, door, loop, session_id, limits, visitors)
    loop.open_acceptor(listener, relay)
    giver = Giver(shared.taker_paths, number)
    loop.open_acceptor(Taker(given, assembly, loop, session_id, limits, giver), given)
    forwarder = Forwarder(router, assembly.heads, loop, number, shared.paths, giver)
    assembly.planner = forwarder
    assembly.kind = Guest
    return forwarder


class _End:
    """The parent has ended, so its workers do; or this one was asked to."""

    def __init__(self, life: socket.socket, loop: Loop, forwarder: Forwarder) -> None:
        self._loop = loop
        self._life = life
        self._forwarder = forwarder

    def accept(self) -> None:
        self._loop.stop()

    def close(self) -> None:
        self._loop.watch_acceptor(self, self._life, False)
        self._forwarder.stop()


def run_worker(
    config: Config, shared: Shared, number: int, life: socket.socket, status: int
) -> int:
    """Returns the exit code of the process."""
    start = Start(
        partial(Worker, config, shared, number, life, status),
        lambda server: server.tell(READY) if isinstance(server, Worker) else None,
    )
    return serve(config, start)
