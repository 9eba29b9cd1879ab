"""What the tests of the broker share: tickets that remember, a journal that crashes or is full."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import attrs

from tests.records import Record, records_of
from zbus.core.broker import Broker
from zbus.core.cursor.state import GroupOptions, StateChange, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.model.pull_options import PullOptions
from zbus.core.model.ticket import Ticket
from zbus.core.persistence.replay import recover
from zbus.core.persistence.storage import MEMORY_TOPIC_BYTES_MAX, Storage
from zbus.core.topics.delta import snapshot
from zbus.core.topics.outcomes import Declared, Delivered, Done, Outcome, Routed, Stored
from zbus.core.topics.topic import Group, Partition, Pull, Session, Topic
from zbus.core.verbs.declare import GroupWish, Wished
from zbus.core.verbs.seek import Start
from zbus.storage.format.batch import Batch, Kind
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import (
    CommitDone,
    Journal,
    JournalDamage,
    JournalFull,
    Lane,
    ReadDone,
    of_lanes,
)

EPOCH_MS = 1_800_000_000_000


class Remembers:
    """A ticket's answers."""

    open: bool
    answers: list[Outcome]
    _given: list[list[Record]]
    _told: Callable[[Outcome], None]

    def answer(self, outcome: Outcome) -> None:
        self.answers.append(outcome)
        if isinstance(outcome, Delivered):
            self._given.append(records_of(outcome.pieces))
        self._told(outcome)

    @property
    def records(self) -> list[Record]:
        """All messages that it was given."""
        return list(itertools.chain.from_iterable(self._given))

    @property
    def bodies(self) -> list[bytes]:
        return [record.message.body for record in self.records]

    @property
    def fine(self) -> bool:
        """It has ended, and well."""
        return not self.open and isinstance(self.answers[-1], Done | Stored | Declared)


class Probe(Remembers, Ticket):
    """Remembers its answers."""

    def __init__(self, told: Callable[[Outcome], None] = lambda outcome: None) -> None:
        super().__init__()
        self.answers, self._given, self._told = [], [], told


class PullProbe(Remembers, Pull):
    """A pull that does."""

    def __init__(
        self,
        session: Session,
        wants: PullOptions | None = None,
        told: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        super().__init__(session, wants or PullOptions())
        self.answers, self._given, self._told = [], [], told


class Reader(Session):
    """A session without a connection."""

    def push(self, routed: Routed) -> bool:
        raise AssertionError("nobody routes here")


class CrashJournal(MemoryJournal):
    """Commits wait for `release`; `crash` gives what a disk may hold after a power cut."""

    portion_bytes = 300

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[Lane, list[Batch | int]] = {}  # batches, and offsets of trims
        self.synced: dict[Lane, int] = {}  # how many of them a power cut cannot take
        self.synced_end: dict[Lane, int] = {}
        self.full = False
        self._held: list[tuple[dict[Lane, tuple[list[Batch | int], int]], CommitDone]] = []

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self.full and any(batch.header.kind is Kind.DATA for batch in batches):
            raise JournalFull("no space left")
        super().append(lane, after, batches)
        self.written.setdefault(lane, []).extend(batches)

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        if not synced:
            super().commit(lanes, synced, done)
            return
        known = [(lane, self.written[lane]) for lane in lanes if lane in self.written]
        self._held.append(({lane: (log, len(log)) for lane, log in known}, done))

    @property
    def held(self) -> int:
        return len(self._held)

    def release(self, count: int = 1 << 30) -> None:
        """The first commits are on disk, one after the other."""
        held, self._held = self._held[:count], self._held[count:]
        for lanes, done in held:
            for lane, (log, length) in lanes.items():
                if self.written.get(lane) is log:
                    self._synced(lane, length)
            done(of_lanes(self.verdicts, lanes))

    def _synced(self, lane: Lane, length: int) -> None:
        self.synced[lane] = max(length, self.synced.get(lane, 0))
        for batch in self.written[lane][:length]:
            if isinstance(batch, Batch):
                self.synced_end[lane] = batch.header.end_offset

    def trim(self, lane: Lane, before: int) -> None:
        before = min(before, self._newest_base(lane))
        super().trim(lane, before)
        if lane in self.written:
            self.written[lane].append(before)

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        for lane in lanes:
            for known in (self.written, self.synced, self.synced_end):
                known.pop(lane, None)
        super().remove(lanes, done)

    def _newest_base(self, lane: Lane) -> int:
        """Recovery reads the newest segment, so on a disk nothing of it is ever trimmed."""
        headers = [batch.header for batch in self.written.get(lane, ()) if isinstance(batch, Batch)]
        bases = [header.base_offset for header in headers if header.kind is Kind.CHECKPOINT]
        return bases[-1] if bases else 0

    def crash(self, kept: Callable[[Lane, int], int]) -> CrashJournal:
        """A new journal after a crash; `kept` says how many unsynced batches of a lane it has."""
        after = CrashJournal()
        for lane, log in self.written.items():
            synced = self.synced.get(lane, 0)
            length = synced + kept(lane, len(log) - synced)
            for batch in log[:length]:
                if isinstance(batch, int):
                    after.trim(lane, batch)
                else:
                    after.append(lane, batch.header.previous_crc, [batch])
            if length:
                after._synced(lane, length)
        return after

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        # Small portions: a fetch then ends before what is wanted next.
        super().read(lane, offset, min(bytes_max, self.portion_bytes), done)


class SlowJournal(CrashJournal):
    """Reads are remembered, and answered when `answer` is called, or at once if not `late`."""

    def __init__(self, late: bool = True, portion_bytes: int = 300) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.waiting: list[Callable[[], None]] = []
        self.late = late
        self.portion_bytes = portion_bytes
        self.broken = False
        self.damaged: set[Lane] = set()

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        self.asked.append(offset)

        def answer() -> None:
            if self.broken or lane in self.damaged:
                done(JournalDamage("the disk is odd"))
            else:
                super(SlowJournal, self).read(lane, offset, bytes_max, done)

        if self.late:
            self.waiting.append(answer)
        else:
            answer()

    def answer(self, backwards: bool = False) -> None:
        waiting, self.waiting = self.waiting, []
        for one in reversed(waiting) if backwards else waiting:
            one()


class Box:
    """One broker on a journal, between `begin` and `finish`. Verbs give their tickets back."""

    def __init__(
        self,
        journal: Journal,
        *,
        now_ms: int = EPOCH_MS,
        limits: Limits | None = None,
        segment_bytes_max: int = 64 << 20,
        wait: Callable[[], None] | None = None,
        memory_bytes_max: int | None = None,
        memory_topic_bytes_max: int = MEMORY_TOPIC_BYTES_MAX,
    ) -> None:
        """`wait` makes an engine answer that does so later."""
        self.journal = journal
        self.memory = MemoryJournal(memory_bytes_max)
        storage = Storage(
            journal,
            self.memory,
            segment_bytes_max,
            memory_topic_bytes_max=memory_topic_bytes_max,
        )
        serial = itertools.count()
        ids = (b"id-%d" % number for number in serial)
        self.broker = Broker(storage, ids, limits or Limits())
        topics, time_ms = recover(journal, wait)
        self.broker.begin(max(now_ms, time_ms))
        self.broker.restore(topics, self._release)
        self._sessions = itertools.count()

    def _release(self) -> bool:
        held = self.journal.held if isinstance(self.journal, CrashJournal) else 0
        if isinstance(self.journal, CrashJournal):
            self.journal.release()
        return held > 0

    @property
    def now_ms(self) -> int:
        return self.broker.now_ms

    def turn(self, ms: int = 0) -> None:
        """End this turn and begin the next, so many milliseconds later."""
        self.broker.finish()
        self.check()
        self.broker.begin(self.broker.now_ms + ms)
        self.check()

    def check(self) -> None:
        """Assert the invariants, those of memory too."""
        self.broker.check()
        memory = self.broker._memory
        recent, replayed = list(memory._recent), [(log, c) for c, log in memory._replayed.items()]
        assert memory.recent_bytes == sum([chunk.held_bytes for _, chunk in recent])
        assert memory.recent_bytes <= memory.recent_max or len(recent) == 1
        assert memory.replayed_bytes == sum([chunk.held_bytes for _, chunk in replayed])
        assert memory.replayed_bytes <= memory.replayed_max or len(replayed) == 1
        assert all(chunk.recent for _, chunk in recent)
        assert not any(chunk.recent for _, chunk in replayed)
        kept = {chunk: log for log, chunk in [*recent, *replayed]}
        assert all(log.find(chunk.first) is chunk for chunk, log in kept.items())
        for topic in self.broker.topics.values():
            for partition in topic.partitions:
                assert all(kept[chunk] is partition.log for chunk in partition.log.chunks)

    def settle(self, ms: int = 0) -> None:
        """Turn and release until nothing is left to do at that time."""
        self.turn(ms)
        for _ in range(1_000):
            while isinstance(self.journal, CrashJournal) and self.journal.held:
                self.journal.release()
            due_ms = self.broker.next_due()
            if due_ms is None or due_ms > self.now_ms:
                return
            self.turn()
        raise AssertionError("the broker does not come to rest")

    def session(self) -> Reader:
        reader = Reader(b"session-%d" % next(self._sessions), "127.0.0.1:1")
        self.broker.join(reader)
        return reader

    def topic(self, name: str = "T") -> Topic:
        topic = self.broker.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str = "T", index: int = 0) -> Partition:
        return self.topic(name).partitions[index]

    def group(self, name: str = "g", topic: str = "T") -> Group:
        group = self.topic(topic).group(name)
        assert group is not None
        return group

    def declare(
        self,
        options: TopicOptions | str = "T",
        group: str = "",
        group_options: GroupOptions | None = None,
        start: Start | None = None,
    ) -> Probe:
        if isinstance(options, str):
            options = TopicOptions(options)
        wish = GroupWish(group, group_options or GroupOptions(), start or Start())
        probe = Probe()
        self.broker.declare(probe, options.name, wishing(options, wish if group else None))
        return probe

    def put(self, *bodies: bytes, topic: str = "T", index: int = 0, due_ms: int = 0) -> Probe:
        messages = [Message(body, body=body, due_ms=due_ms) for body in bodies]
        probe = Probe()
        self.broker.put_all(self.partition(topic, index), probe, Chunk.of(messages))
        return probe

    def pull(
        self, group: str = "g", count: int = 1, topic: str = "T", wait: bool = False, **wants: Any
    ) -> PullProbe:
        """Ask for messages; if there are none, the ticket ends with this turn unless it waits."""
        pull = PullProbe(self.session(), PullOptions(count, **wants))
        deadline_ms = None if wait else self.now_ms
        self.broker.pull(self.group(group, topic), pull, deadline_ms)
        return pull

    def take(self, group: str = "g", count: int = 1000, topic: str = "T") -> list[bytes]:
        """What a pull gets now, as if nobody had put for a while: then answers are long."""
        self.broker._tick.put_ms = 0
        probe = self.pull(group, count, topic)
        self.settle()
        for _ in range(1_000):
            if not probe.open:
                return probe.bodies
            self.settle(1)
        raise AssertionError("the pull does not end")

    def ack(self, offset: int, group: str = "g", topic: str = "T", index: int = 0) -> Probe:
        probe = Probe()
        partition = self.partition(topic, index)
        self.broker.ack(probe, self.group(group, topic), partition, ranges([offset]))
        return probe

    def nack(self, offset: int, *, front: bool = True, due_ms: int = 0, group: str = "g") -> Probe:
        probe = Probe()
        where = self.group(group), self.partition()
        self.broker.nack(probe, *where, ranges([offset]), front, due_ms)
        return probe

    def extend(self, offset: int, deadline_ms: int, group: str = "g") -> Probe:
        probe = Probe()
        where = self.group(group), self.partition()
        self.broker.extend(probe, *where, ranges([offset]), deadline_ms)
        return probe


def wishing(options: TopicOptions, wish: GroupWish | None) -> Wished:
    """For `Broker.declare`: the same whatever is there."""
    return lambda topic: (options, wish)


def ranges(offsets: Iterable[int]) -> list[range]:
    """These offsets in this order, as a face asks for them: `7,3-5` is two ranges."""
    found: list[range] = []
    for offset in offsets:
        if found and found[-1].stop == offset:
            found[-1] = range(found[-1].start, offset + 1)
        else:
            found.append(range(offset, offset + 1))
    return found


def cool(box: Box) -> None:
    """Nothing is at hand: what is read now comes from storage."""
    memory = box.broker._memory
    while memory._recent:
        log, chunk = memory._recent.popleft()
        memory.recent_bytes -= chunk.held_bytes
        log.let_go(chunk)
    for chunk, log in list(memory._replayed.items()):
        memory.drop(log, chunk)
    assert memory.bytes_used == 0


def refusal(probe: Remembers) -> BrokerError:
    """Why it was refused."""
    assert not probe.open
    answer = probe.answers[-1]
    assert isinstance(answer, BrokerError)
    return answer


def again(box: Box, segment_bytes_max: int = 64 << 20) -> Box:
    """Recovery of the same bytes, once everything is written."""
    assert isinstance(box.journal, CrashJournal)
    box.broker._tick.commit()
    journal = box.journal.crash(lambda lane, unsynced: unsynced)
    return Box(journal, now_ms=box.now_ms, segment_bytes_max=segment_bytes_max)


def same_state(one: Box, other: Box) -> None:
    """What must survive is the same in both."""
    assert set(one.broker.topics) == set(other.broker.topics)
    for name in one.broker.topics:
        pairs = zip(one.topic(name).partitions, other.topic(name).partitions, strict=True)
        for here, there in pairs:
            assert (here.end, here.stored.last_crc) == (there.end, there.stored.last_crc)
            assert _settled(snapshot(here)) == _settled(snapshot(there))


def _settled(state: StateChange) -> StateChange:
    """How a group began is remembered for longer than anybody needs it if the disk was full."""
    groups = [attrs.evolve(group, origin=None) for group in state.groups]
    return attrs.evolve(state, groups=tuple(groups))
