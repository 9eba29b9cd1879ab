"""One server of several workers, each the real code on a disk of its own, under one seed.

What the parent does is done here: it keeps the sockets, and begins workers again that have ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, cast

import attrs

from tests.simulation.workers.sockets import Inbox, Plain, System, Waiting
from zbus.edge.places import MAKER_DIGITS
from zbus.server.loop.sockets import Address, Listening
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.server.process.listener import Listener
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.port import JournalError
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock
from zbus.testing.simulation.network import Connection
from zbus.workers.forwarding import Forwarder
from zbus.workers.inner_puts import InnerPuts
from zbus.workers.routes import LocalRoutes, Routes
from zbus.workers.seats import Seat, Shared
from zbus.workers.server import open_sockets

WORKERS: Final = 3
ADDRESS: Final = Address("tcp", "10.0.0.1", 15_555)
_TURNS_MAX: Final = 20_000


class WorkerProcess(Process):
    """One run of a worker."""

    def __init__(self, node: Node, shared: Shared, options: Options, links_max: int) -> None:
        self.listener: Listener | None = None
        self.visitors: dict[bytes, bytes] = {}
        self._node, self._shared, self._options = node, shared, options
        self._links_max = links_max
        name = f"{node.number}-{node.starts}"
        super().__init__(node.disk, node.clock, options, name, node.random)

    def _open(self) -> None:
        node, shared, options = self._node, self._shared, self._options
        loop, assembly = self.loop, self._assembly
        serial = itertools.count(1)
        maker = self._maker()

        def session_id() -> bytes:
            return b"%b-%d-%027d" % (maker, node.starts, next(serial))

        self.limits = ConnectionLimits(
            options.connections_max,
            options.connections_per_address_max,
            loop.links,
            self._links_max,
        )
        seat, routes = self._seat(), self._routes()
        open_sockets(assembly, loop, shared, seat, routes, session_id, self.limits, self.visitors)
        door: Any = node.door
        self.ready.listen(door)
        listening = Listening.inherited(ADDRESS, door)
        self.listener = Listener(listening, assembly, loop, self.limits, session_id)
        loop.open_acceptor(self.listener, door)

    def _maker(self) -> bytes:
        """How the ids of its sessions begin."""
        return b"%0*x" % (MAKER_DIGITS, self._node.number)

    def _seat(self) -> Seat:
        sockets: Any = (self._node.relay, self._node.given)  # all of a socket that is used
        for sock in sockets:
            self.ready.listen(sock)
        return Seat(self._node.number, (), *sockets)

    def _routes(self) -> Routes:
        return LocalRoutes(self._shared.paths)

    def _upkeep(self) -> None:
        super()._upkeep()
        if self.listener is not None:
            self.listener.resume()

    @property
    def inner_puts(self) -> InnerPuts:
        return cast(InnerPuts, self.broker.elsewhere.port)

    @property
    def forwarder(self) -> Forwarder:
        return cast(Forwarder, self._assembly.planner)


class Node:
    """A worker, whether it runs or not, and what is there of it all the time."""

    def __init__(self, number: int, clock: VirtualClock, random: Random, system: System) -> None:
        self.number = self.shard = number
        self.clock = clock
        self.random = random
        self.disk = Disk()
        self.process: WorkerProcess | None = None
        self.starts = 0
        self.begins_ms = 0  # when it is begun again, after it ended
        self.paused_until_ms = 0
        self.door, self.relay = Waiting(system, number), Waiting(system, number)
        self.given = Inbox(system)

    @property
    def running(self) -> WorkerProcess:
        assert self.process is not None, f"worker {self.number} does not run"
        return self.process

    @property
    def runs(self) -> bool:
        """It has turns."""
        return self.process is not None and self.clock.time_ms >= self.paused_until_ms


class Server:
    """See the module. `ended` is told of a worker that ended by itself."""

    def __init__(
        self, random: Random, options: Options, links_max: int, ended: Callable[[Node], None]
    ) -> None:
        self.random = random
        self.options = options
        self.clock = VirtualClock(EPOCH_MS)
        self.system = self._make_system()
        self.ended = ended
        self._links_max = links_max
        self._connected = 0
        self.nodes: list[Node] = []
        self._furnish()

    def _furnish(self) -> None:
        """All workers, and what they share."""
        system = self.system
        self.nodes = [Node(number, self.clock, self.random, system) for number in range(WORKERS)]
        paths = [f"/run/asked-{node.number}" for node in self.nodes]
        taker_paths = [f"/run/given-{node.number}" for node in self.nodes]
        system.listening = {paths[node.number]: node.relay for node in self.nodes}
        system.inboxes = {taker_paths[node.number]: node.given for node in self.nodes}
        reserves = SharedReserves.make(WORKERS)
        self._shared = Shared([ADDRESS], paths, taker_paths, b"secret", reserves)

    def _make_system(self) -> System:
        return System()

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms

    @contextmanager
    def _within(self, node: Node) -> Iterator[None]:
        with self.system.run(node.number):
            yield

    # -- life of workers ----------------------------------------------------------------------

    def start(self, node: Node) -> None:
        assert node.process is None, f"worker {node.number} runs already"
        node.starts += 1
        with self._within(node):
            try:
                node.process = WorkerProcess(node, self._shared, self.options, self._links_max)
            except JournalError:
                node.disk = node.disk.kill()
                raise

    def kill(self, node: Node, disk: Disk | None = None) -> None:
        """It dies at once, and leaves this disk; else all that it wrote."""
        node.process = None
        node.paused_until_ms = 0
        node.disk = disk or node.disk.kill()
        self.system.end(node.number)

    def power_cut(self) -> None:
        """The machine: what is on its way is lost, and of what was not synced any part may be."""
        for node in self.nodes:
            self.kill(node, node.disk.crash(self.random))
            for waiting in (node.door, node.relay):
                for inner in waiting.waiting:
                    inner.broken = inner.closed = True
                waiting.waiting.clear()
            for _, given in node.given.messages:
                for inner in given:
                    inner.broken = inner.closed = True
            node.given.messages.clear()
        self.system.pipes.clear()

    def begin_ended(self) -> None:
        """The parent begins those again whose time has come."""
        for node in self.nodes:
            if node.process is None and self.now_ms >= node.begins_ms:
                self.start(node)

    # -- what happens to it -------------------------------------------------------------------

    def connect(self, room_bytes: int, node: Node | None = None) -> Connection:
        """A new connection, which the system gives to any worker, also one that does not run."""
        self._connected += 1
        inner = Plain(self._connected, room_bytes)
        (node or self.random.choice(self.nodes)).door.waiting.append(inner)
        return Connection(inner, f"connection {self._connected}")

    def go_on(self, node: Node) -> None:
        """Some of what it asked of its disk is done, then it has a turn."""
        for worker in node.running.workers:
            if worker.jobs and self.random.random() < 0.6:
                worker.run(self.random.randint(1, len(worker.jobs)))
        self.turn(node)

    def turn(self, node: Node) -> None:
        """One turn of a worker. If its journal failed in it, it has ended."""
        process = node.running
        with self._within(node):
            process.turn()
        if process.loop.failure:
            self.kill(node)
            self.ended(node)

    def move_bytes(self) -> bool:
        """What workers have sent to each other arrives, but where that is slow; whether any did."""
        moved = False
        for pipe in self.system.pipes:
            if pipe.slow_until_ms <= self.now_ms:
                moved = pipe.move(1 << 30) or moved
        self.system.forget_the_dead()
        return moved

    def settle(self) -> None:
        """All is done that can be done at this time."""
        for number in range(_TURNS_MAX):
            self.begin_ended()
            busy = self.move_bytes()
            for node in self.nodes:
                if node.runs and (not number or self._busy(node)):
                    self._settle(node)
                    busy = True
            if number and not busy:
                return
        raise AssertionError("the workers do not come to rest")

    def _settle(self, node: Node) -> None:
        with self._within(node):
            node.running.work()
        self.turn(node)

    def _busy(self, node: Node) -> bool:
        """Whether there is something to do."""
        process = node.running
        asked = process.post.signalled or process.ready.has_some()
        return asked or process.loop.idle_s() == 0 or process.works

    def next_due(self) -> int | None:
        """When something happens by itself, next."""
        found = [pipe.slow_until_ms for pipe in self.system.pipes]
        for node in self.nodes:
            if node.process is None:
                found.append(node.begins_ms)
            elif not node.runs:
                found.append(node.paused_until_ms)
            elif (due_ms := node.process.broker.next_due()) is not None:
                found.append(max(due_ms, self.now_ms + 1))
        return min([due_ms for due_ms in found if due_ms > self.now_ms], default=None)

    def advance(self, ms: int) -> None:
        """Time passes, with a stop wherever there is something to do."""
        end_ms = self.now_ms + ms
        while True:
            self.settle()
            due_ms = self.next_due()
            if due_ms is None or due_ms > end_ms:
                break
            self.clock.time_ms = min(due_ms, self.now_ms + 1_000)
        while self.now_ms < end_ms:  # workers look after connections once a second
            self.clock.time_ms = min(end_ms, self.now_ms + 1_000)
            self.settle()

    # -- what is left -------------------------------------------------------------------------

    def left_over(self) -> list[str]:
        """What is there although all clients have left. A broker that has put something into topics
        of another worker keeps its connection to that."""
        nodes = [node for node in self.nodes if node.process is not None]
        links = [
            (node.shard, other, link)
            for node in nodes
            for other, link in enumerate(node.running.inner_puts._links)
        ]
        found = [f"{len(self.system.pipes)} sockets between workers"]
        found = (
            found
            if len(self.system.pipes) > sum(link._upstream is not None for _, _, link in links)
            else []
        )
        found += [f"puts from {one} to {other}" for one, other, link in links if link.held_bytes]
        for node in nodes:
            process, number, shard = node.running, node.number, node.shard
            inner = sum(
                (one == shard) + (other == shard) for one, other, link in links if link._upstream
            )
            memory = process.broker.memory_use()
            handles = [one for one in self.system.handles.values() if one.owner == number]
            parts = {
                "connections": len(process.loop.links) - inner,
                "connections of clients": process.limits._open,
                "clients of other workers": len(process.forwarder._clients),
                "unanswered requests": sum(process.forwarder.unanswered),
                "visitors": len([id for id in process.visitors.values() if id]),
                "pulls": memory.pulls,
                "calls": memory.calls,
                "sockets": len([one for one in handles if one.inner is not None]) - inner,
                "waiting connections": len(node.door.waiting) + len(node.relay.waiting),
                "connections on their way": len(node.given.messages),
            }
            found += [f"worker {number}: {count} {what}" for what, count in parts.items() if count]
        return found


def small(random: Random) -> tuple[Options, int]:
    """Options of one world, and how many connections of any kind a worker may have."""
    few = random.random() < 0.25
    options = Options(
        segment_bytes=random.choice((2_000, 20_000, 200_000)),
        cache_bytes_max=random.choice((2_000, 100_000)),
        output_bytes_max=random.choice((4_000, 64_000)),
        tickets_per_connection_max=random.choice((3, 1_024)),
        connections_per_address_max=random.choice((2, 4)) if few else 0,
        call_timeout_ms=20_000,
        stall_timeout_ms=120_000,
        bytes_per_s_min=0,
    )
    if random.random() < 0.2:
        options = attrs.evolve(options, connections_max=random.choice((3, 6)))
    return options, random.choice((8, 20)) if random.random() < 0.1 else 1 << 20
