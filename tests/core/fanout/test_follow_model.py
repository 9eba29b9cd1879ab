"""Followers at random against lists: nothing lost, nothing twice, in order.

The model of a topic is what was put, in lists; that of a follower is where it began and what it
wants. Commits are held and released at random, followers stall, go on, break off and come again
where they were, messages are forgotten and become due, reads answer late.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from tests.core.followers import Lines, Listener
from tests.core.support import Box, Probe, SlowJournal
from tests.limits import checked
from zbus.core.cursor.state import TopicOptions
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message

PARTITIONS = 2
FILTERS = {"": (b"", b"a.b", b"b"), "a.*": (b"a.b",), "#": (b"a.b", b"b")}


class Put(NamedTuple):
    """One message of the model, and when it was due: 0 = at once."""

    body: bytes
    tag: bytes
    due_ms: int
    expires_ms: int


class Ear:
    """A follower over all its connections."""

    def __init__(self, began: list[int], filter: str) -> None:
        self.began = began
        self.place = began
        self.filter = filter
        self.heard: list[bytes] = []  # of connections that are over
        self.now: Listener | None = None

    def lines(self) -> list[bytes]:
        return self.heard + (self.now.lines if self.now is not None else [])


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.journal = SlowJournal()
        limits = Limits(cache_bytes_max=3_000, history_bytes_max=6_000)
        self.box = Box(self.journal, limits=limits, segment_bytes_max=2_000)
        durability = self.random.choice(("os", "disk"))
        options = TopicOptions("T", partitions=PARTITIONS, durability=durability)
        self.box.declare(options, "T")
        self.settle()
        self.puts: list[list[Put]] = [[] for _ in range(PARTITIONS)]
        self.form = Lines()
        self.ears: list[Ear] = []
        self.delays = self.random.random() < 0.5

    def settle(self) -> None:
        for _ in range(10_000):
            self.journal.release()
            self.journal.answer()
            self.box.turn()
            due_ms = self.box.broker.next_due()
            busy = self.journal.waiting or self.journal.held
            if not busy and (due_ms is None or due_ms > self.box.now_ms):
                return
        raise AssertionError("it does not come to rest")

    def put(self) -> None:
        random, box = self.random, self.box
        index = random.randrange(PARTITIONS)
        partition = box.partition(index=index)
        together = random.random() < 0.3
        messages = []
        for _ in range(random.choice((1, 1, 3, 40))):
            number = len(self.puts[index])
            due_ms = expires_ms = 0
            if self.delays and random.random() < 0.3:
                due_ms = box.now_ms + random.randrange(1, 50)
                if random.random() < 0.2:
                    expires_ms = due_ms - 1
            tag = random.choice((b"", b"a.b", b"b"))
            self.puts[index].append(Put(b"%d.%d" % (index, number), tag, due_ms, expires_ms))
            body = self.puts[index][-1].body
            if together or due_ms or expires_ms:
                message = Message(b"", tag, body=body, due_ms=due_ms, expires_ms=expires_ms)
                messages.append(message)
            if messages and not together:
                box.broker.put_all(partition, Probe(), Chunk.of(messages))
                messages = []
            elif not messages:
                box.broker.put(partition, Probe(), make_row(b"", b"", body, tag))
        if messages:
            box.broker.put_all(partition, Probe(), Chunk.of(messages))

    def connect(self, ear: Ear) -> None:
        room = self.random.choice((0, 50, 1_000, 1 << 30))
        ear.now = Listener(self.box.session(), room)
        partitions = self.box.topic().partitions
        self.box.broker.follow(ear.now, self.form, partitions, ear.filter, ear.place.copy())

    def follow(self) -> None:
        partitions = self.box.topic().partitions
        began = [self.random.randint(0, partition.visible) for partition in partitions]
        self.ears.append(ear := Ear(began, self.random.choice(list(FILTERS))))
        self.connect(ear)

    def leave(self) -> None:
        """Its connection breaks; it has taken all that it was told, and comes again."""
        ear = self.random.choice(self.ears)
        if ear.now is not None:
            self.box.broker.leave(ear.now.session)
            if ear.now.lines:
                ear.place = ear.now.place
            ear.heard += ear.now.lines
            ear.now = None
        elif not self.delays:  # what becomes due while it is away is not told
            self.connect(ear)

    def resume(self) -> None:
        ear = self.random.choice(self.ears)
        if ear.now is not None and ear.now.session.stalled:
            ear.now.room = self.random.choice((0, 300, 1 << 30))
            self.box.broker.resume(ear.now.session)

    def turn(self) -> None:
        self.box.turn(self.random.choice((0, 0, 1, 20)))

    def release(self) -> None:
        self.journal.release(self.random.randint(1, 3))

    def answer(self) -> None:
        self.journal.answer()

    def finish(self) -> None:
        """Everybody takes everything."""
        for ear in self.ears:
            if ear.now is None and not self.delays:
                self.connect(ear)
        self.box.turn(1_000)
        for _ in range(100):
            self.settle()
            stalled = [e.now for e in self.ears if e.now is not None and e.now.session.stalled]
            for listener in stalled:
                listener.room = 1 << 30
                self.box.broker.resume(listener.session)
            if not stalled:
                return
        raise AssertionError("somebody does not take what it is told")

    def check(self) -> None:
        for ear in self.ears:
            told: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
            for line in ear.lines():
                where, body, _ = line.split(b" ")
                assert where.replace(b":", b".") == body
                told[int(body[:1])].append(body)
            for index, bodies in enumerate(told):
                put = self.puts[index]
                good = [m for m in put if m.tag in FILTERS[ear.filter] and not m.expires_ms]
                before = {message.body for message in put[: ear.began[index]]}
                wanted = [message for message in good if message.body not in before]
                # Of what was put before it began, it is told what becomes due.
                later = {message.body for message in good if message.due_ms} & before
                assert len(bodies) == len(set(bodies)), "something was told twice"
                if ear.now is not None:
                    assert set(bodies) - later == {message.body for message in wanted}
                plain = [message.body for message in wanted if not message.due_ms]
                in_order = [body for body in bodies if body in set(plain)]
                assert in_order == plain[: len(in_order)]


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """So that there are many, in memory and on their way out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zbus.core.log.GROWS_TO", Size(bytes_max=1_000, count_max=8))
        yield


@pytest.mark.parametrize("seed", [*range(12), *checked(range(12, 40))])
def test_followers_against_lists(seed: int) -> None:
    world = World(seed)
    steps = [world.put, world.follow, world.leave, world.resume, world.turn]
    steps += [world.release, world.answer, world.put, world.turn]
    world.put()
    world.follow()
    for _ in range(150):
        world.random.choice(steps)()
    world.finish()
    world.check()
    world.box.broker.check()
