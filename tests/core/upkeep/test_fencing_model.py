"""A broker on an engine that answers late, in any order, with any verdict, against a plain model.

Whatever happens: every ticket ends; what was confirmed is there when all has come to rest, and what
a confirmed acknowledgement settled is not handed out again; nobody is given what nobody sent; and
two messages that were confirmed never have one offset.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.core.support import Probe, PullProbe, ranges
from tests.core.upkeep.test_fencing import LEASED, LateBox
from tests.limits import checked, examples
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.message import Message
from zbus.core.topics.outcomes import EmptyReason
from zbus.core.topics.topic import Topic
from zbus.storage.port import Verdict

ALLOWED = (Refusal.FENCED, Refusal.NOT_LEASED, Refusal.GROUP_UNKNOWN)


class Model:
    """What was asked of the broker, and what it has promised."""

    def __init__(self, random: Random, partitions: int, durability: str) -> None:
        self.random = random
        self.box = LateBox(partitions, durability)
        self.sent: dict[bytes, int] = {}  # bodies, and where they were put
        self.puts: list[tuple[Probe, list[bytes], int]] = []
        self.acks: list[tuple[Probe, int, int]] = []  # of the group g: partition and offset
        self.pulls: list[PullProbe] = []
        self.given: list[tuple[int, int]] = []  # handed out by g, and not acknowledged yet
        self.tickets: list[Probe] = []
        self.groups = 0
        self.purges: list[tuple[Probe, int]] = []  # and how many puts there were before

    @property
    def topic(self) -> Topic:
        return self.box.topic()

    def put(self) -> None:
        index = self.random.randrange(len(self.topic.partitions))
        bodies = [b"%d" % (len(self.sent) + at) for at in range(self.random.choice((1, 1, 2)))]
        self.sent.update(dict.fromkeys(bodies, index))
        probe, partition = Probe(), self.topic.partitions[index]
        if self.random.random() < 0.2:
            chunk = Chunk.of([Message(b"", body=body, once=bodies[0]) for body in bodies])
            self.box.broker.put_all(partition, probe, chunk)
        else:
            chunk = Chunk.of([Message(b"", body=body) for body in bodies])
            self.box.broker.put_all(partition, probe, chunk)
        self.puts.append((probe, bodies, index))

    def pull(self) -> None:
        self.pulls.append(self.box.pull(count=self.random.choice((1, 5)), wait=True))

    def ack(self) -> None:
        if self.given:
            index, offset = self.given.pop(self.random.randrange(len(self.given)))
            probe = self.box.ack(offset, index=index)
            self.acks.append((probe, index, offset))

    def nack(self) -> None:
        if self.given:
            index, offset = self.given.pop(self.random.randrange(len(self.given)))
            probe, group = Probe(), self.box.group()
            self.box.broker.nack(
                probe, group, self.topic.partitions[index], ranges([offset]), True, 0
            )
            self.tickets.append(probe)

    def change(self) -> None:
        """A group comes, or goes."""
        broker, topic = self.box.broker, self.topic
        names = [name for name in topic.groups if name != "g"]
        if names and self.random.random() < 0.5:
            probe = Probe()
            broker.remove_group(probe, topic.groups[self.random.choice(names)])
        else:
            self.groups += 1
            probe = self.box.declare(topic.options, f"group{self.groups}")
        self.tickets.append(probe)

    def purge(self) -> None:
        if self.random.random() < 0.2:
            probe = Probe()
            self.box.broker.purge_topic(probe, self.topic)
            self.purges.append((probe, len(self.puts)))
            self.tickets.append(probe)

    def turn(self) -> None:
        self.box.turn(self.random.choice((0, 1, 10)))
        self.look()

    def step(self) -> None:
        """Something becomes known of a lane."""
        late = self.box.late
        if late.waiting:
            lane = self.random.choice(sorted(late.waiting))
            fate = self.random.choice((*[None] * 12, *Verdict))
            late.step(lane, fate, self.random.random() < 0.5)

    def post(self) -> None:
        if self.box.posted:
            self.box.posted.popleft()()

    def look(self) -> None:
        for pull in self.pulls:
            if not pull.open:
                assert not isinstance(pull.answers[-1], BrokerError), pull.answers
                for record in pull.records:
                    assert record.message.body in self.sent
                    self.given.append((record.partition, record.offset))
        self.pulls = [pull for pull in self.pulls if pull.open]

    def run(self, steps: int) -> None:
        verbs = (
            *[self.put] * 4,
            *[self.pull] * 2,
            *[self.ack] * 2,
            *[self.turn] * 5,
            *[self.step] * 12,
            *[self.post] * 6,
            self.nack,
            self.change,
            self.purge,
        )
        for _ in range(steps):
            self.random.choice(verbs)()
        self.come_to_rest()

    def come_to_rest(self) -> None:
        box = self.box
        box.settle(1)
        for pull in self.pulls:
            if pull.open:
                box.broker._dispatch.pulls.end(pull, EmptyReason.DRAINED)
        self.look()
        box.settle(2_000)  # all leases have ended
        assert all(one.fenced is None for one in self.topic.partitions)
        tickets = [put for put, _, _ in self.puts] + [ack for ack, _, _ in self.acks]
        for ticket in tickets + self.tickets:
            (answer,) = ticket.answers
            if isinstance(answer, BrokerError):
                assert answer.refusal in ALLOWED, answer
        self.check_log()

    def check_log(self) -> None:
        box = self.box
        stored: dict[tuple[int, int], bytes] = {}
        for _ in range(2):  # what is known of the lane from before may refuse the first
            box.declare(self.topic.options, "everything", LEASED)
            box.settle(2_000)
        group = self.topic.groups["everything"]
        for index, partition in enumerate(self.topic.partitions):
            group.backlogs[index].seek(partition.first)
        for record in self.drain("everything"):
            stored[record[0]] = record[1]
        purged = max([count for purge, count in self.purges if purge.fine], default=0)
        asked = max([count for _, count in self.purges], default=0)
        for number, (put, bodies, index) in enumerate(self.puts):
            for at, body in enumerate(bodies):
                if number < purged:
                    assert body not in stored.values(), f"{body!r} was purged"
                elif put.fine and number >= asked:
                    place = (index, put.offset + at)
                    assert stored.get(place) == body, f"{place} was confirmed to be {body!r}"
        for place, body in stored.items():
            assert self.sent[body] == place[0]
        assert len(set(stored.values())) == len(stored), "a message is there twice"
        done = {(index, offset) for ack, index, offset in self.acks if ack.fine}
        again = dict(self.drain("g"))
        assert not done & set(again), "what was settled comes again"
        acked = {(index, offset) for _, index, offset in self.acks}
        for place in stored:
            assert place in again or place in acked, f"{place} is never handed out"

    def drain(self, group: str) -> list[tuple[tuple[int, int], bytes]]:
        found: list[tuple[tuple[int, int], bytes]] = []
        for _ in range(1_000):
            pull = self.box.pull(group, count=100)
            self.box.broker._tick.put_ms = 0
            self.box.settle()
            self.box.settle(1)
            if not pull.records:
                return found
            found += [((r.partition, r.offset), r.message.body) for r in pull.records]
        raise AssertionError("there is no end to it")


def world(seed: int) -> Model:
    """A model and how long it runs, all of it by the seed."""
    random = Random(seed)
    model = Model(Random(seed), random.choice((1, 3)), random.choice(("os", "disk")))
    model.run(random.randrange(20, 500))
    return model


# Worlds in which a fault was found, or a planted bug that few others find.
FOUND = (256, 285, 1578, 5424)


@pytest.mark.parametrize("seed", [*FOUND, *range(30), *checked(range(30, 100))])
def test_worlds(seed: int) -> None:
    world(seed)


@examples(40, suppress_health_check=list(HealthCheck))
@given(
    durability=st.sampled_from(("os", "disk")),
    seed=st.integers(0, 1 << 32),
    partitions=st.sampled_from((1, 3)),
    steps=st.integers(1, 300),
)
def test_any_verdict_at_any_point(durability: str, seed: int, partitions: int, steps: int) -> None:
    Model(Random(seed), partitions, durability).run(steps)
