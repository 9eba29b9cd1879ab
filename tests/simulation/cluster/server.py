"""Several machines, each with an edge, a spare and owners of shards, as one server: the processes
are the real code, what begins and reaps them is done here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Final, Protocol, cast

import attrs

from tests.simulation.cluster.nats import Client, MachineClock, Nats, NodeStream
from tests.simulation.cluster.sockets import ClusterSystem, Listening
from tests.simulation.model import Violation
from tests.simulation.workers.server import ADDRESS, WORKERS, Node, Server, WorkerProcess
from tests.simulation.workers.sockets import Inbox, Plain
from tests.storage.jetstream.cluster import Faults
from zbus.core.api import Topic, recover
from zbus.server.exits import EXIT_CANNOT_START, EXIT_TAKEN, CannotStart
from zbus.server.loop.silence import Silence
from zbus.server.process import replicated
from zbus.server.process.replicated import ReplicatedEngine
from zbus.storage.jetstream.engine import JetStreamJournal
from zbus.storage.jetstream.presence import Membership
from zbus.storage.jetstream.settings import Cluster
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Found, JournalError, OpenDone, StoredLane
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import Options
from zbus.testing.simulation.network import Connection, Post
from zbus.workers.cluster.relay import ClusterRoutes, Relay
from zbus.workers.routes import Routes
from zbus.workers.seats import NO_SHARD, Seat, Shared

MACHINES: Final = ("a", "b", "c")
SHARDS: Final = WORKERS
PORT: Final = 15_600
START_MS: Final = 400
"""What a process needs to start, at most."""

_REMEMBER_MS: Final = 10_000
_TURN_EVERY_MS: Final = 1_000
_MESSAGE_BYTES: Final = 100 << 10
_CLUSTER: Final = "worlds"


def address_of(machine: str) -> str:
    return f"10.0.1.{1 + MACHINES.index(machine)}"


class Opened:
    """A journal whose lanes have been found already: `recover` waits for none."""

    def __init__(
        self, journal: JetStreamJournal, found: list[StoredLane], problem: JournalError | None
    ) -> None:
        self.remove = journal.remove
        self._found = found
        self._problem = problem

    def open(self, lanes: object, found: Found, done: OpenDone) -> None:
        for stored in self._found:
            found(stored)
        done(self._problem)


class Member(Node):
    """A process of a machine: its edge, or a spare and the owner that it becomes."""

    def __init__(self, server: ClusterServer, machine: Machine, number: int) -> None:
        super().__init__(number, server.clock, server.random, server.system)
        server.system.machines[number] = machine.name
        self.server = server
        self.machine = machine
        self.machine_name, self.machine_clock = machine.name, machine.clock
        self.starts = number
        self.shard = NO_SHARD
        self.epoch = 0
        self.turned_ms = 0
        self.listening: list[Listening] = []
        self.post = Post()
        self.client = Client(server.nats, self, server.message_bytes_max)

    @property
    def runs(self) -> bool:
        return self.client.alive and self.clock.time_ms >= self.paused_until_ms

    @property
    def is_edge(self) -> bool:
        return self.machine.edge is self

    @property
    def ownership(self) -> JetStreamJournal | None:
        return None

    def turn(self) -> int | None:
        """Its exit code, if it has ended in it."""
        self.running.turn()
        return None


class Edge(Member):
    """It owns nothing, and passes all on."""

    def __init__(self, server: ClusterServer, machine: Machine, number: int) -> None:
        super().__init__(server, machine, number)
        self.door = machine.door
        now_ms = machine.clock.now_ms
        self.membership = Membership(self.client, Cluster(_CLUSTER, shards=SHARDS), now_ms)
        self.membership.listen()
        self.process = ClusterProcess(self, self.membership, MemoryJournal(), [])


class Owner(Member):
    """A spare, until it has claimed a shard."""

    def __init__(self, server: ClusterServer, machine: Machine, number: int, known: bytes) -> None:
        super().__init__(server, machine, number)
        with self._instead():
            self.engine = ReplicatedEngine(
                server.options_of(machine.name), self.post, f"{machine.name}:1", known=known
            )
        self.engine.standby.start()
        self._journal: JetStreamJournal | None = None
        self._found: list[StoredLane] = []
        self._answers: list[JournalError | None] = []

    @contextmanager
    def _instead(self) -> Iterator[None]:
        """The simulated servers take the place of a client of the real ones."""
        names: Any = replicated
        known = names.NatsClient, names.NatsStream
        names.NatsClient, names.NatsStream = lambda access, post: self.client, NodeStream
        try:
            yield
        finally:
            names.NatsClient, names.NatsStream = known

    @property
    def ownership(self) -> JetStreamJournal | None:
        return self._journal

    def turn(self) -> int | None:
        if self.process is not None:
            return self._serve(self.process)
        try:
            self.post.run()
        except CannotStart as error:  # it has lost its shard while it read it
            return error.exit_code
        if self._journal is None:
            if not self.engine.is_decided:
                return None
            try:
                self.engine.check()
            except CannotStart as error:
                return self._cannot_start(error)
            self._open()
        elif self._answers:
            return self._begin(self._journal)
        return None

    def _open(self) -> None:
        """A shard is its own: find what is in it."""
        standby = self.engine.standby
        self.shard, self.epoch = standby.shard.number, self.engine.epoch
        journal = self.engine.open(self._fail, lambda seconds: None, lambda: False)
        self._journal = cast(JetStreamJournal, journal)
        self.machine.claimed(self, standby.tell())
        self._journal.open(None, self._found.append, self._answers.append)

    def _begin(self, journal: JetStreamJournal) -> int | None:
        """All that is in it is known: serve it."""
        try:
            topics, _ = recover(cast(Any, Opened(journal, self._found, self._answers[0])))
        except JournalError as error:
            return self._cannot_start(error)
        self.engine.standby.opened()
        membership = self.engine.standby.membership
        process = self.process = ClusterProcess(self, membership, journal, topics, self.engine)
        process.loop.silence = Silence(journal)
        held = self.engine.when_quiet_ends(partial(process.broker.hold_deliveries, False))
        process.broker.hold_deliveries(held)
        return None

    def _cannot_start(self, error: Exception) -> int:
        if "no stream" in str(error):  # it was cut off
            return EXIT_CANNOT_START
        raise Violation(f"process {self.number} of {self.machine_name}: {error}")

    def _serve(self, process: WorkerProcess) -> int | None:
        loop = process.loop
        silence = loop.silence
        assert silence is not None
        if silence.needed:
            loop.now_ms = self.clock.time_ms
            silence.begin(loop.now_ms)
            loop._stay_silent(silence)
        else:
            process.turn()
        if loop.failure:
            return self.engine.exit_code()
        return EXIT_TAKEN if silence.gave_up else None

    def _fail(self, text: str) -> None:
        assert self.process is not None
        self.process.loop.fail(text)


class ClusterProcess(WorkerProcess):
    """One run of the loop of an edge or an owner."""

    def __init__(
        self,
        member: Member,
        membership: Membership,
        journal: MemoryJournal | JetStreamJournal,
        topics: list[Topic],
        engine: ReplicatedEngine | None = None,
    ) -> None:
        self._member = member
        self._membership = membership
        self._given_journal, self._topics, self._engine = journal, topics, engine
        server, machine = member.server, member.machine
        options = server.options_of(machine.name)
        super().__init__(member, machine.shared, options, server.links_max)

    def _recover(self, disk: Disk, options: Options) -> tuple[list[Topic], int]:
        self.post = self._member.post
        self.journal = self._given_journal
        return self._topics, 0

    def _seat(self) -> Seat:
        member = self._member
        shard, system, machine = member.shard, member.server.system, member.machine
        if shard == NO_SHARD:
            return Seat(NO_SHARD, ())
        member.door = Listening(system, member.number, ("door", member.number))
        relay = Listening(system, member.number, machine.shared.paths[shard])
        far = Listening(system, member.number, (address_of(machine.name), PORT + shard))
        given = member.given = Inbox(system)
        system.inboxes[machine.shared.taker_paths[shard]] = given
        sockets: Any = relay, given, far
        member.listening = [member.door, relay, far]
        for sock in sockets:
            self.ready.listen(sock)
        return Seat(shard, (), sockets[0], sockets[1], (sockets[2], cast(Any, object())))

    def _routes(self) -> Routes:
        machine = self._member.machine
        hold_ms = self._member.server.options.hold_ms
        relay = Relay(address_of(machine.name), PORT, cast(Any, None), cast(Any, None))
        return ClusterRoutes(machine.name, machine.shared.paths, self._membership, relay, hold_ms)

    def _maker(self) -> bytes:
        shard = self._member.shard
        return b"f" * 3 if shard == NO_SHARD else b"%03x" % shard

    def _upkeep(self) -> None:
        if self.listener is not None:
            self.listener.resume()
        self.forwarder.look()
        if self._engine is not None:
            self._engine.upkeep(self.clock.time_ms)


class Machine:
    """A node, and what its parent process does (`zbus.workers.cluster.node`)."""

    def __init__(self, server: ClusterServer, name: str) -> None:
        self.server = server
        self.name = name
        self.clock = MachineClock(server.clock, server.random)
        paths = [f"/run/{name}/asked-{shard}" for shard in range(SHARDS)]
        takers = [f"/run/{name}/given-{shard}" for shard in range(SHARDS)]
        self.shared = Shared([ADDRESS], paths, takers, b"secret")
        self.alive = False
        self.runs = 0  # how often it was begun
        self.members: list[Member] = []
        self.edge: Member | None = None
        self._known = b""
        self._gone: list[tuple[int, int, int]] = []  # when, shard and epoch of owners that ended

    def begin(self) -> None:
        self.alive = True
        self.runs += 1
        for pipe in self.server.system.pipes:
            if pipe.silent and self.name in pipe.machines:
                pipe.cut()  # it does not know them any more
        self._known, self._gone = b"", []
        self.door = Listening(self.server.system, self.server.number_for(self.name), self.name)
        self._begin_edge()
        self._begin_spare()

    def _later(self, call: Callable[[], None]) -> None:
        """A process needs a moment to start."""
        run = self.runs

        def begin() -> None:
            if self.alive and self.runs == run:
                call()

        self.server.nats.after(self.server.random.randrange(START_MS), begin)

    def _begin_edge(self) -> None:
        server = self.server
        number = server.number_for(self.name)
        with server.system.run(number):
            self.edge = Edge(server, self, number)
        self._add(self.edge)

    def _begin_spare(self) -> None:
        server = self.server
        spare = Owner(server, self, server.number_for(self.name), self._known)
        self._add(spare)
        since_ms = server.now_ms - _REMEMBER_MS
        for at_ms, shard, epoch in self._gone:
            if at_ms > since_ms:
                spare.engine.standby.ended(shard, epoch)

    def _add(self, member: Member) -> None:
        self.members.append(member)
        self.server.nodes.append(member)

    def claimed(self, member: Owner, known: bytes) -> None:
        """A spare has a shard."""
        self._known = known
        for other in [*self.members]:
            if other.shard == member.shard and other is not member:
                self.end(other)
        self._later(self._begin_spare)
        self.server.world.moved(member)

    def end(self, member: Member) -> None:
        """It has ended, or is killed; the parent reaps it."""
        self._let_go(member)
        if member is self.edge:
            self.edge = None
            self._later(self._begin_edge)
        elif member.shard == NO_SHARD:
            self._later(self._begin_spare)
        else:
            self._gone.append((self.server.now_ms, member.shard, member.epoch))
            for other in self.members:
                if isinstance(other, Owner) and other.shard == NO_SHARD:
                    other.engine.standby.ended(member.shard, member.epoch)

    def _let_go(self, member: Member) -> None:
        server = self.server
        member.process = None
        member.client.close()
        self.members.remove(member)
        server.nodes.remove(member)
        for sock in member.listening:
            sock.close()
        if member.shard != NO_SHARD:
            path = self.shared.taker_paths[member.shard]
            if server.system.inboxes.get(path) is member.given:
                del server.system.inboxes[path]
            for _, given in member.given.messages:
                for inner in given:
                    inner.handles -= 1
                    inner.abandon()
        server.system.end(member.number)
        if member.shard != NO_SHARD:
            server.world.moved(member)

    def die(self) -> None:
        """It has no power: who is connected from elsewhere is not told."""
        self.alive = False
        for pipe in self.server.system.pipes:
            if self.name in pipe.machines and len({*pipe.machines}) > 1:
                pipe.silent = True
        for member in [*self.members]:
            self._let_go(member)
        self.edge = None
        self.door.close()


class World(Protocol):
    """Who watches."""

    def say(self, text: str) -> None:
        """A line of the trace."""

    def moved(self, member: Member) -> None:
        """It owns a shard now, delivers its messages from now on, or has ended."""

    def spoke(self, member: Member) -> None:
        """It has sent something."""

    def gave_up(self, node: Node) -> None:
        """A process ended by itself."""


class ClusterServer(Server):
    """All of it."""

    system: ClusterSystem

    def __init__(
        self,
        random: Random,
        options: Options,
        links_max: int,
        world: World,
        faults: Faults,
    ) -> None:
        self.world = world
        self.quantum_ms = 50
        """When nothing is asked, what happens within this time happens at its end."""
        self._faults = faults
        self.links_max = links_max
        self.message_bytes_max = (64 << 10) + random.choice((1_000, _MESSAGE_BYTES, 1 << 20))
        self._numbers = itertools.count(1)
        self._cut: dict[tuple[str, str], int] = {}
        super().__init__(random, options, links_max, world.gave_up)

    def _make_system(self) -> ClusterSystem:
        return ClusterSystem(self._is_up, lambda one, other: self._cut.get((one, other), 0))

    def _furnish(self) -> None:
        self.nats = Nats(self.random, self.clock, self._faults)
        self.machines = {name: Machine(self, name) for name in MACHINES}

    def number_for(self, machine: str) -> int:
        """Of a process."""
        number = next(self._numbers)
        self.system.machines[number] = machine
        return number

    def options_of(self, machine: str) -> Options:
        """Of a node."""
        return attrs.evolve(
            self.options,
            engine=f"nats://servers:4222/{_CLUSTER}",
            engine_replicas=1,
            node=machine,
            shards=SHARDS,
            relay_listen=f"{address_of(machine)}:{PORT}",
        )

    def _is_up(self, address: str) -> bool:
        return any(each.alive and address_of(each.name) == address for each in self.live)

    @property
    def live(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.alive]

    def partition(self, one: str, other: str, until_ms: int) -> None:
        """Nothing gets from the one machine to the other."""
        self._cut[one, other] = self._cut[other, one] = until_ms
        for pipe in self.system.pipes:
            if {*pipe.machines} == {one, other}:
                pipe.slow_until_ms = max(pipe.slow_until_ms, until_ms)

    # -- life of processes --------------------------------------------------------------------

    def kill(self, node: Node, disk: Disk | None = None) -> None:
        assert isinstance(node, Member)
        node.machine.end(node)

    def begin_ended(self) -> None:
        """The servers do what is due; and with them what begins processes."""
        self.nats.run_due()

    # -- what happens to it -------------------------------------------------------------------

    def connect(self, room_bytes: int, node: Node | None = None) -> Connection:
        """Any machine is asked, and on it the edge or an owner."""
        self._connected += 1
        inner = Plain(self._connected, room_bytes)
        if node is None:
            doors = [
                member.door
                for member in self.nodes
                if isinstance(member, Member) and (member.is_edge or member.process is not None)
            ]
            doors += [each.door for each in self.live if each.edge is None]
        else:
            doors = [node.door]
        if doors:
            self.random.choice(doors).waiting.append(inner)
        else:
            inner.abandon()
        return Connection(inner, f"connection {self._connected}")

    def go_on(self, node: Node) -> None:
        self.turn(node)

    def turn(self, node: Node) -> None:
        assert isinstance(node, Member)
        if not node.client.alive:
            return
        sent_bytes = self.system.sent_bytes
        node.turned_ms = self.now_ms
        with self._within(node):
            code = node.turn()
        if self.system.sent_bytes > sent_bytes:
            self.world.spoke(node)
        if code is not None:
            self.world.say(f"process {node.number} of {node.machine_name} ends with {code}")
            self.kill(node)
            self.ended(node)

    def settle(self) -> None:
        for _ in range(1_000):
            self.begin_ended()
            busy = self.move_bytes()
            for node in [*self.nodes]:
                if node.runs and self._busy(node):
                    self.turn(node)
                    busy = True
            if not busy:
                return
        raise AssertionError("the processes do not come to rest")

    def _busy(self, node: Node) -> bool:
        assert isinstance(node, Member)
        if node.post.signalled:
            return True
        process = node.process
        if process is None:
            return False
        if self.now_ms - node.turned_ms >= _TURN_EVERY_MS:
            return True
        silence = process.loop.silence
        return (silence is None or not silence.needed) and super()._busy(node)

    def next_due(self) -> int | None:
        found = [pipe.slow_until_ms for pipe in self.system.pipes]
        if (due_ms := self.nats.next_due()) is not None:
            found.append(due_ms)
        for node in self.nodes:
            if not node.runs:
                found.append(node.paused_until_ms)
            elif node.process is not None and (due := node.process.broker.next_due()) is not None:
                found.append(due)
        soon_ms = self.now_ms + self.quantum_ms
        return max(soon_ms, min([ms for ms in found if ms > self.now_ms], default=soon_ms))
