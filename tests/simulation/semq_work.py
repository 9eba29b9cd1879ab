"""What the applications of a SEMQ world do: they send, take, have done, and go away."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.semq_book import Known, Sent
from tests.simulation.semq_node import HOLDERS, Node
from zbus.semq.endpoint.endpoint import EndpointOptions
from zbus.semq.endpoint.events import Manage
from zbus.semq.protocol.words import PLATFORM, Address
from zbus.testing.simulation.scene import request

if TYPE_CHECKING:
    from tests.simulation.semq import SemqSimulation

TOPIC: Final = "orders"
NODES: Final = ("1:10", "1:20", "2:30", "3:40", "1:50.b")
KEYS: Final = ("", "", "order,doc,new,S1", "order,doc,new,S2", "bill,doc,new,S1")
SIZES: Final = (0, 0, 0, 100, 3_000)
MESSAGES_MAX: Final = 120


class Work:
    """See the module."""

    def __init__(self, world: SemqSimulation) -> None:
        self.world = world
        self.random: Random = world.random
        self.serial = 0
        self.topic = TOPIC
        self.stranger = ""  # a node that the platform does not know from the beginning
        self.nodes = self.random.randint(2, len(NODES))
        self.direct = self.random.random() < 0.4
        self.internal = self.random.random() < 0.3
        self.topics = self.random.random() < 0.3
        self.foreign = self.random.random() < 0.2
        self.expires = self.random.random() < 0.2
        self.ordered = self.random.choice((0.0, 0.3, 0.8))
        self.ack2 = self.random.choice((0.0, 0.3, 1.0))

    def members(self) -> list[tuple[str, EndpointOptions]]:
        """The nodes of this world, and how they are set up."""
        random, found = self.random, []
        for name in NODES[: self.nodes]:
            listens = self.direct and random.random() < 0.7
            listen = (f"{name.replace(':', '-')}.example:15600",) if listens else ()
            window = random.choice((1, 3, 100))
            found.append((name, EndpointOptions(node=name, listen=listen, window=window)))
        return found

    def few(self, nodes: int) -> None:
        """So many nodes, that send nothing of their own."""
        self.nodes = nodes
        self.topics = self.foreign = False

    # -- actions ------------------------------------------------------------------------------

    def act(self) -> None:
        random = self.random
        node = random.choice(list(self.world.nodes.values()))
        what = random.choices(("submit", "burst", "take", "done", "leave"), (30, 5, 40, 30, 3))[0]
        if self.foreign and random.random() < 0.05:
            self._put_into(node.name)
        if not node.runs:
            return
        holder = random.choice(list(HOLDERS))
        if what in ("submit", "burst"):
            for _ in range(1 if what == "submit" else random.randint(2, 12)):
                self.submit(node)
        elif what == "take":
            node.take(holder, random.random() < 0.7)
        elif what == "done":
            node.have_done(holder)
        else:
            node.leave(holder)

    def submit(self, node: Node, destination: Address | None = None) -> None:
        """A message from there to anywhere."""
        random = self.random
        if self.serial >= MESSAGES_MAX:
            return
        if destination is None:
            destination = self._destination(node)
        level = random.choices((1, 2, 3), (1, 2, 7))[0]
        sent = self.message(node.name, destination, level)
        sent.ack2 = random.random() < self.ack2
        sent.ordered = level == 3 and random.random() < self.ordered
        sent.app_key = random.choice(KEYS)
        if self.expires and random.random() < 0.2:
            sent.expires_ms = node.now_ms + random.choice((1, 20_000, 3_600_000))
        more: dict[str, str | int] = {}
        if random.random() < 0.1:
            more["priority"] = random.randint(0, 2)
        if random.random() < 0.1:
            more["route"] = random.choice(("platform", "direct") if self.direct else ("platform",))
        node.submit(sent, **more)

    def message(self, source: str, destination: Address, level: int) -> Sent:
        """A new one."""
        self.serial += 1
        body = b"%d:%b" % (self.serial, b"x" * self.random.choice(SIZES))
        return Sent(self.serial, source, destination, level, body)

    def _destination(self, node: Node) -> Address:
        random = self.random
        if self.topics and random.random() < 0.2:
            return Address(PLATFORM, TOPIC)
        names = [name for name in self.world.nodes if name != node.name or self.internal]
        return Address(random.choice(names), random.choice(("", "", "", "alice")))

    def _put_into(self, name: str) -> None:
        """Somebody of another dialect puts a message into a mailbox."""
        platform = self.world.platform
        if not platform.runs or platform.machine.broker.topic(f"semq.{name}") is None:
            return
        sent = self.message(PLATFORM, Address(name), 3)
        self.world.book.submit(sent)
        reply = platform.ask(request("produce", f"semq.{name}", sent.body))
        if reply is not None and reply.status == 200:
            sent.known = Known.SURE
            self.world.say(f"{sent} was put into a mailbox")

    def release(self) -> None:
        """What waits for messages that were lost with a disk, or never had a destination."""
        for node in self.world.nodes.values():
            held = "SELECT DISTINCT node FROM tb_0030 WHERE app_state = 'HELD'"
            for (source,) in node.database.execute(held).fetchall() if node.runs else ():
                lost = not self.world.book.replaced.isdisjoint((source, node.name))
                if lost or node.name == self.stranger:
                    self.world.counts["releases"] += 1
                    node.asks += 1
                    node.tell(Manage(node.asks, "release", {"node": source}))

    def serve(self) -> None:
        """Every application takes what there is, and has done with it."""
        for node in self.world.nodes.values():
            for holder in HOLDERS if node.runs else ():
                while node.have_done(holder):
                    pass
                node.take(holder)

    # -- the topic ----------------------------------------------------------------------------

    def declare(self) -> None:
        if self.topics:
            self.world.platform.declare(TOPIC, dedupe_ms=30 * 24 * 3_600_000)

    def _stored(self) -> list[int]:
        records = self.world.platform.records(TOPIC)
        return [int(bytes(r.message.body).partition(b":")[0]) for r in records]

    def left_over(self) -> str:
        """What is owed to the topic."""
        if not self.topics:
            return ""
        stored = self._stored()
        for sent in self.world.book.sent.values():
            if sent.destination.node == PLATFORM and sent.owed and sent.serial not in stored:
                return f"{sent} is not in its topic"
        return ""

    def at_rest(self) -> None:
        """I2, of the topic."""
        stored = self._stored() if self.topics else []
        for serial in stored:
            sent = self.world.book.sent[serial]
            once = stored.count(serial) == 1 or not sent.numbered
            self.world.check(once, f"I2: {sent} is in its topic {stored.count(serial)} times")
            self.world.check(sent.known is not Known.REFUSED, f"{sent} was refused, and is stored")
