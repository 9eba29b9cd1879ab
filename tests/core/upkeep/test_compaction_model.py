"""Compaction against a dictionary: puts, tombstones, groups of each kind, full disks, crashes and
restarts at any moment. The newest value of each key is always found, and each group gets it."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.core.support import Box, CrashJournal, Probe, cool
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.message import Message
from zbus.core.topics.outcomes import Peeked
from zbus.core.upkeep.compaction import PAUSE_MS
from zbus.storage.port import Lane

OPTIONS = TopicOptions("T", compact=True, compact_tombstone_ms=10**12)
GROUPS = {
    "plain": GroupOptions(),
    "leases": GroupOptions(lease=True, lease_ms=400),
    "retains": GroupOptions(lease=True, lease_ms=400, retain=True),
    "filters": GroupOptions(lease=True, lease_ms=400, filter="even"),
    "in-order": GroupOptions(lease=True, lease_ms=400, order="key"),
    "slow": GroupOptions(lease=True, lease_ms=400),
}
STEPS = 250


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.segment_bytes = self.random.choice((1_500, 3_000, 6_000))
        self.keys = self.random.choice((3, 10, 40))
        self.box = Box(CrashJournal(), segment_bytes_max=self.segment_bytes)
        self.box.declare(OPTIONS)
        for name, options in GROUPS.items():
            self.box.declare(OPTIONS, name, options)
        self.box.settle()
        self.serial = 0
        self.newest: dict[int, int] = {}  # by key, the serial number of what was put last
        self.open: list[tuple[int, int, Probe]] = []  # key, serial and ticket of puts
        self.given: dict[str, set[tuple[int, int]]] = {name: set() for name in GROUPS}
        self.highest: dict[tuple[str, int], int] = {}

    @property
    def journal(self) -> CrashJournal:
        assert isinstance(self.box.journal, CrashJournal)
        return self.box.journal

    # -- what may happen ---------------------------------------------------------------------

    def put(self) -> None:
        key = int(self.keys * self.random.random() ** 4)  # many of them rest
        self.serial += 1
        dead = self.random.random() < 0.1
        body = b"" if dead else b"%d %b" % (self.serial, b"x" * self.random.randrange(60))
        tag = b"even" if key % 2 == 0 else b"odd"
        lines = b"serial: %d\r\n" % self.serial
        message = Message(b"", key=b"%d" % key, tag=tag, body=body, headers=lines)
        probe = Probe()
        self.box.broker.put_all(self.box.partition(), probe, Chunk.of([message]))
        self.open.append((key, self.serial, probe))

    def read(self, name: str) -> None:
        if name == "slow" and self.random.random() < 0.9:
            return
        probe = self.box.pull(name, self.random.randrange(1, 60))
        self.box.turn()
        for record in probe.records:
            serial = int(record.message.headers.split(b"\r\n")[0].removeprefix(b"serial: "))
            key = int(record.message.key)
            self.given[name].add((key, serial))
            if name in ("plain", "in-order"):
                place = name, key
                assert self.highest.get(place, 0) <= serial, "a key went back"
                self.highest[place] = serial
        if GROUPS[name].lease and self.random.random() < 0.1:
            # All of it comes again, in order.
            self.highest = {at: top for at, top in self.highest.items() if at[0] != name}
        elif GROUPS[name].lease:
            for record in probe.records:
                if name != "in-order" and self.random.random() < 0.1:
                    later_ms = self.box.now_ms + 300 if self.random.random() < 0.3 else 0
                    front = self.random.random() < 0.5
                    self.box.nack(record.offset, front=front, due_ms=later_ms, group=name)
                else:
                    self.box.ack(record.offset, name)

    def crash(self) -> None:
        """A power cut keeps what was synced, and of the rest any number of batches."""
        random = self.random

        def kept(lane: Lane, unsynced: int) -> int:
            return random.randrange(unsynced + 1)

        self.settle_puts()
        journal = self.journal.crash(kept)
        self.box = Box(journal, now_ms=self.box.now_ms + 1, segment_bytes_max=self.segment_bytes)
        self.highest.clear()  # deliveries may come again
        may_be: dict[int, set[int]] = {}
        for key, serial, _ in self.open:
            may_be.setdefault(key, {self.newest.get(key, 0)}).add(serial)
        self.open.clear()
        for key, serials in may_be.items():
            found = self.find(key, tombstones=True)
            assert found in serials, (key, found, serials)
            self.newest[key] = found

    # -- what has to hold ----------------------------------------------------------------------

    def settle_puts(self) -> None:
        still = []
        for key, serial, probe in self.open:
            if probe.open:
                still.append((key, serial, probe))
            elif not isinstance(probe.answers[-1], BrokerError):
                self.newest[key] = max(serial, self.newest.get(key, 0))
        self.open = still

    def find(self, key: int, tombstones: bool = False) -> int:
        """The serial number of the newest value; 0 = there is none. A tombstone's is found with the
        table, which a client cannot see."""
        probe, name, partition = Probe(), b"%d" % key, self.box.partition()
        self.box.broker.get(probe, partition, name)
        for _ in range(2_000):
            if not probe.open:
                break
            self.box.settle(PAUSE_MS)
        answer = probe.answers[-1]
        if isinstance(answer, BrokerError):
            assert answer.refusal is Refusal.OFFSET_UNKNOWN, answer
            assert partition.newest is not None
            offset = partition.newest.find(name)
            if not tombstones or offset is None:
                return 0
            answer = self.peek(offset)
        assert isinstance(answer, Peeked)
        chunk, at = answer.pieces[0].chunk, answer.pieces[0].start
        return int(chunk.headers[at].split(b"\r\n")[0].removeprefix(b"serial: "))

    def peek(self, offset: int) -> Outcome:
        probe = Probe()
        self.box.broker.peek(probe, self.box.partition(), offset)
        self.box.settle()
        return probe.answers[-1]

    def check_all(self) -> None:
        self.journal.full = False
        for _ in range(20):
            self.box.settle(100)
        self.settle_puts()
        assert not self.open
        for key in range(self.keys):
            assert self.find(key, tombstones=True) == self.newest.get(key, 0), key

    def check_groups(self) -> None:
        """Each group gets the newest of each key that its filter lets through."""
        for name in GROUPS:
            for _ in range(400):
                self.random_reader(name)
                if not self.box.group(name).ready_count() and not self.leased(name):
                    break
            expected = {
                (key, serial)
                for key, serial in self.newest.items()
                if serial and (name != "filters" or key % 2 == 0)
            }
            assert expected <= self.given[name], (name, expected - self.given[name])

    def random_reader(self, name: str) -> None:
        probe = self.box.pull(name, 100)
        self.box.settle(10)
        for _ in range(200):
            if not probe.open:
                break
            self.box.settle(1)
        for record in probe.records:
            serial = int(record.message.headers.split(b"\r\n")[0].removeprefix(b"serial: "))
            self.given[name].add((int(record.message.key), serial))
            if GROUPS[name].lease:
                self.box.ack(record.offset, name)
        self.box.settle()

    def leased(self, name: str) -> int:
        return self.box.group(name).leased_count() + self.box.group(name).delayed_count()

    def step(self) -> None:
        random = self.random
        what = random.random()
        if what < 0.5:
            for _ in range(random.randrange(1, 15)):
                self.put()
        elif what < 0.7:
            self.read(self.random.choice(list(GROUPS)))
            self.read("retains")  # or little may go
        elif what < 0.72:
            cool(self.box)
        elif what < 0.74:
            self.journal.full = not self.journal.full
        elif what < 0.78:
            self.crash()
        elif what < 0.8:
            self.check_all()
        for _ in range(random.randrange(4)):
            self.box.turn(random.choice((0, 1, PAUSE_MS, PAUSE_MS, 200)))
            if random.random() < 0.6:
                self.journal.release(random.randrange(1, 4))
        self.settle_puts()


def seeds() -> range:
    first, count = int(os.environ.get("COMPACTION_SEED", 0)), int(os.environ.get("SEEDS", 12))
    return range(first, first + count)


@pytest.mark.parametrize("seed", seeds())
def test_the_newest_of_each_key_is_never_lost(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.check_all()
    world.check_groups()
    world.check_all()
