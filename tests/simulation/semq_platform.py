"""The platform of a SEMQ world: the real broker on a simulated machine, and its mailboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.records import Record, records_of
from tests.simulation.semq_links import PlatformLink
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.model.message_state import MessageState
from zbus.core.topics.outcomes import Slice
from zbus.core.topics.topic import Partition
from zbus.storage.port import Verdict
from zbus.testing.simulation.machine import Machine, Options
from zbus.testing.simulation.scene import request
from zbus.testing.world import Reply

if TYPE_CHECKING:
    from tests.simulation.semq import SemqSimulation

LOOK_MS = 5_000
"""A broker that has nothing to do looks after its connections so often, here."""

GROUP = "semq"


class Mailbox:
    """What was seen of the topic of a node, since the broker was started."""

    def __init__(self) -> None:
        self.end = -1  # offsets below it were looked at; -1 = none were
        self.open: dict[int, Record] = {}  # and are not finished


class Platform:
    """See the module."""

    def __init__(self, world: SemqSimulation, options: Options) -> None:
        self.world = world
        self.machine = Machine(world.random, now_ms=world.now_ms, options=options)
        self.links: list[PlatformLink] = []
        self.mailboxes: dict[str, Mailbox] = {}
        self._lag_ms: int | None = None  # when the disk has done what it is doing
        self._looked_ms = 0

    @property
    def runs(self) -> bool:
        return self.machine.process is not None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        self.machine.start()
        self.mailboxes.clear()
        self.world.say(f"the platform runs, with {sorted(self.machine.broker.topics)}")

    def end(self, how: str) -> None:
        """It ends; it was stopped, killed, or the power failed."""
        if how == "stopped":
            self.machine.disk.faults = None
            self.machine.stop()
        elif how == "killed":
            self.machine.kill()
        else:
            self.machine.power_cut()
        self.machine.disk.capacity_bytes = self.machine.disk.faults = None
        self.world.counts[f"platform {how}"] += 1
        self.world.say(f"the platform was {how}")
        self._lag_ms = None
        for link in self.links:
            link.poll()
            if not link.ended:
                link.connection.reset()
                link.poll()
        self.links.clear()
        self.world.faults.platform_down()

    # -- what it does -------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """In the world's time."""
        if not self.runs:
            return None
        due_ms = self.machine.broker.next_due()
        ahead_ms = self.machine.now_ms - self.world.now_ms
        dues = [self._looked_ms + LOOK_MS]
        dues += [] if due_ms is None else [due_ms - ahead_ms]
        dues += [] if self._lag_ms is None else [self._lag_ms]
        return min(dues)

    def turn(self) -> bool:
        """What there is to do now. Says whether there was anything."""
        process, now_ms = self.machine.process, self.world.now_ms
        if process is None:
            return False
        lags = self._lag_ms is not None and self._lag_ms > now_ms
        looks = self._looked_ms + LOOK_MS <= now_ms
        ready = process.ready.wait(0, 1) or process.post.signalled or process.is_due()
        if not (ready or looks or (process.works and not lags)):
            self._lag_ms = self._lag_ms if lags else None
            return False
        self._looked_ms = now_ms
        if self._lag_ms is None and self.world.faults.slow_disk():
            self._lag_ms, lags = now_ms + self.world.random.randint(1, 30), True
        self._answer_late()
        if lags:
            self.machine.turn()
        else:
            self._lag_ms = None
            self.machine.settle()
        if self.machine.process is None:
            self.world.say("the platform gave up")
            self.end("cut")
            return True
        for link in self.links:
            link.poll()
        self.links = [link for link in self.links if not link.ended]
        self.look()
        return True

    def _answer_late(self) -> None:
        """What became of some writes is known; now and then it is bad."""
        random, late = self.world.random, self.machine.running.late
        if late is None or self.world.calm:
            return
        for lane in sorted(late.waiting):
            fate = random.choice(list(Verdict)) if random.random() < 0.02 else None
            late.step(lane, fate, random.random() < 0.5)

    def ask(self, data: bytes) -> Reply | None:
        """Somebody else asks it something, and waits. None if it ended meanwhile."""
        self.machine.disk.faults = None
        connection = self.machine.connect()
        connection.send(data)
        self.machine.settle()
        replies = connection.replies()
        connection.reset()
        self.world.check(len(replies) == 1 or not self.runs, f"{data[:80]!r} is told {replies}")
        return replies[0] if replies else None

    def declare(self, topic: str, dedupe_ms: int) -> None:
        reply = self.ask(request("declare", topic, durability="disk", dedupe_ms=dedupe_ms))
        assert reply is not None
        assert reply.status == 200, reply

    # -- mailboxes ----------------------------------------------------------------------------

    def look(self) -> None:
        """I5: what leaves a mailbox is on the disk of its node."""
        for name in self.world.nodes:
            partition = self._partition(name)
            if partition is None:
                continue
            box = self.mailboxes.setdefault(name, Mailbox())
            if box.end < 0:
                box.end = partition.first
            for record in self.read(partition, box.end, partition.visible):
                box.open[record.offset] = record
            box.end = max(box.end, partition.visible)
            group = partition.topic.group(GROUP)
            self.world.check(group is not None, f"the mailbox of {name} has no group")
            assert group is not None
            gone = [o for o in box.open if group.backlogs[0].life(o) is MessageState.DONE]
            for offset in gone:
                self.world.judge.left_mailbox(name, box.open.pop(offset))

    def waiting(self, name: str) -> list[int]:
        """Offsets of a mailbox that are not finished."""
        partition = self._partition(name)
        if partition is None:
            return []
        group = partition.topic.group(GROUP)
        assert group is not None
        backlog = group.backlogs[0]
        offsets = range(max(partition.first, backlog.floor()), partition.end)
        return [offset for offset in offsets if backlog.life(offset) is not MessageState.DONE]

    def _partition(self, name: str) -> Partition | None:
        topic = self.machine.broker.topic(f"semq.{name}")
        return None if topic is None else topic.partitions[0]

    def has(self, mid: str) -> bool:
        """The topic that nodes send to has it; nobody knows while the platform does not run, or
        reads it again after a fault."""
        topic = self.machine.broker.topic(self.world.work.topic) if self.runs else None
        if topic is None or any(each.fenced is not None for each in topic.partitions):
            return True
        return any(self.mid_of(record) == mid for record in self.records(topic.name))

    @staticmethod
    def mid_of(record: Record) -> str:
        """Of what came from a node; empty if it did not."""
        text = bytes(record.message.id).decode()
        return text if text.count("/") == 5 else ""

    def records(self, topic: str) -> list[Record]:
        """All messages of a topic."""
        found = self.machine.broker.topic(topic)
        assert found is not None, topic
        return [
            record
            for partition in found.partitions
            for record in self.read(partition, partition.first, partition.visible)
        ]

    def read(self, partition: Partition, start: int, end: int) -> list[Record]:
        found: list[Record] = []
        disk = self.machine.disk
        faults, disk.faults = disk.faults, None  # whoever looks from outside disturbs nothing
        for offset in range(start, end):
            answers: list[tuple[Chunk, int] | BrokerError] = []
            partition.log.get(offset, answers.append)
            if not answers:
                self.machine.settle()
            (answer,) = answers
            if isinstance(answer, BrokerError) and offset < partition.first:
                continue  # it was finished, and is forgotten already
            assert not isinstance(answer, BrokerError), answer
            chunk, at = answer
            found += records_of([Slice(partition.index, chunk, at, at + 1)])
        disk.faults = faults
        return found
