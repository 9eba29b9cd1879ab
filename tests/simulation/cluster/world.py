"""Worlds of a cluster: clients, three machines with an edge, a spare and owners of the real code,
streams of simulated NATS servers, the sockets between all of them, and everything that goes wrong.

    ClusterSimulation(seed).run()

Clients and their books are those of the worlds of workers. What is different: a shard moves from
process to process, so more may be refused for a while, and two processes may take themselves for
its owner. What must hold beside the books:

(a) Who has a shard says nothing any more once a later owner delivers; in a stream nothing of an
    earlier owner comes behind a later one's claim.
(b) What was confirmed is there, once and in order, and what was acknowledged does not come again.
(c) Two owners never deliver at once, and a lease that is stored goes on with the next owner.
(d) Each request of a client ends once: with an answer, or with its connection.
(e) Ten seconds after the last fault each machine that lives serves all shards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from tests.simulation.cluster.server import MACHINES, SHARDS, ClusterServer, Member
from tests.simulation.workers.book import LEASE_MS
from tests.simulation.workers.caller import FORMS, Request
from tests.simulation.workers.server import Node
from tests.simulation.workers.work import Work
from tests.simulation.workers.world import SERVED_MS, WorkersSimulation
from tests.storage.jetstream.cluster import Faults
from zbus.storage.jetstream.lane import EPOCH
from zbus.testing.simulation.machine import Options
from zbus.testing.world import Reply
from zbus.workers.seats import NO_SHARD

STEPS: Final = 100

_PASSES_MS: Final = (0, 1, 5, 50, 200, 500)


class ClusterWork(Work):
    """What clients ask. `troubled`: whether something may be refused that was asked at this
    moment."""

    timeouts_ms = (0, 0, 10, 1_000, 4_000)
    sizes = (0, 10, 10, 100, 700, 3_000, 9_000)
    troubled: Callable[[int], bool]

    def is_missing(self, reply: Reply) -> bool:
        return reply.status == 503

    def may_be_missing(self, request: Request) -> bool:
        return request.excused or self.troubled(request.moment)


class ClusterSimulation(WorkersSimulation):
    """See the module."""

    dialect = "cluster"
    stalled_ms = 6_000
    asked = 0.6
    completed = 0.0
    server: ClusterServer

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self._unrest = 0  # the moment of the newest fault
        self._calm_ms = 0  # when the last one is over, and what follows from it
        self._newest: dict[int, int] = {}  # epochs of those that have delivered, by shard
        self._checked: dict[str, tuple[int, int]] = {}  # of streams: how many messages, and epoch
        super().__init__(seed, steps)

    def _make_server(self, options: Options, links_max: int) -> ClusterServer:
        options = attrs.evolve(options, connections_max=10_000, connections_per_address_max=0)
        self._limited = False
        faults = Faults() if self.random.random() < 0.5 else Faults.none()
        return ClusterServer(self.random, options, 1 << 20, self, faults)

    def _make_work(self) -> Work:
        work = ClusterWork(self.random, self.book, self.say, self._unsettled, False)
        for topic in self.book.topics:
            for group in topic.groups:
                group.lasting = group.dies  # a delivery that counts is stored first
        work.troubled = lambda moment: self._unrest > moment
        return work

    # -- what the processes do ----------------------------------------------------------------

    def moved(self, member: Member) -> None:
        self.say(f"shard {member.shard}: epoch {member.epoch}, on {member.machine_name}")
        self.book.failed(member.shard, died=True)

    def spoke(self, member: Member) -> None:
        if member.shard == NO_SHARD or member.process is None:
            return
        silence = member.process.loop.silence
        if silence is not None and not silence.gave_up:
            newest = self._newest.get(member.shard, 0)
            text = f"epoch {member.epoch} of shard {member.shard} speaks after epoch {newest}"
            self.book.check(member.epoch >= newest, text)

    def gave_up(self, node: Node) -> None:
        self.counts["ended by themselves"] += 1

    def _check(self) -> None:
        super()._check()
        self._check_owners()

    def _check_owners(self) -> None:
        """At most one delivers."""
        found: dict[int, Member] = {}
        for member in self.server.nodes:
            assert isinstance(member, Member)
            owned = member.ownership
            if owned is None or member.process is None or not owned.is_certain or owned.is_quiet:
                continue
            other = found.setdefault(member.shard, member)
            text = f"epochs {other.epoch} and {member.epoch} of shard {member.shard} deliver"
            self.book.check(other is member, text)
            if self._newest.get(member.shard, 0) < member.epoch:
                self._newest[member.shard] = member.epoch
                self.moved(member)
        for name, stream in self.server.nats.streams.items():
            at, epoch = self._checked.get(name, (0, 0))
            for stored in stream.log[at:]:
                text = f"{name}: {stored.subject} of epoch {stored.headers[EPOCH]} behind {epoch}"
                self.book.check(int(stored.headers[EPOCH]) >= epoch, text)
                epoch = int(stored.headers[EPOCH])
            self._checked[name] = len(stream.log), epoch

    # -- what may be refused ------------------------------------------------------------------

    def _fault(self, ms: int, text: str) -> None:
        """Something goes wrong for so long."""
        self.say(text)
        self.counts["faults"] += 1
        self._unrest = self.book.next()
        self._calm_ms = max(self._calm_ms, self.server.now_ms + ms + SERVED_MS)
        for shard in range(SHARDS):
            self.book.failed(shard, died=False)

    def _unsettled(self, owner: int | None) -> bool:
        return self.server.now_ms < self._calm_ms

    def _broke_since(self, owner: int, moment: int) -> bool:
        return self._unrest > moment

    # -- actions ------------------------------------------------------------------------------

    def _turn(self) -> None:
        super()._turn()
        self._check_owners()
        self.server.clock.time_ms += self.random.choice(_PASSES_MS)

    def _happenings(self) -> dict[Callable[[], None], int]:
        found = {self._wait: 15, self._slow: 4, self._settle_down: 1}
        if self._faulty:
            found |= {
                self._kill: 10,
                self._kill_machine: 4,
                self._pause: 10,
                self._cut: 4,
                self._partition: 6,
                self._cut_off: 6,
                self._deafen: 8,
                self._elect: 8,
                self._hamper: 10,
            }
        return found

    def _wait(self) -> None:
        ms = self.random.choice((500, 2_000, 4_000))
        self.say(f"{ms} ms pass")
        self._pass(ms)

    def _pass(self, ms: int) -> None:
        """Time passes, and it is looked at what happens."""
        end_ms = self.server.now_ms + ms
        while self.server.now_ms < end_ms:
            self.server.advance(min(100, end_ms - self.server.now_ms))
            self._check_owners()

    def _until(self, *choices: int) -> tuple[int, int]:
        """How long something lasts, and until when."""
        ms = self.random.choice(choices)
        return ms, self.server.now_ms + ms

    def _any_process(self) -> Member | None:
        """None: those of the only machine that lives were killed, and have not begun again."""
        if not self.server.nodes:
            return None
        node = self.random.choice(self.server.nodes)
        assert isinstance(node, Member)
        return node

    def _kill(self) -> None:
        node = self._any_process()
        if node is None:
            return
        kind = "the edge" if node.is_edge else f"the owner of {node.shard}"
        self._fault(0, f"process {node.number} of {node.machine_name} ({kind}) is killed")
        self.counts["kills"] += 1
        self.server.kill(node)

    def _kill_machine(self) -> None:
        machine = self.server.machines[self.random.choice(MACHINES)]
        if not machine.alive:
            self._fault(0, f"machine {machine.name} is back")
            machine.begin()
        elif len(self.server.live) > 1:
            self.counts["machines lost"] += 1
            self._fault(0, f"machine {machine.name} is lost")
            machine.die()

    def _pause(self) -> None:
        node = self._any_process()
        if node is not None and node.runs:
            ms, node.paused_until_ms = self._until(50, 1_000, 3_000, 6_000)
            self.counts["pauses"] += 1
            self._fault(ms, f"process {node.number} stands still for {ms} ms")

    def _slow(self) -> None:
        pipes = self.server.system.pipes
        if pipes:
            pipe = self.random.choice(pipes)
            ms, pipe.slow_until_ms = self._until(20, 500, 3_000)
            self._fault(ms, f"a socket between {pipe.machines} is slow for {ms} ms")

    def _cut(self) -> None:
        pipes = self.server.system.pipes
        if pipes:
            pipe = self.random.choice(pipes)
            pipe.cut()
            self.counts["cuts"] += 1
            self._fault(0, f"a socket between {pipe.machines} breaks")

    def _partition(self) -> None:
        one, other = self.random.sample(MACHINES, 2)
        ms, until_ms = self._until(500, 2_000, 8_000)
        self.counts["partitions"] += 1
        self.server.partition(one, other, until_ms)
        self._fault(ms, f"nothing gets from {one} to {other} for {ms} ms")

    def _cut_off(self) -> None:
        name = self.random.choice(MACHINES)
        ms, _ = self._until(300, 2_000, 5_000)
        nats = self.server.nats
        nats.cut_until_ms[name] = nats.now_ms + ms
        self.counts["partitions"] += 1
        self._fault(ms, f"{name} is cut off from the servers for {ms} ms")

    def _deafen(self) -> None:
        one, other = self.random.choices(MACHINES, k=2)
        others = self.random.choice(([other], MACHINES))
        ms, _ = self._until(1_000, 5_000, 8_000)
        nats = self.server.nats
        for other in others:
            nats.deaf_until_ms[one, other] = nats.now_ms + ms
        self._fault(ms, f"{others} do not hear {one} for {ms} ms")

    def _elect(self) -> None:
        self.counts["elections"] += 1
        self._fail_stream(Faults(lost=0.5, unanswered=0.5, away=1, behind=0.5), "has no leader")

    def _hamper(self) -> None:
        faults = (
            Faults(lost=0.5, unanswered=0, later=0),
            Faults(lost=0, unanswered=0.7, later=0.2),
            Faults(lost=0, unanswered=0, later=0.7),
            Faults(behind=1, damaged=0.2),
            Faults(slow_ms=1_500),
        )
        self._fail_stream(self.random.choice(faults), "fails")

    def _fail_stream(self, faults: Faults, text: str) -> None:
        """One stream, or all."""
        nats = self.server.nats
        name = self.random.choice([*nats.streams, ""])
        ms, _ = self._until(100, 1_000, 4_000)
        self._fault(ms, f"{name or 'each stream'} {text} for {ms} ms: {faults}")
        streams = [nats.streams[name]] if name else [*nats.streams.values()]
        for stream in streams:
            stream.faults = faults

            def mend(stream: object = stream) -> None:
                if stream.faults is faults:  # type: ignore[attr-defined]
                    stream.faults = nats.faults  # type: ignore[attr-defined]

            nats.after(ms, mend)

    # -- the run ------------------------------------------------------------------------------

    def begin(self) -> None:
        self.server.nats.faults, usual = Faults.none(), self.server.nats.faults
        for machine in self.server.machines.values():
            machine.begin()
        while len(self._newest) < SHARDS:
            self._pass(500)
            self.book.check(self.virtual_ms < SERVED_MS, "the shards have no owners")
        super().begin()
        self._set_faults(usual)

    def _set_faults(self, faults: Faults) -> None:
        nats = self.server.nats
        nats.faults = faults
        for stream in nats.streams.values():
            stream.faults = faults

    def _waits_outside(self, caller: object) -> bool:
        return False

    def _settle_down(self) -> None:
        self._heal()
        super()._settle_down()

    def _heal(self) -> None:
        """Nothing goes wrong any more, but for what is always so."""
        server, now_ms = self.server, self.server.now_ms
        server.nats.cut_until_ms.clear()
        server.nats.deaf_until_ms.clear()
        for one in MACHINES:
            for other in MACHINES:
                server.partition(one, other, now_ms)
        for pipe in server.system.pipes:
            pipe.slow_until_ms = now_ms
        for node in server.nodes:
            node.paused_until_ms = min(node.paused_until_ms, now_ms)
        self._set_faults(server.nats.faults)
        self._fault(0, "nothing goes wrong any more")

    def finish(self) -> None:
        """Each machine that lives serves all shards ten seconds later, and all that was promised is
        there."""
        self._set_faults(Faults.none())
        self._heal()
        self._pass(SERVED_MS)
        self.server.quantum_ms = 100
        self._calm_ms = self.server.now_ms
        for machine in self.server.live:
            self._serve_at(machine.name)
        self._settle_down()
        self._leave()
        self._pass(LEASE_MS + 1_000)
        self._calm_ms = self.server.now_ms
        self._read_out()

    def _check_left_over(self) -> None:
        for pipe in self.server.system.pipes:
            if pipe.silent:  # the system asks the other machine once a minute
                pipe.cut()
        self.server.settle()
        super()._check_left_over()

    def _serve_at(self, name: str) -> None:
        """All shards, whoever has them."""
        machine = self.server.machines[name]
        self.book.check(machine.edge is not None, f"{name} has no edge")
        caller = self._connect(self.random.choice(FORMS), node=machine.edge)
        for topic in self.book.topics:
            self.work.serve(caller, topic)
        self._answer(caller)
        self.book.check(caller in self.callers, f"{caller.name} is disconnected")
