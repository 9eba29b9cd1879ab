"""A world of its own for each seed: clients, a broker, a disk, and everything that goes wrong.

    Simulation(seed).run()

A step is one action (a client asks something, time passes, something breaks), then bytes move,
syncs and reads that were under way may end, the broker has a turn, and everything is checked. All
choices come from one `Random`, so that a seed is always the same run.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from functools import partial
from random import Random
from urllib.parse import quote

from tests.core.cursor.armed import all_armed
from tests.records import Record
from tests.simulation.client import Client
from tests.simulation.crowd import Crowd
from tests.simulation.dialects import Dialects
from tests.simulation.faults import Faults, PowerCut
from tests.simulation.groups import GroupBook
from tests.simulation.ledger import balance
from tests.simulation.model import Book, TopicBook, Violation
from tests.simulation.recount import check_document, state_of
from tests.simulation.requests import Requests
from tests.simulation.topics import topics_of
from tests.simulation.verbs import DEAD, Held
from tests.simulation.watched import WatchedBroker
from zbus.core.patterns.dead_letters import AGAIN_MS
from zbus.core.topics.topic import Group, Pull, Session, Topic
from zbus.storage.local.reserve import TRY_EVERY
from zbus.storage.port import Verdict
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import Machine, Options
from zbus.testing.world import Reply

STEPS = 250
TRACE_LINES = 30

_HOUR_MS = 3_600_000
_MONTH_MS = 30 * 24 * _HOUR_MS


class _Log(logging.Handler):
    """An exception that the loop caught is a bug all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self.found:
            self.found = f"{record.getMessage()}: {record.exc_info[1]!r}"


class Simulation:
    """See the module. `run` raises Violation, with what is needed to see it again."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self.seed = seed
        self.steps = steps
        self.step_number = 0
        self.random = Random(seed)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._digest = hashlib.sha256()
        self._log = _Log()
        self.book = Book(topics_of(self.random))
        options = Options(
            segment_bytes=self.random.choice((2_000, 20_000, 200_000)),
            cache_bytes_max=self.random.choice((2_000, 100_000)),
            output_bytes_max=self.random.choice((4_000, 64_000)),
            tickets_per_connection_max=self.random.choice((3, 1_024)),
            late=self.random.random() < 0.3,
        )
        told = (self._delivered, self._fenced, self._moved, self.book.left)
        watched = partial(WatchedBroker, *told, self._gone, self._picked, self._undelivered)
        self.machine = Machine(self.random, options=options, kind=watched)
        self.requests = Requests(self.random, self.book, self.machine, self.say)
        self._calls = self.random.random() < 0.4
        self.dialects = Dialects(seed, self.machine, self.book, self.say)
        self.crowd = Crowd(self.random, self.machine, self.book, self.say, self.dialects)
        self._begin_ms = self.machine.now_ms

    # -- telling ------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.step_number:4} {self.machine.now_ms - self._begin_ms:>11} ms  {text}"
        self._digest.update(line.encode())
        self.trace.append(line)
        if len(self.trace) > 4 * TRACE_LINES:
            del self.trace[:-TRACE_LINES]

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._digest.hexdigest()

    @property
    def virtual_ms(self) -> int:
        return self.machine.now_ms - self._begin_ms

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, then everything is brought to rest, read out and compared."""
        logger = logging.getLogger("zbus")
        logger.addHandler(self._log)
        propagate, logger.propagate = logger.propagate, False
        try:
            with all_armed():
                self._start("stopped")
                while self.step_number < self.steps:
                    self.step()
                self.finish()
        except Exception as error:
            raise Violation(self._report(error)) from error
        finally:
            logger.removeHandler(self._log)
            logger.propagate = propagate

    def _report(self, error: Exception) -> str:
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        return "\n".join(
            [
                f"seed {self.seed}, step {self.step_number}: {what}",
                *self.trace[-TRACE_LINES:],
                f"again: python -m tests.simulation --seed {self.seed} --steps {self.steps}",
            ]
        )

    def step(self) -> None:
        """One action, and what follows from it."""
        self.step_number += 1
        self._guarded(self._step)
        self._check()

    def _step(self) -> None:
        random = self.random
        self._act()
        if self.machine.process is None:
            return
        for client in self.crowd.clients:
            client.move(random)
        self._answer_late()
        for worker in self.machine.running.workers:
            if worker.jobs and random.random() < 0.6:
                worker.run(random.randint(1, len(worker.jobs)))
        if random.random() < 0.7:
            self.machine.clock.time_ms += random.choice((0, 0, 1, 5, 50))
        self.book.now_ms = self.machine.now_ms
        self.machine.turn()
        self.book.turned(full=self.machine.disk.capacity_bytes is not None)

    def _answer_late(self) -> None:
        """Something becomes known of some partitions; now and then it is bad."""
        random, late = self.random, self.machine.running.late
        if late is None:
            return
        for lane in sorted(late.waiting):
            count = random.choice((0, 1, 1, 2, 5))
            while count > 0 and lane in late.waiting:
                fate = random.choice(list(Verdict)) if random.random() < 0.02 else None
                late.step(lane, fate, random.random() < 0.5)
                count -= 1

    def _picked(self, group: Group, records: list[Record], pull: Pull) -> None:
        self.book.picked(group, records)
        self.dialects.picked(group, records, pull)

    def _delivered(self, group: Group, records: list[Record], pull: Pull | None) -> None:
        self.book.now_ms = self.machine.now_ms  # a stop takes several turns
        if pull is None:  # told at once
            self.book.picked(group, records)
        self.book.delivered(group, records)
        if pull is not None:
            self.dialects.delivered(group, records, pull, True)

    def _undelivered(self, group: Group, records: list[Record], pull: Pull) -> None:
        self.dialects.delivered(group, records, pull, False)

    def _moved(self, group: Group, places: list[int]) -> None:
        if not self.dialects.moved(group, places):
            self.book.moved(group, places)

    def _gone(self, session: Session) -> None:
        self.dialects.left(session)

    def _fenced(self, topic: Topic) -> None:
        self.counts["fences"] += 1
        self.say(f"a partition of {topic.name} is fenced")
        self.book.fenced(topic.name)
        self.dialects.fenced(topic.name)

    def _guarded(self, work: object) -> None:
        """Do it; if the broker ended meanwhile, say how, and start it again."""
        assert callable(work)
        try:
            work()
        except PowerCut as end:
            self._crash(str(end))
            return
        if self.machine.process is None:
            self._failed()

    def _check(self) -> None:
        self.crowd.forget_the_dead()
        self.machine.broker.check()
        self.book.raise_problem()
        if self._log.found:
            raise Violation(f"the loop caught {self._log.found}")

    # -- actions ------------------------------------------------------------------------------

    def _act(self) -> None:
        random, crowd = self.random, self.crowd
        if self._calls and not self.requests.services and random.random() < 0.1:
            self._declare(None)
            return
        missing = self._undeclared()
        if missing and (len(missing) == len(self.book.topics) or random.random() < 0.1):
            self._declare(random.choice(missing))
            return
        if not crowd.asking() or random.random() < 0.04:
            crowd.connect()
        if random.random() < 0.85:
            client = random.choice(crowd.asking())
            for _ in range(random.choice((1, 1, 1, 2, 5))):
                if isinstance(client, Client):
                    self.requests.ask(client)
                else:
                    client.ask()
            return
        action = random.choices(
            (
                crowd.stall,
                crowd.hang_up,
                crowd.reset,
                self._wait,
                self._jump,
                self._restart,
                self._arm_power_cut,
                self._arm_failure,
                self._fill,
                self._settle_down,
            ),
            (6, 3, 6, 10, 2, 8, 5, 2, 4, 6),
        )[0]
        action()

    def _undeclared(self) -> list[tuple[TopicBook, GroupBook]]:
        """Groups that are not there, the first ones of a topic first."""
        missing = []
        for topic in self.book.topics.values():
            groups = [group for group in topic.groups if not group.declared]
            if topic.name != DEAD and DEAD in self.book.topics:
                groups = groups if self.book.topics[DEAD].declared else []
            missing += [(topic, group) for group in groups[:1]]
        return missing

    def _declare(self, missing: tuple[TopicBook, GroupBook] | None) -> None:
        """Declare a group that is not there, or the services. Nothing of it is left in the air:
        declared again from the beginning, a group would begin anew."""
        client = Client(self.machine.connect(), 0, multiplexed=True)
        if missing is None:
            self.requests.declare_services(client)
        else:
            self.requests.declare(client, *missing, True)
        while client.pending and self.machine.process is not None:
            self.crowd.exchange(client)
        client.connection.reset()

    def _wait(self) -> None:
        ms = self.random.choice((100, 1_000, 15_000))
        self.say(f"{ms} ms pass")
        self.crowd.advance(ms)

    def _jump(self) -> None:
        ms = self.random.choice((60_000, _HOUR_MS, _MONTH_MS))
        self.counts["jumps"] += 1
        self.say(f"the machine sleeps for {ms} ms")
        self.machine.jump(ms)

    def _restart(self) -> None:
        how = self.random.choice(("stopped", "killed", "cut"))
        if how == "stopped":
            self.say("the broker is asked to stop")
            self.book.now_ms = self.machine.now_ms
            faults = self.machine.disk.faults
            self.machine.stop()
            self._ended(how, failed=isinstance(faults, Faults) and faults.met)
        else:
            raise PowerCut(how)

    def _sudden_end(self, within: int) -> Faults:
        how = self.random.choice(("cut", "killed"))
        return Faults("power", (), self.random.randint(1, within), how)

    def _arm_power_cut(self) -> None:
        self.machine.disk.faults = self._sudden_end(12)
        self.say("the end will come in the middle of a file operation")

    def _arm_failure(self) -> None:
        name = self.random.choice(("write", "sync", "sync_directory", "read", "open"))
        self.machine.disk.faults = Faults(name, (name,), self.random.randint(1, 4))
        self.say(f"a {name} will fail")

    def _fill(self) -> None:
        disk = self.machine.disk
        if disk.capacity_bytes is None:
            disk.capacity_bytes = disk.used_bytes + self.random.choice((0, 500, 5_000))
            self.counts["full disks"] += 1
            self.say("the disk is full")
        else:
            disk.capacity_bytes = None
            self.say("there is space again")

    # -- the end of a broker, and its next beginning ------------------------------------------

    def _failed(self) -> None:
        """It gave up by itself. What a failed sync was to keep is not to be trusted any more, so
        the machine is started anew, too."""
        self.say("the broker gave up")
        self.counts["failures"] += 1
        if "JournalError" in self._log.found:
            self._log.found = ""  # a growth is written within its request, which ends with it
        self.machine.power_cut()
        self._ended("cut")

    def _crash(self, how: str) -> None:
        if how == "cut":
            self.machine.power_cut()
        elif how == "killed":
            self.machine.kill()
        self._ended(how)

    def _ended(self, how: str, failed: bool = False) -> None:
        self.counts[how] += 1
        self.say(f"the broker was {how}")
        self.crowd.clients.clear()
        disk = self.machine.disk
        unwritten = failed or disk.capacity_bytes is not None or self.machine.options.late
        disk.capacity_bytes = disk.faults = None
        self.book.raise_problem()
        self._forget(how, unwritten)
        self._start(how)

    def _forget(self, how: str, unwritten: bool = False) -> None:
        self.book.ended(how, unwritten)
        self.dialects.ended()
        for topic in self.book.topics.values():
            if topic.durability == "memory" or (topic.durability == "os" and how == "cut"):
                self.requests.forget(topic)

    def _start(self, how: str) -> None:
        """Start, perhaps with another crash in the middle of it."""
        if self.random.random() < 0.2:
            self.machine.disk.faults = self._sudden_end(40)
            try:
                self.machine.start()
            except PowerCut as end:
                again = str(end)
                self.say(f"the start was {again}")
                if again == "cut":
                    self.machine.power_cut()
                    how = "cut"
                    self._forget(how)
                else:
                    self.machine.kill()
            else:
                self.machine.disk.faults = None
        if self.machine.process is None:
            twin = self._recovered_state(self.machine.disk.kill())
            self.machine.start()
            self.book.check(
                twin == state_of(self.machine.running), "the same bytes gave another state"
            )
        self.book.now_ms = self.machine.now_ms
        self.book.recovered(self.machine.broker, how)
        self.book.raise_problem()
        self.say(f"the broker runs, with {len(self.machine.broker.topics)} topics")

    def _recovered_state(self, disk: Disk) -> list[object]:
        now_ms, options = self.machine.now_ms, self.machine.options  # a start may write
        machine = Machine(Random(0), disk=disk, now_ms=now_ms, options=options)
        machine.start()
        return state_of(machine.running)

    # -- rest ---------------------------------------------------------------------------------

    def _settle_down(self) -> None:
        """Nothing goes wrong for a while: then everything that was asked must be answered."""
        self.say("everybody waits")
        self.machine.disk.faults = None
        self.machine.disk.capacity_bytes = None
        self.crowd.wait()
        for book in self.book.topics.values():
            topic = self.machine.broker.topic(book.name)
            if not book.volatile:
                self.book.check_state(book, topic)
        self._check_documents()
        self.dialects.at_rest()
        self.book.raise_problem()

    def _check_documents(self) -> None:
        """What a query shows is what there is."""
        for topic in list(self.machine.broker.topics.values()):
            client = Client(self.machine.connect(), 0, multiplexed=True)
            found: list[Reply] = []
            client.ask("query", quote(topic.name), {}, b"", found.append)
            self.crowd.exchange(client)
            check_document(topic, found[0].body)
            client.connection.reset()

    def finish(self) -> None:
        """Bring everything to rest, read out every group, and see that nothing is missing."""
        self._guarded(self._settle_down)
        self._check()
        self.crowd.leave()
        self.dialects.drain(self.crowd)
        self.book.raise_problem()
        self._let_flow()
        for _ in range(2):  # everything is due now, and no lease is left, nor a pause after it
            self.machine.jump(2 * _MONTH_MS)
            self.crowd.settle()
        for _ in range(TRY_EVERY):  # dead letters that find no room until the reserve is there
            self.machine.jump(AGAIN_MS)
            self.crowd.settle()
        found = balance(self.book, self.machine.broker, self.crowd.settle)
        self.book.raise_problem()
        self.counts += found
        self.say(f"in the logs: {sorted(found.items())}")
        for topic in self.book.topics.values():
            for group in topic.groups:
                if group.declared:
                    self._drain(topic, group)
        self.say(f"the end: {state_of(self.machine.running)}")

    def _let_flow(self) -> None:
        """Groups are held back by nothing any more."""
        client = Client(self.machine.connect(), 0, multiplexed=True)
        for topic in self.book.topics.values():
            for group in topic.groups:
                if group.declared and not topic.volatile:
                    self.requests.let_flow(client, topic, group)
                    self.crowd.exchange(client)
        client.connection.reset()

    def _drain(self, topic: TopicBook, group: GroupBook) -> None:
        """Read and acknowledge everything that a group still has to get."""
        drained: list[Held] = []
        client = Client(self.machine.connect(), 0, multiplexed=True)
        self.crowd.clients = [client]
        while True:
            before = len(drained)
            self.requests.drain(client, topic, group, drained)
            self.crowd.deliver_all()
            self.book.raise_problem()
            if len(drained) == before:
                break
            self.requests.ack_all(client, drained[before:])
            self.crowd.deliver_all()
        got = {serial for _, _, serial, _ in drained}
        for sent in topic.sent.values():
            if not group.wants(sent) or topic.volatile:
                continue
            serial = sent.serial
            have = got if group.leased else group.given
            if not (group.may_be_done(serial) or serial in have):
                raise Violation(
                    f"message {sent.serial} at {sent.place} never came to {topic.name}/{group.name}"
                )
        self.crowd.leave()
