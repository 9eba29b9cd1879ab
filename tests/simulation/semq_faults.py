"""All that goes wrong in a SEMQ world, and how it is made good at the end."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.semq.wires import Weather
from tests.simulation.faults import Faults as DiskFaults
from tests.simulation.semq_links import STRAYS, PlatformLink, encode
from zbus.semq.endpoint.events import Frame

if TYPE_CHECKING:
    from tests.simulation.semq import SemqSimulation
    from tests.simulation.semq_node import Node

DOWN_MS: Final = (0, 100, 5_000, 60_000, 600_000)
JUMPS_MS: Final = (-86_400_000, -3_600_000, -60_000, -500, 500, 60_000, 3_600_000, 86_400_000)
HALF_DUPLEX: Final = 0.5


class Faults:
    """See the module."""

    def __init__(self, world: SemqSimulation) -> None:
        self.world = world
        self.random: Random = world.random
        self.blocked: set[frozenset[str]] = set()
        self._ends_in = 0  # effects, until a process ends among them
        self._kinds = self._choose()

    @property
    def restores(self) -> bool:
        """Disks are replaced by old backups."""
        return "restore" in self._kinds

    def none(self) -> None:
        """Nothing goes wrong in this world but what is asked for."""
        self._kinds.clear()

    def _choose(self) -> list[str]:
        """Which kinds of faults this world has: not all, so that each is met alone, too."""
        kinds = ("node", "node", "platform", "link", "clock", "disk", "restore")
        share = self.random.choice((0.0, 0.3, 0.6, 1.0))
        return [kind for kind in kinds if self.random.random() < share]

    def weather(self) -> Weather:
        """What becomes of frames in this world."""
        random, often = self.random, (0.0, 0.0, 0.05, 0.2)
        return Weather(
            lost=random.choice(often),
            doubled=random.choice(often),
            overtaken=random.choice(often),
            late=random.choice(often),
            late_ms=random.choice((60_000, 3_600_000)),
            latency_ms=random.choice((2, 50, 400)),
            victim=random.choice(sorted(STRAYS)),
            victim_lost=random.choice((0.0, 0.0, 0.5, 0.9)),
        )

    # -- asked by others ----------------------------------------------------------------------

    def unreachable(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.blocked

    def slow_disk(self) -> bool:
        """The platform's disk takes its time with what it is asked."""
        return not self.world.calm and self.random.random() < 0.2

    def ends_here(self) -> bool:
        """The process ends before this effect."""
        if self._ends_in:
            self._ends_in -= 1
            return not self._ends_in
        return False

    # -- actions ------------------------------------------------------------------------------

    def act(self) -> None:
        if not self._kinds:
            return
        kind = self.random.choice(self._kinds)
        node = self.random.choice(list(self.world.nodes.values()))
        if kind == "platform":
            self._platform()
        elif kind == "link":
            self._link(node)
        elif kind == "clock":
            self._clock(node)
        elif kind == "disk":
            self._disk(node)
        elif kind == "restore":
            self._restore(node)
        else:
            self._end(node)

    def _end(self, node: Node) -> None:
        if not node.runs:
            return
        random = self.random
        self.world.counts["ends of nodes"] += 1
        how = random.choice(("commit", "commit", "commit", "effect", "now"))
        if how == "commit":
            node.database.crash(random.randint(1, 8), random.random() < 0.5)
        elif how == "effect":
            self._ends_in = random.randint(1, 10)
        else:
            node.end("at once")
            self.down(node)

    def down(self, node: Node) -> None:
        """Its process has ended: it is started again some time."""
        after_ms = 0 if self.world.calm else self.random.choice(DOWN_MS)
        self.world.wires.at(self.world.now_ms + after_ms, lambda: self._up(node))

    def _up(self, node: Node) -> None:
        if not node.runs:
            node.start()

    def _restore(self, node: Node) -> None:
        if node.backup is None or self.random.random() < 0.5:
            node.backup = node.copy_of_disk(), self.world.now_ms
            node.say("is backed up")
        else:
            self.world.counts["restored disks"] += 1
            if node.runs:
                node.end("with its disk")
            node.restore()
            node.backup = None

    def _platform(self) -> None:
        platform, random = self.world.platform, self.random
        if not platform.runs:
            return
        how = random.choice(("stopped", "killed", "cut", "later", "later", "later", "full"))
        disk = platform.machine.disk
        if how == "full":
            full = disk.capacity_bytes is not None
            room = random.choice((0, 500, 5_000))
            disk.capacity_bytes = None if full else disk.used_bytes + room
            self.world.counts["full disks"] += not full
            self.world.say("there is space again" if full else "the platform's disk is full")
        elif how == "later":
            end = random.choice(("cut", "killed"))
            disk.faults = DiskFaults("power", (), random.randint(1, 12), end)
        else:
            platform.end(how)

    def platform_down(self) -> None:
        """It is started again some time."""
        after_ms = 0 if self.world.calm else self.random.choice(DOWN_MS)
        self.world.wires.at(self.world.now_ms + after_ms, self._platform_up)

    def _platform_up(self) -> None:
        if not self.world.platform.runs:
            self.world.platform.start()

    def _link(self, node: Node) -> None:
        random, world = self.random, self.world
        if random.random() < 0.2:
            pair = frozenset((node.name, random.choice((*world.nodes, "0:1"))))
            self.blocked ^= {pair}
            world.say(f"{sorted(pair)} reach each other {'not' if pair in self.blocked else ''}")
            return
        links = world.links()
        if not links:
            return
        link = random.choice(links)
        how = random.choice(("reset", "reset", "cut", "hush", "hush"))
        world.counts[f"links {how}"] += 1
        world.say(f"link {link.number} of {link.node.name} with {link.peer}: {how}")
        if how == "hush":
            link.hush(random.random() < HALF_DUPLEX)
        elif how == "cut" and isinstance(link, PlatformLink):
            fields = {"cmd": "semq_send", "src": link.node.name, "dst": "1:1"}
            data = encode(Frame(fields, b"x" * 40), False)
            link.cut(data[: random.randrange(len(data))])
        else:
            link.reset()

    def _clock(self, node: Node) -> None:
        random = self.random
        ms = random.choice(JUMPS_MS)
        if ms > 0 and random.random() < 0.3:
            self.world.say(f"the platform's clock jumps by {ms} ms")
            self.world.platform.machine.jump(ms)
            return
        node.skew_ms += ms
        node.say(f"its clock jumps by {ms} ms")

    def _disk(self, node: Node) -> None:
        if not node.runs:
            return
        if self.random.random() < 0.3:
            node.database.fail(self.random.randint(1, 5))
            return
        node.database.fill()
        node.say("its disk is full")
        self.world.counts["full disks"] += 1
        self.free_later(node)

    def free_later(self, node: Node) -> None:
        """There is room again some time."""
        database, after_ms = node.database, self.random.choice((100, 5_000, 60_000))

        def free() -> None:
            if node.database is database:
                database.free()
                node.say("its disk has room")

        self.world.wires.at(self.world.now_ms + after_ms, free)

    # -- the end of it ------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing is wrong any more. Links that are silent stay so: whoever has one finds out."""
        self.none()
        self._ends_in = 0
        self.blocked.clear()
        disk = self.world.platform.machine.disk
        disk.capacity_bytes = disk.faults = None
        self._platform_up()
        for node in self.world.nodes.values():
            node.database.free()
            self._up(node)
