"""The power is cut, or the process killed, at any call to the disk while a log is compacted: the
newest value of each key is found, and every group gets it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.core.support import Probe, PullProbe, Reader, ranges, wishing
from tests.limits import WHOLE, fewer
from tests.simulation.desk import Desk
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.outcomes import Peeked, Stored
from zbus.core.topics.topic import Partition
from zbus.core.upkeep.compaction import PAUSE_MS
from zbus.core.verbs.declare import GroupWish
from zbus.testing.disk import Disk, Operation

OPTIONS = TopicOptions("t", compact=True, compact_tombstone_ms=300)
GROUPS = {
    "reads": GroupOptions(lease=True),
    "never": GroupOptions(lease=True),
    "retains": GroupOptions(lease=True, retain=True),
}
KEYS, COUNT = 12, 160
SHARE = 0.1 if WHOLE else 0.03
"""Of the calls to the disk at which a crash is tried."""

Values = dict[bytes, bytes]
"""The newest of each key; of a tombstone it is empty."""


class Compacting(Desk):
    """One compact topic on a disk."""

    def __init__(self, disk: Disk, now_ms: int = 10**12) -> None:
        super().__init__(disk, now_ms, segment_bytes=2_000, at_once=True)

    @property
    def partition(self) -> Partition:
        return self.broker.topics["t"].partitions[0]

    def settle(self, ms: int = 0) -> None:
        self.broker.finish()
        self.now_ms += ms
        for _ in range(4):
            self.turn()
            self.broker.check()
        self.broker.begin(self.now_ms)

    def declare(self) -> None:
        for name, options in GROUPS.items():
            probe, wish = Probe(), GroupWish(name, options)
            self.broker.declare(probe, "t", wishing(OPTIONS, wish))
            self.settle()
            assert probe.fine

    def put(self, key: bytes, body: bytes) -> bool:
        """Whether it is acknowledged."""
        probe = Probe()
        self.broker.put(self.partition, probe, make_row(b"", b"", body, key=key))
        self.settle(1)
        return bool(probe.answers) and isinstance(probe.answers[0], Stored)

    def get(self, key: bytes) -> bytes:
        probe = Probe()
        self.broker.get(probe, self.partition, key)
        for _ in range(100):
            if not probe.open:
                break
            self.settle(PAUSE_MS)
        answer = probe.answers[0]
        if isinstance(answer, BrokerError):
            assert answer.refusal is Refusal.OFFSET_UNKNOWN, answer
            return b""
        assert isinstance(answer, Peeked)
        return answer.pieces[0].chunk.bodies[answer.pieces[0].start]

    def drain(self, name: str, most: int = 1_000) -> Values:
        """What a group is given and acknowledges, by key the last."""
        found: Values = {}
        while most > 0:
            group = self.broker.topics["t"].groups[name]
            probe = PullProbe(Reader(b"s", ""), PullOptions(min(50, most)))
            self.broker.pull(group, probe, self.broker.now_ms + 1)
            self.settle()
            self.settle(1)
            if not probe.records:
                break
            for record in probe.records:
                found[record.message.key] = record.message.body
            most -= len(probe.records)
            done = ranges([record.offset for record in probe.records])
            self.broker.ack(Probe(), group, self.partition, done)
            self.settle()
        return found


def work(random: Random, disk: Disk, steps: int = COUNT) -> Iterator[tuple[Compacting, Values]]:
    """Put values with time for the cleaner in between; what is acknowledged so far is given before
    each step. A value that is put just now is in neither, so it is put under a key of its own."""
    desk, values = Compacting(disk), Values()
    desk.declare()
    yield desk, values
    for number in range(steps):
        key = b"k%d" % int(KEYS * random.random() ** 3)
        body = b"" if random.random() < 0.08 else b"v%d" % number + b"x" * random.randrange(60)
        values[key] = b"?"  # either of the two is right while it is being put
        if desk.put(key, body):
            values[key] = body
        if random.random() < 0.3:
            desk.drain("reads", random.randrange(1, 20))
            desk.drain("retains", 40)
        for _ in range(random.randrange(3)):
            desk.settle(PAUSE_MS)
        yield desk, values


def check(disk: Disk, values: Values, random: Random) -> None:
    """A broker comes up on this disk."""
    desk = Compacting(disk)
    known = {key: value for key, value in values.items() if value != b"?"}
    assert {key: desk.get(key) for key in known} == known
    if random.random() < 0.5:  # go on compacting first
        for number in range(40):
            desk.put(b"other", b"%d" % number + 60 * b"x")
            desk.settle(PAUSE_MS)
        assert {key: desk.get(key) for key in known} == known
    # A tombstone may be gone, and with it all older values, or be given as the last one.
    given = desk.drain("never")
    assert {key: given.get(key, b"") for key in known} == known
    desk.drain("retains")
    desk.drain("reads")
    assert desk.put(b"k0", b"after")
    assert desk.drain("reads") == desk.drain("retains") == {b"k0": b"after"}
    assert desk.get(b"k0") == b"after"
    assert desk.failures == []
    desk.journal.close()


@pytest.mark.parametrize("seed", range(fewer(20)))
def test_no_newest_value_is_lost(seed: int) -> None:
    random, disk = Random(seed), Disk()
    chance, states = Random(seed + 1), list[tuple[Disk, Values]]()
    steps = work(random, disk)
    desk, values = next(steps)

    def cut(operation: Operation) -> None:
        if operation.name in ("open", "write", "sync", "sync_directory", "remove", "truncate"):
            disk.faults = None
            if chance.random() < SHARE:
                left = disk.crash(chance) if chance.random() < 0.7 else disk.kill()
                states.append((left, dict(values)))
            disk.faults = cut

    disk.faults = cut
    for _ in steps:
        pass
    disk.faults = None
    assert desk.partition.first > 20
    assert desk.partition.end > COUNT, "something was copied"
    for left, known in states:
        check(left, known, chance)


@pytest.mark.parametrize("seed", range(fewer(6)))
def test_a_full_disk_loses_nothing_either(seed: int) -> None:
    """What is acknowledged stays; when there is room again, all goes on."""
    random = Random(seed)
    disk = Disk(capacity_bytes=random.choice((12_000, 16_000, 24_000)))
    steps = work(random, disk)
    desk, values = next(steps)
    for _ in steps:
        pass
    left = disk.crash(random)
    left.capacity_bytes = None
    check(left, values, random)
    assert desk.failures == []
