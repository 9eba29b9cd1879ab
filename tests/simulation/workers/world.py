"""Worlds of several workers: clients, three workers of the real code, their disks, the sockets
between them, and everything that goes wrong.

    WorkersSimulation(seed).run()

A step is one action (a client asks something, time passes, something breaks), then bytes move,
workers that run have a turn, and what clients are told is compared with what they know. At the end
nothing goes wrong any more: all that was asked is answered, all shards serve within ten seconds,
all topics are read out, and when all clients have left nothing of them may be there. All choices
come from one `Random`.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from itertools import chain
from random import Random
from typing import Final

from tests.simulation.model import Violation
from tests.simulation.semq import _Log
from tests.simulation.workers.book import LEASE_MS, Book, GroupBook, Place, TopicBook
from tests.simulation.workers.caller import FORMS, Caller, Request
from tests.simulation.workers.completions import Completing
from tests.simulation.workers.follower import Follower
from tests.simulation.workers.server import Node, Server, small
from tests.simulation.workers.sockets import Pipe, Plain
from tests.simulation.workers.work import Work
from tests.wire.websocket_frames import close
from zbus.testing.simulation.machine import Options
from zbus.testing.simulation.network import ROOM_BYTES, Connection
from zbus.workers import forwarding

STEPS: Final = 250
TRACE_LINES: Final = 60
CHECKED_EVERY: Final = 50
"""Steps after which each broker counts all it has: the worlds of one broker do so in each step."""
SERVED_MS: Final = 10_000
"""After the last fault all shards serve again within this time."""


class WorkersSimulation:
    """See the module. `run` raises Violation, with what is needed to see it again."""

    dialect = "workers"  # as the command line has it
    stalled_ms = 60_000
    """Longer than anybody waits, and than it takes to notice one that takes nothing."""
    asked = 0.85  # of all steps, those in which a client asks something
    completed = 0.15  # of what is asked, what concerns several workers

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self.seed = seed
        self.steps = steps
        self.step_number = 0
        self.random = random = Random(f"{self.dialect} {seed}")
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._digest = hashlib.sha256()
        self._log = _Log()
        options, links_max = small(random)
        self._limited = links_max < 100 or options.connections_max < 100
        self._limited = self._limited or options.connections_per_address_max > 0
        self._row = random.choice((2, 5, 20, forwarding.ROW))
        self._faulty = random.random() < 0.8  # else nothing ends, and nothing is cut
        self.server = self._make_server(options, links_max)
        self.book = Book(lambda: self.server.now_ms)
        self.work = self._make_work()
        self.completing = Completing(
            random, self.work, self.book, self._answer, self.server.advance
        )
        self.callers: list[Caller] = []
        self.followers: list[Follower] = []
        self._faulted: list[tuple[int, Pipe]] = []  # whoever used it may not know yet
        self._connected = 0
        self._begin_ms = self.server.now_ms

    def _make_server(self, options: Options, links_max: int) -> Server:
        return Server(self.random, options, links_max, self._failed)

    def _make_work(self) -> Work:
        return Work(self.random, self.book, self.say, self._unsettled, self._limited)

    # -- telling ------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.step_number:4} {self.virtual_ms:>9} ms  {text}"
        self._digest.update(line.encode())
        self.trace.append(line)
        if len(self.trace) > 8 * TRACE_LINES:
            del self.trace[: -4 * TRACE_LINES]

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._digest.hexdigest()

    @property
    def virtual_ms(self) -> int:
        return self.server.now_ms - self._begin_ms

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, then everything is brought to rest and looked at."""
        logger = logging.getLogger("zbus")
        logger.addHandler(self._log)
        propagate, logger.propagate = logger.propagate, False
        row, forwarding.ROW = forwarding.ROW, self._row  # type: ignore[misc]
        try:
            self.begin()
            while self.step_number < self.steps:
                self.step()
            self.finish()
        except Exception as error:
            raise Violation(self._report(error)) from error
        finally:
            forwarding.ROW = row  # type: ignore[misc]
            logger.removeHandler(self._log)
            logger.propagate = propagate

    def _report(self, error: Exception) -> str:
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        again = f"--dialect {self.dialect} --seed {self.seed} --steps {self.steps}"
        first = f"seed {self.seed}, step {self.step_number}: {what}"
        lines = self.trace[-TRACE_LINES:]
        return "\n".join([first, *lines, f"again: python -m tests.simulation {again}"])

    def begin(self) -> None:
        """All workers run, and all topics are there."""
        self.server.begin_ended()
        caller = self._connect("ids")
        self.work.declare_first(caller)
        self._answer(caller)
        for topic in self.book.topics:
            self.work.declare(caller, topic)
        self.completing.declare(caller)
        self._answer(caller)
        self._leave()

    def step(self) -> None:
        """One action, and what follows from it."""
        self.step_number += 1
        self._act()
        self._turn()
        self._check()
        if self.step_number % CHECKED_EVERY == 0:
            self._check_brokers()

    def _check_brokers(self) -> None:
        for node in self.server.nodes:
            if node.process is not None:
                node.process.broker.check()

    def _turn(self) -> None:
        random, server = self.random, self.server
        for client in self.clients:
            client.move(random)
        for pipe in server.system.pipes:
            if pipe.slow_until_ms <= server.now_ms and random.random() < 0.8:
                pipe.move(random.choice((1, 100, 1 << 20, 1 << 20)))
        server.system.forget_the_dead()
        server.begin_ended()
        for node in random.sample(server.nodes, len(server.nodes)):
            if not node.runs or random.random() < 0.2:
                continue
            server.go_on(node)
        if random.random() < 0.7:
            server.clock.time_ms += random.choice((0, 0, 1, 5, 50))

    def _check(self) -> None:
        if self._log.found:
            raise Violation(f"a loop caught {self._log.found}")
        for caller in self.callers:
            if not caller.connection.alive:
                self._ended(caller)
        self.callers = [caller for caller in self.callers if caller.connection.alive]
        for follower in [*self.followers]:
            if not follower.connection.alive and follower.begins_ms <= self.server.now_ms:
                self._follow_again(follower)

    @property
    def clients(self) -> list[Caller | Follower]:
        return [*self.callers, *self.followers]

    def _ended(self, caller: Caller) -> None:
        """A connection is over: if anything was not answered, there has to be a reason."""
        caller.move(self.random, everything=True)
        pending = caller.pending
        self.say(f"{caller.name} is disconnected, and waited for {len(pending)}")
        if not pending or caller.killed or caller.slow or caller.refused or not caller.stays:
            return
        excused = any(self._excused(request) for request in pending)
        self.book.check(excused, f"{caller.name} was disconnected, and {pending[0].words} is open")

    def _follow_again(self, follower: Follower) -> None:
        """Its connection is over, and it goes on over another one."""
        follower.move(self.random, everything=True)
        failed = self._broke_since(follower.topic.owner, follower.asked) or self._limited
        right = failed or follower.killed or follower.slow or follower.excused
        self.book.check(right, f"{follower.name} was disconnected")
        if follower.refusals and self._limited:
            self.followers.remove(follower)
            return
        self.say(f"{follower.name} connects again")
        follower.connect(self._connection(), self._unsettled(follower.topic.owner))

    def _excused(self, request: Request) -> bool:
        """Its worker may have ended before it answered. Who knows answers by id alone is sent away
        when any worker ends that it has used."""
        moment = request.moment
        owners = [*range(len(self.server.nodes))]
        if request.caller.loose:
            moment = request.caller.began
        elif request.owner is not None:
            owners = [request.owner]
        broke = any(self._broke_since(one, moment) for one in owners)
        return broke or request.excused or self._limited

    def _broke_since(self, owner: int, moment: int) -> bool:
        """Something of this worker has."""
        return self.book.faults[owner] > moment

    def _unsettled(self, owner: int | None) -> bool:
        """Something of this worker, or of any, broke, and who used it may not know yet."""
        self._faulted = [(number, pipe) for number, pipe in self._faulted if not pipe.over]
        refusing = self.server.system.refusing
        return refusing or any(owner in (None, number) for number, _ in self._faulted)

    # -- actions ------------------------------------------------------------------------------

    def _act(self) -> None:
        random = self.random
        asking = [caller for caller in self.callers if caller.stays]
        if not asking or random.random() < 0.05:
            caller = self._connect(random.choice(FORMS))
            caller.topic = random.choice((None, None, random.choice(self.book.topics)))
            asking.append(caller)
        if len(self.followers) < 4 and random.random() < 0.02:
            self._follow()
        if random.random() < self.asked:
            caller = random.choice(asking)
            for _ in range(random.choice((1, 1, 1, 2, 5, 12))):
                completes = not self._limited and random.random() < self.completed
                (self.completing if completes else self.work).ask(caller)
            return
        actions = {self._stall: 8, self._hang_up: 3, self._reset: 6, **self._happenings()}
        random.choices([*actions], [*actions.values()])[0]()

    def _happenings(self) -> dict[Callable[[], None], int]:
        """What else may happen, and how often that is."""
        found = {self._wait: 12, self._pause: 8, self._slow: 10, self._settle_down: 4}
        if self._faulty:
            found |= {self._kill: 8, self._cut_power: 2, self._cut: 5, self._refuse: 3}
        return found

    def _connect(self, form: str, room_bytes: int = 0, node: Node | None = None) -> Caller:
        connection = self._connection(room_bytes, node)
        caller = Caller(connection, self._connected, form, self.book)
        self.callers.append(caller)
        self.say(f"{caller.name} connects")
        return caller

    def _connection(self, room_bytes: int = 0, node: Node | None = None) -> Connection:
        self._connected += 1
        usual = self.random.choice((500, 5_000, ROOM_BYTES, ROOM_BYTES))
        return self.server.connect(room_bytes or usual, node)

    def _follow(self) -> None:
        topic, other = self.random.choices(self.book.topics, k=2)
        before = other.name if self.random.random() < 0.5 else ""
        follower = Follower(len(self.followers), topic, self.book, before)
        self.followers.append(follower)
        self.say(f"{follower.name} follows {topic.name}")
        follower.connect(self._connection(), self._unsettled(topic.owner))

    def _stall(self) -> None:
        """One reads no replies, or reads them again."""
        if self.clients:
            client = self.random.choice(self.clients)
            client.reads = not client.reads
            client.slow = True
            self.say(f"{client.name} {'reads again' if client.reads else 'reads no replies'}")

    def _hang_up(self) -> None:
        """One has sent everything."""
        if self.callers:
            caller = self.random.choice(self.callers)
            opened = caller.form == "socket" and caller.stays and not caller.unsent
            if opened and self.random.random() < 0.7:
                caller.connection.send(close(1_000))  # it is told what can be told soon
            else:
                caller.connection.finish()
            caller.unsent.clear()
            caller.stays = False
            self.say(f"{caller.name} sends no more")

    def _reset(self) -> None:
        """One is gone at once."""
        if self.callers:
            caller = self.random.choice(self.callers)
            caller.connection.reset()
            caller.stays = False
            self.say(f"{caller.name} is gone")

    def _wait(self) -> None:
        ms = self.random.choice((100, 1_000, 15_000))
        self.say(f"{ms} ms pass")
        self.server.advance(ms)

    def _kill(self) -> None:
        node = self.random.choice(self.server.nodes)
        if node.process is not None:
            self.say(f"worker {node.number} is killed")
            self.counts["kills"] += 1
            self._lose([node])
            self.server.kill(node)

    def _pause(self) -> None:
        """A worker stands still, and finds itself in the future."""
        node = self.random.choice(self.server.nodes)
        if node.runs:
            ms = self.random.choice((50, 2_000, 20_000))
            node.paused_until_ms = self.server.now_ms + ms
            self.counts["pauses"] += 1
            self.say(f"worker {node.number} stands still for {ms} ms")

    def _slow(self) -> None:
        """What workers send to each other takes long."""
        if self.server.system.pipes:
            pipe = self.random.choice(self.server.system.pipes)
            ms = self.random.choice((20, 1_000, 9_000))
            pipe.slow_until_ms = self.server.now_ms + ms
            self.counts["slow sockets"] += 1
            self.say(f"a socket between workers is slow for {ms} ms")

    def _cut(self) -> None:
        """A socket between workers breaks."""
        system = self.server.system
        if not system.pipes:
            return
        pipe = self.random.choice(system.pipes)
        pipe.cut()
        owners = {one.owner for one in system.handles.values() if one.inner in pipe.ends}
        owners.add(pipe.target)
        for number in sorted(owners):
            self.book.failed(number, died=False)
            self._faulted.append((number, pipe))
        self.counts["cuts"] += 1
        self.say(f"a socket between workers {sorted(owners)} breaks")

    def _refuse(self) -> None:
        """Workers cannot be reached by others, or can be again."""
        system = self.server.system
        system.refusing = not system.refusing
        for node in self.server.nodes:
            self.book.failed(node.number, died=False)
        self.say(f"workers can{'not' if system.refusing else ''} reach each other")

    def _failed(self, node: Node) -> None:
        """It gave up by itself, which it has no reason for."""
        raise Violation(f"worker {node.number} ended by itself")

    def _cut_power(self) -> None:
        self.say("the power fails")
        self.counts["power cuts"] += 1
        self._lose(self.server.nodes)
        self.server.power_cut()
        for client in self.clients:
            client.killed = True

    def _lose(self, nodes: list[Node]) -> None:
        """These workers end: who is connected to them is disconnected."""
        system = self.server.system
        for node in nodes:
            node.begins_ms = self.server.now_ms + self.random.choice((0, 0, 100, 1_000, 5_000))
            self.book.failed(node.number, died=True)
            had = [one.inner for one in system.handles.values() if one.owner == node.number]
            for client in self.clients:
                client.killed = client.killed or client.connection.socket in had
            ends = [inner for inner in had if isinstance(inner, Plain)]
            for pipe in system.pipes:
                if pipe.ends[0] in ends or pipe.ends[1] in ends:
                    self._faulted.append((node.number, pipe))

    # -- rest ---------------------------------------------------------------------------------

    def _answer(self, caller: Caller) -> None:
        """All that one has asked is answered."""
        for _ in range(1_000):
            caller.move(self.random, everything=True)
            self.server.settle()
            caller.move(self.random, everything=True)
            self._check()
            if not caller.pending or caller not in self.callers:
                return
            self.server.advance(10)
        raise Violation(f"not answered: {caller.pending[0].words}")

    def _settle_down(self) -> None:
        """Nothing goes wrong for a while: then everything that was asked must be answered."""
        self.say("everybody waits")
        if self.server.system.refusing:
            self._refuse()
        for client in self.clients:
            client.reads = True
        for number in range(100):
            before = self._progress(), self._missing()
            self._deliver_all()
            self.server.advance(self.stalled_ms)
            self._deliver_all()
            overdue = [
                request
                for caller in self.callers
                if not self._waits_outside(caller)
                for request in caller.overdue()
            ]
            missing = self._missing()
            if not (overdue or missing):
                break
            # One request of a client may wait for another, each with a timeout.
            if before == (self._progress(), missing) or number == 99:
                for name, places in missing.items():
                    raise Violation(f"{name} did not get {places}")
                raise Violation(f"not answered: {overdue[0].words}")

    def _missing(self) -> dict[str, list[tuple[int, int]]]:
        """What followers have still to get."""
        return {
            follower.name: missing
            for follower in self.followers
            if follower.connection.alive and not self._waits_outside(follower)
            if (missing := follower.missing())
        }

    def _waits_outside(self, caller: Caller | Follower) -> bool:
        """There is no room for its connection."""
        return any(caller.connection.socket in node.door.waiting for node in self.server.nodes)

    def _progress(self) -> tuple[int, ...]:
        """Of callers, how many replies came; of followers, when they asked, and how many replies
        are still to come before the messages: one that had to wait has just asked for them."""
        replies = sum(caller.replies for caller in self.callers)
        counts = [(follower.asked, follower.heads) for follower in self.followers]
        return replies, *chain.from_iterable(counts)

    def _deliver_all(self) -> None:
        """All bytes reach whom they are for, until there are no more."""
        for _ in range(10_000):
            before = self._progress()
            for client in self.clients:
                client.move(self.random, everything=True)
            self.server.settle()
            self._check()
            outbound = any(client.connection.socket.outbound for client in self.clients)
            if before == self._progress() and not outbound:
                return
        raise Violation("the workers do not come to rest")

    def _leave(self) -> None:
        """All clients are gone."""
        for client in self.clients:
            client.connection.reset()
        self.callers.clear()
        self.followers.clear()
        self.server.settle()

    def finish(self) -> None:
        """Bring everything to rest, see that all is served, that nothing of clients is left, and
        that nothing is missing or there twice."""
        self.say("nothing goes wrong any more")
        if self.server.system.refusing:
            self._refuse()
        for node in self.server.nodes:
            node.paused_until_ms = min(node.paused_until_ms, self.server.now_ms)
        self.server.advance(SERVED_MS)
        self._serve_first()
        self._settle_down()
        self._leave()
        for _ in range(3):
            if self._limited:  # there is room when the last ones are known to be gone
                self._leave()
                self.server.advance(SERVED_MS)
            self._ask_all_over()
        self._leave()
        self.server.advance(SERVED_MS)
        self._check_left_over()
        self.server.advance(2 * LEASE_MS)
        if not self._limited:
            self.completing.judge(self._connect("ids", 1 << 24))
            self._leave()
        self._read_out()

    def _check_left_over(self) -> None:
        self.book.check(not (found := self.server.left_over()), f"left over: {found}")

    def _serve_first(self) -> None:
        """Ten seconds after the last fault all is served."""
        if not self._limited:
            self._ask_all_over()

    def _ask_all_over(self) -> None:
        """Whoever is asked, all topics are served."""
        caller = self._connect(self.random.choice(FORMS))
        for topic in self.book.topics:
            self.work.serve(caller, topic)
        self._answer(caller)
        self.book.check(caller in self.callers, f"{caller.name} is disconnected")

    def _read_out(self) -> None:
        caller = self._connect("ids", 1 << 24)
        left = self._drain(caller)
        for topic in self.book.topics:
            log = self._read(caller, topic)
            self.book.read_out(topic, log)
            self.counts["messages"] += len(log)
        self.book.read_dead(self._read(caller, self.work.dead))
        self.counts["dead letters"] += len(self.book.dead)
        for topic, group, came in left:
            self.book.drained(topic, group, came)
            self.counts["acks"] += len(group.acked)
        self._leave()
        self._check_left_over()
        self.say(f"the end: {sorted(self.counts.items())}")

    def _read(self, caller: Caller, topic: TopicBook) -> dict[Place, str]:
        """All of a log."""
        log: dict[Place, str] = {}
        before = -1
        while len(log) > before:
            before = len(log)
            self.work.read(caller, topic, log)
            self._answer(caller)
        return log

    def _drain(self, caller: Caller) -> list[tuple[TopicBook, GroupBook, list[Place]]]:
        """All that groups have left, which is acknowledged."""
        left: list[tuple[TopicBook, GroupBook, list[Place]]] = []
        for topic in self.book.topics:
            for group in topic.groups:  # one after another: a client that is sent much gets no more
                came: list[Place] = []
                before = -1
                while len(came) > before:
                    before = len(came)
                    self.work.drain(caller, topic, group, came)
                    self._answer(caller)
                left.append((topic, group, came))
        return left
