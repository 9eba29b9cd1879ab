"""Random traffic on a topic that forgets: nobody misses a message that is not counted.

What a group has finished is kept here message by message. When the log begins later than before,
what the group had not finished of it is counted again, and must be what the broker counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.support import Box, CrashJournal, Probe, PullProbe, ranges
from tests.limits import examples
from tests.records import records_of
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.outcomes import Delivered, Outcome
from zbus.core.topics.topic import Group
from zbus.core.verbs.seek import Start

GROUPS = {
    "plain": GroupOptions(),
    "leases": GroupOptions(lease=True, lease_ms=1_500, window=5),
    "other": GroupOptions(),
}
LIMITS = [
    {},
    {"retention_ms": 2_000},
    {"retention_bytes": 1_500},
    {"retention_count": 5},
    {"retention_done": True},
    {"retention_ms": 5_000, "retention_done": True},
    {"retention_bytes": 4_000, "retention_count": 20},
]
TIMES = st.sampled_from([0, 1, 300, 1_000, 2_500])


@dataclass
class Book:
    """One group. Places are pairs of partition and offset."""

    finished: set[tuple[int, int]] = field(default_factory=set)
    first: list[int] = field(default_factory=lambda: [0, 0])  # as far as it was counted
    lost: int = 0
    told: int = 0


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """So that there are many, in memory and on their way out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zbus.core.log.GROWS_TO", Size(bytes_max=1_000, count_max=4))
        yield


class RetentionMachine(RuleBasedStateMachine):
    """A turn is open between the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.books: dict[str, Book] = {}
        self.start(CrashJournal(), 10**12)

    def start(self, journal: CrashJournal, now_ms: int) -> None:
        self.journal = journal
        limits = Limits(cache_bytes_max=2_000)
        self.box = Box(journal, now_ms=now_ms, segment_bytes_max=600, limits=limits)

    @property
    def groups(self) -> list[Group]:
        return list(self.box.topic().groups.values())

    def group_of(self, number: int) -> Group:
        return self.groups[number % len(self.groups)]

    @initialize(limits=st.sampled_from(LIMITS), names=st.sets(st.sampled_from(sorted(GROUPS))))
    def begin(self, limits: dict[str, int], names: set[str]) -> None:
        options = TopicOptions("T", partitions=2)
        for name in sorted({"plain"} | names):
            self.box.declare(options, name, GROUPS[name])
            self.books[name] = Book()
        self.box.settle()
        self.retain(limits)

    @rule(limits=st.sampled_from(LIMITS))
    def retain(self, limits: dict[str, int | bool]) -> None:
        changed = {name: 0 for name in ("retention_ms", "retention_bytes", "retention_count")}
        options = self.box.topic().options
        options = attrs.evolve(options, **{**changed, "retention_done": False, **limits})  # type: ignore[arg-type]
        self.box.declare(options)

    @rule(name=st.sampled_from(sorted(GROUPS)), zero=st.booleans())
    def declare(self, name: str, zero: bool) -> None:
        topic = self.box.topic()
        known = topic.group(name)
        start = Start(offset=0) if zero else None
        self.box.declare(topic.options, name, GROUPS[name], start)
        if start is not None:
            self.box.broker.seek(Probe(), self.box.group(name), start)
        group = self.box.group(name)
        if known is None or zero:
            book = self.books.setdefault(name, Book())
            book.lost, book.told = group.skipped_count(), group.skipped_count() - unreported(group)
            self.copy(group, book)

    def copy(self, group: Group, book: Book) -> None:
        """Take over what is finished from the broker."""
        partitions = self.box.topic().partitions
        book.first = [max(p.first, p.purged_to) for p in partitions]
        book.finished = {
            (partition.index, offset)
            for partition in partitions
            for offset in range(book.first[partition.index], partition.end)
            if group.backlogs[partition.index].life(offset) is MessageState.DONE
        }

    @rule(
        index=st.integers(0, 1),
        count=st.integers(1, 4),
        delay_ms=st.sampled_from([0, 0, 0, 500, 5_000]),
        turns=st.integers(1, 4),
    )
    def put(self, index: int, count: int, delay_ms: int, turns: int) -> None:
        for _ in range(turns):
            due_ms = delay_ms and self.box.now_ms + delay_ms
            partition = self.box.partition(index=index)
            if count == 1 and not due_ms:
                self.box.broker.put(partition, Probe(), make_row(b"", b"", bytes(100)))
            else:
                message = Message(b"id", body=bytes(100), due_ms=due_ms)
                self.box.broker.put_all(partition, Probe(), Chunk.of([message] * count))
            self.turn(0, 1)

    @rule(number=st.integers(0, 2), count=st.integers(1, 6), wait=st.booleans())
    def pull(self, number: int, count: int, wait: bool) -> None:
        group = self.group_of(number)
        box, book, partitions = self.box, self.books[group.name], self.box.topic().partitions

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Delivered):
                book.told += outcome.skipped
                assert book.told == group.skipped_count(), "all is told before anything new"
                for record in records_of(outcome.pieces):
                    assert record.offset >= partitions[record.partition].first
                    if not group.lease:
                        book.finished.add((record.partition, record.offset))

        deadline_ms = None if wait else box.now_ms + 1
        box.broker.pull(group, PullProbe(box.session(), PullOptions(count), told), deadline_ms)

    @rule(number=st.integers(0, 20), back=st.sampled_from(["ack", "ack", "front", "end", "later"]))
    def settle(self, number: int, back: str) -> None:
        leases = [
            (group, partition, offset)
            for group in self.groups
            for partition in self.box.topic().partitions
            for offset in group.backlogs[partition.index].leased
        ]
        if not leases:
            return
        group, partition, offset = leases[number % len(leases)]
        if back == "ack":
            self.box.broker.ack(Probe(), group, partition, ranges([offset]))
            self.books[group.name].finished.add((partition.index, offset))
        else:
            due_ms = self.box.now_ms + 2_000 if back == "later" else 0
            front = back == "front"
            self.box.broker.nack(Probe(), group, partition, ranges([offset]), front, due_ms)

    def turn(self, ms: int, released: int) -> None:
        self.box.turn(ms)
        self.journal.release(released)

    @rule(ms=TIMES, released=st.integers(0, 4))
    def time_passes(self, ms: int, released: int) -> None:
        for _ in range(3):
            self.turn(ms, released)

    @rule(data=st.data(), power=st.booleans())
    def restart(self, data: st.DataObject, power: bool) -> None:
        def kept(lane: tuple[str, int], unsynced: int) -> int:
            return data.draw(st.integers(0, unsynced)) if power else unsynced

        if not power:
            self.box.broker._tick.commit()
        self.recount()
        before = {group.name: group.skipped_count() for group in self.groups}
        self.start(self.journal.crash(kept), self.box.now_ms)
        if self.box.broker.topic("T") is None:
            self.begin({}, set())
            return
        self.books = {name: book for name, book in self.books.items() if name in self.names()}
        for group in self.groups:
            book = self.books.setdefault(group.name, Book())
            skipped = group.skipped_count()
            if not power:
                assert skipped == before[group.name]
                assert skipped - unreported(group) <= book.told, "told at least once"
            else:
                self.copy(group, book)
            book.lost, book.told = skipped, skipped - unreported(group)

    def names(self) -> set[str]:
        return {group.name for group in self.groups}

    @invariant()
    def recount(self) -> None:
        if self.box.broker.topic("T") is None:
            return
        for group in self.groups:
            book = self.books[group.name]
            for partition in self.box.topic().partitions:
                index = partition.index
                first = max(partition.first, partition.purged_to)
                for offset in range(book.first[index], first):
                    book.lost += (index, offset) not in book.finished
                book.first[index] = max(book.first[index], first)
            assert group.skipped_count() == book.lost
            assert unreported(group) == book.lost - book.told
            assert group.unreported == (unreported(group) > 0)

    def teardown(self) -> None:
        """In the end everybody has had everything, or was told how much not."""
        if self.box.broker.topic("T") is None or not self.books:
            return
        self.retain({})
        for _ in range(500):
            self.turn(2_500, 1_000)
            self.turn(0, 1_000)
            for number in range(len(self.groups)):
                self.pull(number, 1_000, wait=False)
            for _ in range(4):
                self.turn(0, 1_000)
            for number in range(30):
                self.settle(number, "ack")
            self.recount()
            if not any(sum(group.counts()[:3]) for group in self.groups):
                break
        for partition in self.box.topic().partitions:
            for group in self.groups:
                assert group.ready_count() == group.leased_count() == group.delayed_count() == 0
                book = self.books[group.name]
                # After a crash a log may begin before what was counted as lost already.
                first = max(partition.first, book.first[partition.index])
                for offset in range(first, partition.end):
                    assert (partition.index, offset) in book.finished


def unreported(group: Group) -> int:
    return sum(backlog.unreported for backlog in group.backlogs)


RetentionMachine.TestCase.settings = examples(60, derandomize=True, stateful_step_count=40)
TestRetention = RetentionMachine.TestCase
