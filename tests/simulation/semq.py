"""Worlds of SEMQ: endpoints and the platform, what lies between them, and all that goes wrong.

    SemqSimulation(seed).run()

Each node is the real endpoint on a database in memory, the platform is the real broker on a
simulated disk, and frames go through wires that lose, double, overtake, delay and fall silent. A
step is one action (somebody sends, takes, or has done; something breaks), then time passes, and
everybody does what there is to do. At the end faults stop, everybody is up, and all invariants of
section 16 of the specification have to hold. All choices come from one `Random`.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from tests.semq.wires import Weather, Wires
from tests.simulation.faults import PowerCut
from tests.simulation.model import Violation
from tests.simulation.semq_book import Book
from tests.simulation.semq_faults import Faults
from tests.simulation.semq_judge import Judge
from tests.simulation.semq_links import DirectLink, Link, PlatformLink, words
from tests.simulation.semq_node import Node
from tests.simulation.semq_platform import Platform
from tests.simulation.semq_work import NODES, Work
from zbus.semq.endpoint.events import Came, Connect, Frame, Opened, Unreachable
from zbus.semq.protocol.words import PLATFORM
from zbus.testing.simulation.machine import Options

STEPS: Final = 150
TRACE_LINES: Final = 60
REST_MS: Final = 3 * 3_600_000
"""In which all has to arrive, once nothing goes wrong any more."""
RELEASE_MS: Final = 3_600_000
"""After so much of it, an operator sees that some ordered messages wait in vain."""
SILENCE_MS: Final = 12 * 60_000
"""Longer than the longest pause between two questions."""
CALM: Final = Weather()


class _Log(logging.Handler):
    """An exception that the loop caught is a bug all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self.found:
            self.found = f"{record.getMessage()}: {record.exc_info[1]!r}"


def platform_options(random: Random) -> Options:
    """Those of one world."""
    return Options(
        segment_bytes=random.choice((2_000, 20_000, 200_000)),
        cache_bytes_max=random.choice((2_000, 100_000)),
        output_bytes_max=random.choice((4_000, 64_000)),
        late=random.random() < 0.2,
        semq_store_always=random.random() < 0.3,
        semq_window=random.choice((1, 5, 100)),
        semq_rows_max=random.choice((5, 1_000, 1_000)),
        semq_nodes=",".join(NODES),  # a message for a node that nobody knows is dead
    )


class SemqSimulation:
    """See the module. `run` raises Violation, with what is needed to see it again."""

    dialect = "semq"
    work_of = Work

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self.seed = seed
        self.steps = steps
        self.step_number = 0
        self.random = Random(f"semq {seed}")
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._digest = hashlib.sha256()
        self._log = _Log()
        self.now_ms = self._begin_ms = 1_800_000_000_000
        self.wires = Wires(self.random, lambda: self.now_ms)
        self.book = Book(self.check, lambda: self.now_ms)
        self.platform = Platform(self, platform_options(self.random))
        self.nodes: dict[str, Node] = {}
        self.judge = Judge(self)
        self.work = self.work_of(self)
        self.faults = Faults(self)
        self.calm = False  # nothing goes wrong any more
        self._links = 0

    # -- telling ------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.step_number:4} {self.now_ms - self._begin_ms:>9} ms  {text}"
        self._digest.update(line.encode())
        self.trace.append(line)
        if len(self.trace) > 8 * TRACE_LINES:
            del self.trace[: -4 * TRACE_LINES]

    def tell_frame(self, source: str, target: str, frame: Frame) -> None:
        """A line of the trace for a frame that is sent."""
        self.say(f"{source} to {target}: {words(frame)}")

    def check(self, right: bool, text: str) -> None:
        if not right:
            raise Violation(text)

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._digest.hexdigest()

    @property
    def virtual_ms(self) -> int:
        return self.now_ms - self._begin_ms

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, then everything is brought to rest and looked at."""
        logger = logging.getLogger("zbus")
        logger.addHandler(self._log)
        propagate, logger.propagate = logger.propagate, False
        try:
            self.begin()
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
        again = "again: python -m tests.simulation"
        again += f" --dialect {self.dialect} --seed {self.seed} --steps {self.steps}"
        lines = self.trace[-TRACE_LINES:]
        first = f"seed {self.seed}, step {self.step_number}: {what}"
        return "\n".join([first, *lines, again])

    def begin(self) -> None:
        """Everybody is started."""
        self.platform.start()
        self.work.declare()
        for name, options in self.work.members():
            node = self.nodes[name] = Node(self, name, options)
            node.start()
        self.wires.weather = self.faults.weather()
        self.say(f"{len(self.nodes)} nodes, {self.wires.weather}")

    def step(self) -> None:
        """One action, and what follows from it."""
        self.step_number += 1
        if self.random.random() < 0.75:
            self.work.act()
        else:
            self.faults.act()
        self.advance(self.random.choice((0, 1, 5, 50, 50, 500, 500, 3_000, 20_000)))

    def finish(self) -> None:
        """Nothing goes wrong any more: all that is owed arrives, and then it is quiet."""
        self.calm = True
        self.say("nothing goes wrong any more")
        self.faults.heal()
        self.wires.weather = CALM
        end_ms = self.now_ms + REST_MS
        while not self.judge.drained():
            self.check(self.now_ms < end_ms, f"I1, I3: {self.judge.left_over()}")
            self.work.serve()
            if self.now_ms > end_ms - REST_MS + RELEASE_MS:
                self.work.release()
            self.advance(min(2_000 + (self.now_ms - end_ms + REST_MS) // 10, 60_000))
        for _ in range(2):  # what was lost of the last confirmations is asked for again
            self.work.serve()
            self.advance(40_000)
        self.judge.at_rest()
        self.judge.listen()
        self.advance(SILENCE_MS)
        self.judge.heard()
        self.judge.at_rest()

    # -- time ---------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Time passes, and everybody does what is due when it is due."""
        end_ms = self.now_ms + ms
        while True:
            self.settle()
            due_ms = self.next_due()
            if due_ms is None or due_ms > end_ms:
                break
            self.check(due_ms > self.now_ms, f"something stays due: {self._dues()}")
            self._pass(due_ms - self.now_ms)
        self._pass(end_ms - self.now_ms)
        self.settle()

    def _pass(self, ms: int) -> None:
        self.now_ms += ms
        self.platform.machine.jump(ms)

    def _dues(self) -> dict[str, int | None]:
        dues = {"wires": self.wires.next_due(), "platform": self.platform.next_due()}
        return dues | {name: node.next_due() for name, node in self.nodes.items()}

    def next_due(self) -> int | None:
        return min((due for due in self._dues().values() if due is not None), default=None)

    def settle(self) -> None:
        """What there is to do now is done."""
        for _ in range(1_000):
            moved = self.wires.run()
            for node in self.random.sample(list(self.nodes.values()), len(self.nodes)):
                moved |= node.turn()
            try:
                moved |= self.platform.turn()
            except PowerCut as cut:
                self.platform.end(str(cut))
                moved = True
            self.check(not self._log.found, f"the loop caught {self._log.found}")
            if not moved:
                return
        raise Violation("nobody comes to rest")

    # -- links --------------------------------------------------------------------------------

    def number(self) -> int:
        """Of a link; it never comes again."""
        self._links += 1
        return self._links

    def call_platform(self, node: Node) -> None:
        """A node wants a link to the platform."""
        if not self.platform.runs or self.faults.unreachable(node.name, PLATFORM):
            node.connect_ms = self.now_ms + self.random.randint(1_000, 10_000)
            return
        link = PlatformLink(node, self.number(), self.platform.machine.connect(), self.wires)
        self.platform.links.append(link)
        node.opened(link, Opened(link.number, PLATFORM))

    def call(self, node: Node, wanted: Connect) -> None:
        """A node wants a link to another one."""
        self.counts["calls"] += 1

        def answered() -> None:
            other = self.nodes.get(wanted.node)
            away = other is None or not other.runs or self.faults.unreachable(node.name, other.name)
            if away or other is None:
                node.tell(Unreachable(wanted.node))
            elif node.runs:
                mine = DirectLink(node, self.number(), other.name, self.wires, True)
                its = DirectLink(other, self.number(), node.name, self.wires, False)
                mine.other, its.other = its, mine
                opened = Opened(mine.number, wanted.node, True, wanted.ticket, wanted.key)
                node.opened(mine, opened)
                other.opened(its, Opened(its.number, "", True))

        self.wires.at(self.now_ms + self.random.randint(1, 500), answered)

    def links(self) -> list[Link]:
        """All ends that are open."""
        return [link for node in self.nodes.values() for link in node.links.values()]

    def stray_up(self, node: Node) -> Callable[[object], None]:
        """A frame that comes to the platform long after, on the link that the node has then."""

        def come(data: object) -> None:
            assert isinstance(data, bytes)
            link = node.platform_link()
            if link is not None and not self.calm:
                self.say(f"an old frame of {node.name} comes to the platform")
                link.connection.send(data)

        return come

    def stray_down(self, node: Node) -> Callable[[object], None]:
        """A frame that comes from the platform long after."""

        def come(frame: object) -> None:
            assert isinstance(frame, Frame)
            link = node.platform_link()
            if link is not None and not self.calm:
                self.say(f"an old frame of the platform comes to {node.name}: {words(frame)}")
                link.told(Came(link.number, frame))

        return come

    def stray_direct(self, name: str, peer: str, caller: bool) -> Callable[[object], None]:
        """A frame that comes from a node to another one long after."""

        def come(frame: object) -> None:
            assert isinstance(frame, Frame)
            link = self.nodes[name].direct_link(peer, caller)
            if link is not None and not self.calm:
                self.say(f"an old frame of {name} comes to {peer}: {words(frame)}")
                link.other.told(Came(link.other.number, frame))

        return come
