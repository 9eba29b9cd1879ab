"""Three workers of one server without processes, sockets or clocks: what `zbus.testing.world.World`
is for one broker, with the same words, so that its tests can be run with either.

Each worker is a whole world. What one of them asks of another goes from list to list here, through
the same plans, upstreams and visitors as between processes. A client reaches a random worker, and
if it is bound to none, a random one with each request.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import attrs
import pytest

from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.edge.connection import Connection
from zbus.protocol.places import shard_of
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Journal
from zbus.testing.world import Client, Reply, World
from zbus.wire.http import HttpReader
from zbus.workers.forwarding import Forwarder
from zbus.workers.handing_over import Giver
from zbus.workers.inner_puts import InnerPlanner, InnerPuts
from zbus.workers.introduction import Introduction, decode_introduction
from zbus.workers.routes import Way
from zbus.workers.seats import NO_SHARD
from zbus.workers.upstream import Upstream

WORKERS: Final = 3
UNBOUND: Final = (b"/camellia/", b"/mq/", b"/topic/http", b"/metrics")
"""Paths of dialects whose requests may come over any connection."""

_TURNS_MAX: Final = 1_000


@attrs.frozen
class Limits:
    output_bytes_max: int = 4 << 20


class Wire:
    """What an upstream has for a socket: the end of a client in the other worker, which is there
    when it was introduced."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.visitor: Client | None = None
        self.ended = False  # nothing more is asked

    def recv(self, count: int) -> bytes:
        raise NotImplementedError

    send = recv

    def setsockopt(self, *what: object) -> None: ...

    def take(self, data: bytes) -> None:
        """What the upstream says."""
        if self.visitor is None:
            line, _, data = data.partition(b"\n")
            self.visitor = self.worker.visit(decode_introduction(line))
        if data:
            self.worker.inbox.append((self.visitor, data))

    @property
    def speaks(self) -> bool:
        """Something has come from there."""
        return self.visitor is not None and bool(self.visitor.received)

    def shutdown(self, how: int) -> None:
        self.ended = True
        self.worker.posted.append(self._leave)

    def _leave(self) -> None:
        if self.visitor is not None:
            self.worker.broker.leave(self.visitor.peer)

    def close(self) -> None:
        if self.visitor in self.worker.clients:
            self.visitor.vanish()


_WORKERS: WeakValueDictionary[str, Worker] = WeakValueDictionary()  # by their paths
_serial = count(1)


class Refused:
    """A socket that is never connected."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent

    def recv(self, count: int) -> bytes:
        raise NotImplementedError

    send = recv

    def close(self) -> None: ...


class Connecting:
    """TLS whose handshake does not end."""

    established = False


@attrs.define
class Wires:
    """`zbus.workers.routes.Routes` without sockets."""

    paths: list[str]
    cluster = ""
    hold_ms: int = 0
    down: set[int] = attrs.Factory(set)  # shards without an owner
    refusing: set[int] = attrs.Factory(set)  # shards whose owner cannot be reached
    silent: bool = False  # such an owner is not refused, but says nothing

    @property
    def count(self) -> int:
        return len(self.paths)

    def when_moved(self, call: Callable[[int], None]) -> None: ...

    def is_here(self, shard: int) -> bool:
        return True

    def better(self, shard: int) -> str:
        return ""

    def open(self, shard: int) -> Way:
        if shard in self.down:
            raise ConnectionRefusedError
        if shard in self.refusing:
            return Way(cast("Any", Refused(self.silent)), cast("Any", Connecting()))
        return Way(cast("Any", Wire(_WORKERS[self.paths[shard]])))


class Output:
    def __init__(self) -> None:
        self.held: dict[Upstream, None] = {}


class Lines:
    """What a forwarder needs of a loop."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.output = Output()
        self.ready: list[object] = []
        self.now_ms = 0
        self.upstreams: dict[Upstream, None] = {}

    @property
    def links(self) -> dict[Upstream, None]:
        return self.upstreams

    def attach(self, upstream: Upstream) -> None:
        self.upstreams[upstream] = None

    def drop(self, upstream: Upstream) -> None:
        if not upstream.closed:
            upstream.closed = True
            self.upstreams.pop(upstream, None)
            self.output.held.pop(upstream, None)
            upstream.close()


class Worker(World):
    """One of them."""

    def __init__(
        self, edges: Edges, number: int, paths: list[str], journal: Journal, **options: Any
    ) -> None:
        super().__init__(journal, **options)
        self.edges = edges
        self.number = number
        self.lines = Lines()
        loop, front, heads = cast("Any", self.lines), self.front, self._assembly.heads
        self.wires = wires = Wires(paths)
        self.edge = Forwarder(front, heads, loop, number, wires, cast("Giver", None))
        self.broker.elsewhere.port = InnerPuts(self.broker, loop, number, wires, front)
        self._door = InnerPlanner(self.broker, front)
        self._visiting = self._assembly.make_heads()
        if number != NO_SHARD:
            _WORKERS[paths[number]] = self

    def welcome(self, client: Client) -> Connection:
        """A connection of a client's to this worker."""
        assembly, id = self._assembly, b"%04x-session-%d" % (self.number, next(self._serial))
        address = f"127.0.0.1:{40_000 + self.edges.serial()}"
        peer = Connection(id, address, assembly.reader(), self.edge, lambda peer: None)
        self._join(client, peer)
        return peer

    def visit(self, introduced: Introduction) -> Client:
        """What another worker opens, mostly for a client of its own."""
        id = b"%04x-visitor-%d" % (self.number, next(self._serial))
        reader = HttpReader(self._visiting, self._assembly._wire_limits, self._assembly.bodies)
        planner = self._door if introduced.inner else self.front
        peer = Connection(id, introduced.address, reader, planner, lambda peer: None)
        peer.principal, peer.secure = introduced.principal, introduced.secure
        client = Client(self, peer)
        self._join(client, peer)
        if introduced.inner:
            self._door.admit(peer)
        return client

    def _join(self, client: Client, peer: Connection) -> None:
        self.clients.append(client)
        self.broker.join(peer)

    def turn(self) -> None:
        super().turn()
        self.broker.begin(self.now_ms)
        for upstream in list(self.lines.upstreams):
            self._exchange(upstream, cast("Wire", upstream.sock))
        held = self.lines.output.held
        for upstream in list(held):
            if not upstream.crowded(1 << 30):
                held.pop(upstream, None)
        self.broker.finish()
        self.broker.sent()

    def _exchange(self, upstream: Upstream, wire: Wire) -> None:
        """Both ways; what the other worker says is heard within a turn of this one's."""
        if isinstance(wire, Refused):
            if not wire.silent:
                self.lines.drop(upstream)
            upstream.out.clear()
            return
        if upstream.out:
            wire.take(b"".join(upstream.out))
            upstream.out.clear()
            upstream.out_bytes = 0
        visitor = wire.visitor
        if visitor is None:
            return
        visitor.takes = not upstream.crowded(1 << 30)
        came, visitor.received = visitor.received, b""
        if came:
            upstream.receive(came)
        peer = visitor.peer
        asks = any(client is visitor for client, _ in wire.worker.inbox)
        over = peer.finished or (wire.ended and not (asks or peer.open_tickets or peer.out))
        if over and not visitor.received and visitor.takes:
            self.lines.drop(upstream)

    @property
    def busy(self) -> bool:
        due_ms = self.broker.next_due()
        return bool(
            self.inbox
            or self.posted
            or any(upstream.out for upstream in self.lines.upstreams)
            or any((client.peer.out and client.takes) for client in self.clients)
            or any(
                (v := getattr(each.sock, "visitor", None)) and v.received
                for each in self.lines.upstreams
            )
            or (due_ms is not None and due_ms <= self.now_ms)
        )


class AtEdges(Client):
    """A client with a connection to each worker that it has reached."""

    def __init__(self, edges: Edges) -> None:
        self.edges = edges
        self._peers: dict[int, Connection] = {}
        self.received = b""
        self.takes = True
        self._go_to(edges.random.choice(edges.doors))

    @property
    def world(self) -> Any:  # type: ignore[override]
        return self.edges

    def _go_to(self, number: int) -> None:
        self._number = number
        if number not in self._peers:
            self._peers[number] = self.edges.workers[number].welcome(self)

    @property
    def peer(self) -> Connection:  # type: ignore[override]
        return self._peers[self._number]

    def send(self, data: bytes) -> None:
        words = data.split(b" ", 2)
        if len(words) == 3 and words[1].startswith(UNBOUND) and not self._waits():
            self._go_to(self.edges.random.choice(self.edges.doors))
        self.edges.workers[self._number].inbox.append((self, data))

    def _waits(self) -> bool:
        """For an answer, which other answers must not overtake."""
        asked = [client for worker in self.edges.workers for client, _ in worker.inbox]
        open_ = any([peer.open_tickets or peer.out for peer in self._peers.values()])
        return open_ or bool(self.received) or self in asked

    def request(self, data: bytes) -> Reply:
        replies = self.exchange(data)
        assert len(replies) == 1, f"one reply expected, got {replies}"
        return replies[0]

    def vanish(self) -> None:
        for number, peer in self._peers.items():
            worker = self.edges.workers[number]
            peer.closed = True
            worker.broker.leave(peer)
            worker.clients.remove(self)
        self.edges.clients.remove(self)


class Brokers:
    """What tests may see of the brokers; who looks deeper is about one broker."""

    def __init__(self, workers: list[Worker]) -> None:
        self._workers = workers

    def check(self) -> None:
        for worker in self._workers:
            worker.broker.check()

    def commit(self) -> None:
        for worker in self._workers:
            worker.broker.commit()

    @property
    def topics(self) -> dict[str, Any]:
        return {k: topic for worker in self._workers for k, topic in worker.broker.topics.items()}

    def topic(self, name: str) -> Any:
        return self._workers[shard_of(name, WORKERS)].broker.topic(name)

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"it looks into the one broker: {name}")


class Edges:
    """See above."""

    def __init__(self, journal: Any = None, **options: Any) -> None:
        if journal is None:
            journal = [MemoryJournal() for _ in range(WORKERS)]
        if not isinstance(journal, list):
            pytest.skip("it brings a journal of its own")
        self.journal = journal
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        seed = int(os.environ.get("EDGES_SEED", "1"))
        self.random = Random(zlib.crc32(f"{seed} {test}".encode()))
        self.clients: list[AtEdges] = []
        self._addresses = count(1)
        self._dialects = options.pop("dialects", None) or {}
        self._options = options
        self._paths = [f"{next(_serial)}" for _ in journal]
        self.workers: list[Worker] = []
        self.doors = range(WORKERS)
        """Numbers of workers that clients reach."""
        self.begin()

    def begin(self) -> None:
        self.workers += [self.make_worker(number) for number in range(WORKERS)]

    def make_worker(self, number: int) -> Worker:
        """On the journal of its shard, if it has one."""
        journal = MemoryJournal() if number == NO_SHARD else self.journal[number]
        settings = self._settings(number, self._dialects)
        return Worker(self, number, self._paths, journal, dialects=settings, **self._options)

    def end_owners(self) -> None:
        """As processes that are killed."""
        for worker in self.workers[WORKERS:]:
            worker.wires.down.update(range(WORKERS))
            for upstream in list(worker.lines.upstreams):
                cast("Wire", upstream.sock).visitor = None
                worker.lines.drop(upstream)

    def begin_owners(self) -> None:
        """Others recover their data."""
        now_ms, ahead_ms = self.now_ms, self.ahead_ms
        for number in range(WORKERS):
            self._paths[number] = f"{next(_serial)}"
            worker = self.workers[number] = self.make_worker(number)
            worker.now_ms, worker.ahead_ms = now_ms, ahead_ms
        for worker in self.workers[WORKERS:]:
            worker.wires.down.clear()
            worker.edge.look()

    def _settings(self, number: int, dialects: Mapping[str, object]) -> dict[str, object]:
        found = dialects.get("mqcloud")
        mqcloud = found if isinstance(found, MqcloudSettings) else MqcloudSettings()
        keeps: Callable[[str], bool] = lambda topic: shard_of(topic, WORKERS) == number  # noqa: E731
        return {**dialects, "mqcloud": attrs.evolve(mqcloud, keeps=keeps)}

    def serial(self) -> int:
        return next(self._addresses)

    @property
    def broker(self) -> Any:
        return Brokers(self.workers)

    @property
    def now_ms(self) -> int:
        return self.workers[0].now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        for worker in self.workers:
            worker.now_ms = now_ms

    @property
    def ahead_ms(self) -> int:
        return self.workers[0].ahead_ms

    @ahead_ms.setter
    def ahead_ms(self, ahead_ms: int) -> None:
        for worker in self.workers:
            worker.ahead_ms = ahead_ms

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"it looks into the one world: {name}")

    def connect(self) -> AtEdges:
        client = AtEdges(self)
        self.clients.append(client)
        return client

    def turn(self) -> None:
        for worker in self.workers:
            worker.turn()

    def settle(self) -> None:
        self.turn()
        for _ in range(_TURNS_MAX):
            if not any([worker.busy for worker in self.workers]):
                return
            self.turn()
        raise AssertionError("the workers do not come to rest")

    def flush(self) -> None:
        self.broker.commit()

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while True:
            due = [worker.broker.next_due() for worker in self.workers]
            next_ms = min([at for at in due if at is not None], default=end_ms + 1)
            if next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            self.settle()
        self.now_ms = end_ms
        self.settle()
