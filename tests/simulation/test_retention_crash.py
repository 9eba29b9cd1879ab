"""The power is cut while a log is forgetting: who misses a message is told, whatever is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import attrs
import pytest

from tests.core.support import Probe, PullProbe, Reader, wishing
from tests.limits import fewer
from tests.simulation.desk import Desk
from tests.simulation.stack import Stack, Told
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.model.pull_options import PullOptions
from zbus.core.persistence.retention import CHECK_MS
from zbus.core.topics.outcomes import Delivered, Outcome
from zbus.core.topics.topic import Group
from zbus.core.verbs.declare import GroupWish
from zbus.testing.disk import Disk, Operation

COUNT = 9  # messages, two to a segment


class OneTopic(Desk):
    """One topic on a disk."""

    def __init__(self, disk: Disk, now_ms: int = 10**12) -> None:
        super().__init__(disk, now_ms, segment_bytes=7_000, at_once=True)

    @property
    def group(self) -> Group:
        return self.broker.topics["t"].groups["g"]

    def settle(self, ms: int = 0) -> None:
        self.broker.finish()
        self.now_ms += ms
        for _ in range(6):
            self.turn()
            self.broker.check()
        self.broker.begin(self.now_ms)

    def declare(self, options: TopicOptions) -> None:
        probe = Probe()
        wish = GroupWish("g", GroupOptions())
        self.broker.declare(probe, options.name, wishing(options, wish))
        self.settle()
        assert probe.fine

    def put(self) -> None:
        probe = Probe()
        partition = self.broker.topics["t"].partitions[0]
        self.broker.put(partition, probe, make_row(b"id", b"", bytes(4_000)))
        self.settle()
        assert probe.fine

    def drain(self) -> tuple[list[int], int]:
        """The offsets that the group is given, and how many it is told that it lost."""
        offsets: list[int] = []
        skipped = 0
        while True:
            probe = PullProbe(Reader(b"s", ""), PullOptions(100))
            self.broker.pull(self.group, probe, self.broker.now_ms + 1)
            self.settle()
            self.settle(1)
            answer = probe.answers[0]
            if not isinstance(answer, Delivered):
                return offsets, skipped
            offsets += [record.offset for record in probe.records]
            skipped += answer.skipped


def states_while_forgetting(limits: TopicOptions, seed: int) -> Iterator[Disk]:
    """A disk that a power cut may leave, for each call while the log forgets."""
    disk, states, random = Disk(), [], Random(seed)
    desk = OneTopic(disk)
    desk.declare(TopicOptions("T"))
    for _ in range(COUNT):
        desk.put()

    def cut(operation: Operation) -> None:
        disk.faults = None
        states.append(disk.crash(random))
        disk.faults = cut

    disk.faults = cut
    desk.declare(attrs.evolve(desk.broker.topics["t"].options, **attrs.asdict(limits)))
    for _ in range(4):
        desk.settle(CHECK_MS)
    disk.faults = None
    assert desk.broker.topics["t"].partitions[0].first > 0
    assert desk.failures == []
    return iter([*states, disk.crash(random)])


@pytest.mark.parametrize("limits", [{"retention_count": 2}, {"retention_ms": 1}])
def test_lost_and_counted_are_the_same(limits: dict[str, int]) -> None:
    options = TopicOptions("T", created_ms=10**12)
    options = attrs.evolve(options, **limits)  # type: ignore[arg-type]
    for disk in itertools.chain(
        *[states_while_forgetting(options, seed) for seed in range(fewer(10))]
    ):
        desk = OneTopic(disk)
        first = desk.broker.topics["t"].partitions[0].first
        desk.put()
        offsets, skipped = desk.drain()
        assert offsets == list(range(first, COUNT + 1))
        assert skipped == first == desk.group.skipped_count()
        desk.put()
        assert desk.drain() == ([COUNT + 1], 0)
        assert desk.failures == []
        desk.journal.close()


def test_a_topic_that_is_removed_while_a_trim_is_being_synced() -> None:
    """Nothing is to be looked at any more, although the trim's sync ends well."""
    stack = Stack(Disk(), Random(1), segment_bytes=900)

    def turn(verb: Callable[[], None] = lambda: None, ms: int = 0) -> None:
        stack.now_ms += ms
        stack.turn(verb)

    def ended(outcome: Outcome) -> None:
        pass

    options = TopicOptions("t", retention_ms=20_000)
    broker = stack.broker
    turn(lambda: broker.declare(Told(ended), "t", wishing(options, None)))
    stack.settle()
    partition = broker.topics["t"].partitions[0]
    for count, pause_ms in ((4, 15_000), (3, 0)):
        for _ in range(count):
            turn(partial(broker.put, partition, Told(ended), make_row(b"i", b"", b"x" * 300)))
            stack.settle()
        stack.now_ms += pause_ms
    while partition.purged_to <= partition.first:
        for worker in stack.workers:
            worker.stop()
        turn(ms=500)
    turn(lambda: broker.remove_topic(Told(ended), broker.topics["t"]))
    turn(lambda: broker.declare(Told(ended), "t", wishing(options, None)))
    for _ in range(400):
        for worker in stack.workers:
            worker.stop()
        turn(ms=100)
    assert partition not in broker._retention._timer
    assert stack.failures == []
