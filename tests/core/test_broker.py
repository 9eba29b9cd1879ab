"""The whole broker, driven at random, against the book of what it promised.

Commits are held and released at random, the broker dies by kill (all bytes stay) or with its power
(each lane keeps some of its unsynced batches), and starts again on what is left.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.broker_model import Book, GroupRecord, PutRecord, TopicRecord, fate_of
from tests.core.support import Box, CrashJournal, Probe, PullProbe, ranges, refusal
from tests.limits import examples
from tests.records import records_of
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.outcomes import Delivered, Empty, EmptyReason, Outcome, Slice
from zbus.core.topics.topic import Group, Partition
from zbus.core.verbs.puts import PutOptions
from zbus.core.verbs.seek import Start
from zbus.storage.port import Lane

TOPICS = {
    "disk": TopicOptions("disk"),
    "wide": TopicOptions("wide", partitions=3),
    "os": TopicOptions("os", durability="os", partitions=3),
    "memory": TopicOptions("memory", durability="memory"),
}
GROUPS = {
    "plain": GroupOptions(),
    "leases": GroupOptions(lease=True, lease_ms=50, window=3),
    "filtered": GroupOptions(filter="a.*"),
    "both": GroupOptions(lease=True, lease_ms=20, window=2, filter="#"),
    "ordered": GroupOptions(lease=True, lease_ms=50, window=5, order="key"),
}
TAGS = (b"", b"a.b", b"a.c", b"b")
LIMITS = Limits(cache_bytes_max=2_000, history_bytes_max=2_000)  # a few: others are read back

NUMBERS = st.integers(0, 23)
TIMES = st.sampled_from([0, 1, 5, 20, 60])
OTHERS = st.lists(st.integers(0, 20), max_size=2)  # offsets that are named along with leased ones
SINGLY = ("put", "along", "keys", "keys along")
WAYS = (*SINGLY, "all", "once", "key")
"""How messages come in: one by one, with a ticket each or under one, perhaps with an idempotency
key each; as a chunk; as one that says where the log ends; as one with an idempotency key."""


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """So that there are many, in memory and on their way out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zbus.core.log.GROWS_TO", Size(bytes_max=600, count_max=4))
        yield


def order_of(backlog: Backlog, offsets: list[int], end: int) -> list[int]:
    """All that the group is still to get, in order, once everything of that is due."""
    backlog = copy.deepcopy(backlog)
    backlog.wake(10**15, end)
    order = []
    while (offset := backlog.next(end)) is not None:
        backlog.finish(offset)
        order.append(offset)
    return [offset for offset in order if offset in offsets]


class BrokerMachine(RuleBasedStateMachine):
    """A turn is open between the rules: `turn` ends it and begins the next."""

    def __init__(self) -> None:
        super().__init__()
        self.box = self.start(CrashJournal(), 0)
        self.book = Book(self.box)
        self.sessions = [self.box.session() for _ in range(3)]
        self.ids = itertools.count()
        self.probes: list[Probe] = []  # must all settle, in this life
        self.pulls: list[PullProbe] = []

    @staticmethod
    def start(journal: CrashJournal, now_ms: int) -> Box:
        return Box(journal, limits=LIMITS, segment_bytes_max=700, now_ms=now_ms or 10**12)

    def probe(self) -> Probe:
        self.probes.append(probe := Probe())
        return probe

    def record(self, number: int) -> TopicRecord | None:
        topics = list(self.book.topics.values())
        return topics[number % len(topics)] if topics else None

    def group(self, number: int) -> tuple[TopicRecord, Group, GroupRecord] | None:
        pairs = [(r, name) for r in self.book.topics.values() for name in r.groups]
        if not pairs:
            return None
        record, name = pairs[number % len(pairs)]
        return record, record.topic.groups[name], record.groups[name]

    def leased(
        self, number: int, count: int
    ) -> tuple[Group, GroupRecord, Partition, list[int]] | None:
        """Up to so many leases of a group in one partition."""
        leases = [
            (record.topic.groups[name], known, index, offset)
            for record in self.book.topics.values()
            for name, known in record.groups.items()
            for index, offset in known.leases
        ]
        if not leases:
            return None
        group, known, index, offset = leases[number % len(leases)]
        held = [at for place, at in known.leases if place == index and at != offset]
        return group, known, group.topic.partitions[index], [offset, *held[: count - 1]]

    # -- topics and groups ----------------------------------------------------------------

    @initialize(
        names=st.sets(st.sampled_from(sorted(TOPICS)), min_size=1),
        groups=st.sets(st.sampled_from(sorted(GROUPS)), min_size=1),
    )
    def begin(self, names: set[str], groups: set[str]) -> None:
        for name in sorted(names):
            for group in sorted(groups):
                self.declare(name, group, from_start=False)
        self.turn(0, 2)

    @rule(
        name=st.sampled_from(sorted(TOPICS)),
        group=st.sampled_from(sorted(GROUPS)),
        from_start=st.booleans(),
    )
    def declare(self, name: str, group: str, from_start: bool) -> None:
        known = name in self.book.topics and group in self.book.topics[name].groups
        start = Start(offset=0) if from_start and not known else None
        probe = self.box.declare(TOPICS[name], group, GROUPS[group], start)
        self.probes.append(probe)
        topic = self.box.topic(name)
        record = self.book.topics.setdefault(name, TopicRecord(topic, probe))
        if not known:
            place = topic.groups[group].position()
            record.groups[group] = GroupRecord(GROUPS[group], place, probe)

    @rule(number=NUMBERS)
    def remove_topic(self, number: int) -> None:
        record = self.record(number)
        if record is not None and number < 8:
            self.box.broker.remove_topic(self.probe(), record.topic)
            del self.book.topics[record.topic.name]

    @rule(number=NUMBERS)
    def remove_group(self, number: int) -> None:
        found = self.group(number)
        if found is not None and number < 16:
            record, group, _ = found
            probe = self.probe()
            self.box.broker.remove_group(probe, group)
            record.removals.append((group.name, probe))
            del record.groups[group.name]

    @rule(number=NUMBERS)
    def purge_group(self, number: int) -> None:
        found = self.group(number)
        if found is not None:
            record, group, _ = found
            probe = self.probe()
            self.box.broker.purge_group(probe, group)
            self.book.purged(record, group.name, probe)

    @rule(number=NUMBERS)
    def purge_topic(self, number: int) -> None:
        record = self.record(number)
        if record is not None and number < 8:
            probe = self.probe()
            self.box.broker.purge_topic(probe, record.topic)
            record.purged |= set(record.puts)
            for name in record.groups:
                self.book.purged(record, name, probe)

    # -- messages -------------------------------------------------------------------------

    @rule(number=NUMBERS, delay_ms=st.sampled_from([0, 0, 5]), released=st.integers(0, 2))
    def traffic(self, number: int, delay_ms: int, released: int) -> None:
        """What happens most: many put, many read, and the turns go on."""
        for step in range(8):
            way, named = WAYS[(number + step) % len(WAYS)], step % 3 > 0
            count, tag = 1 + step % 2, TAGS[step % 4]
            self.put(number + step // 4, step, count, tag, b"", delay_ms, 0, way, named)
        self.turn(1, released)
        for step in range(6):
            bytes_max = (128 << 10, 30, 1)[(number + step // 3) % 3]
            self.pull(number + step, step % 3, 1 + step % 3, wait_ms=10, bytes_max=bytes_max)
        self.turn(1, released)
        for step in range(6):
            self.take(number + step, step % 3, 2)
        for step in range(number % 4):
            self.ack(number + step)

    @rule(
        number=NUMBERS,
        index=st.integers(0, 2),
        count=st.integers(1, 3),
        tag=st.sampled_from(TAGS),
        key=st.sampled_from([b"", b"", b"a key"]),
        delay_ms=st.sampled_from([0, 0, 0, 1, 30]),
        expiry_ms=st.sampled_from([0, 0, 0, 10, 40]),
        way=st.sampled_from(WAYS),
        named=st.booleans(),
    )
    def put(
        self,
        number: int,
        index: int,
        count: int,
        tag: bytes,
        key: bytes,
        delay_ms: int,
        expiry_ms: int,
        way: str,
        named: bool,
    ) -> None:
        record = self.record(number)
        if record is None:
            return
        now_ms = self.box.now_ms
        partition = record.topic.partitions[index % len(record.topic.partitions)]
        serials = [next(self.ids) for _ in range(count)]
        if delay_ms or expiry_ms:
            way = {"keys": "key", "keys along": "key"}.get(way, way)
        # A key is that of a chunk, or each message has its own.
        keys = {"key": [serials[0]] * count, "keys": serials, "keys along": serials}.get(way)
        messages = [
            Message(
                b"m%d" % serial if named else b"",
                tag,
                key,
                b"x: %d\r\n" % (serial % 3),
                b"body of m%d" % serial,
                now_ms,
                due_ms=delay_ms and now_ms + delay_ms,
                expires_ms=expiry_ms and now_ms + expiry_ms,
                once=b"key of %d" % keys[at] if keys else b"",
            )
            for at, serial in enumerate(serials)
        ]
        if way in SINGLY and not (delay_ms or expiry_ms):
            self.put_singly(record, partition, messages, way.endswith("along"))
            return
        probe = self.probe()
        for position, message in enumerate(messages):
            record.puts[message.body] = PutRecord(message, partition.index, probe, position)
        chunk = Chunk.of(messages)
        if way == "key":
            self.box.broker.put_all(partition, probe, chunk)
        elif way == "once":
            self.box.broker.put_all(
                partition, probe, chunk, PutOptions(expected_offset=partition.end)
            )
        else:
            self.box.broker.put_all(partition, probe, chunk)

    def put_singly(
        self, record: TopicRecord, partition: Partition, messages: list[Message], along: bool
    ) -> None:
        """One by one, with a ticket each or one for all."""
        broker, probe = self.box.broker, self.probe()
        for number, m in enumerate(messages):
            row = make_row(m.id, m.headers, m.body, m.tag, m.key, once=m.once)
            if number and along:
                assert broker.put_along(partition, probe, row)
            else:
                probe = self.probe() if number else probe
                broker.put(partition, probe, row)
            position = number if along else 0
            record.puts[m.body] = PutRecord(m, partition.index, probe, position)

    @rule(
        number=NUMBERS,
        session=st.integers(0, 2),
        count=st.integers(1, 4),
        credit=st.sampled_from([1, 1, 3]),
        wait_ms=st.sampled_from([None, 0, 1, 30]),
        named=st.booleans(),
        replaces=st.booleans(),
        bytes_max=st.sampled_from([1, 30, 128 << 10, 128 << 10]),
        window=st.sampled_from([0, 0, 1, 2]),
    )
    def pull(
        self,
        number: int,
        session: int,
        count: int,
        credit: int = 1,
        wait_ms: int | None = None,
        named: bool = False,
        replaces: bool = False,
        bytes_max: int = 128 << 10,
        window: int = 0,
    ) -> None:
        found = self.group(number)
        if found is None:
            return
        record, group, known = found
        count = 1 if window else count
        held: set[tuple[int, int]] = set()

        def told(outcome: Outcome) -> None:
            if not isinstance(outcome, Delivered):
                return
            records = records_of(outcome.pieces)
            assert 1 <= len(records) <= count
            sizes = [len(given.message.body) + len(given.message.headers) for given in records]
            assert sum(sizes[:-1]) < bytes_max, "the last one is that which passes it"
            for given in records:
                assert partition in (None, given.partition)
                self.book.delivered(record, group, given)
                held.add((given.partition, given.offset))
            if window and known.options.lease:
                assert len(held & set(known.leases)) <= window

        partition = number % len(group.backlogs) if named else None
        wants = PullOptions(count, partition, credit, replaces, bytes_max, window)
        pull = PullProbe(self.sessions[session], wants, told)
        self.pulls.append(pull)
        deadline_ms = None if wait_ms is None else self.box.now_ms + wait_ms
        self.box.broker.pull(group, pull, deadline_ms)

    @rule(number=NUMBERS, session=st.integers(0, 2), count=st.integers(1, 4))
    def take(self, number: int, session: int, count: int) -> None:
        """What is at hand is handed out at once, to whom it is due."""
        found = self.group(number)
        if found is None:
            return
        record, group, _ = found
        assert self.box.broker.register(self.sessions[session], group) is None
        for _ in range(count):
            taken = self.box.broker.take(group, self.sessions[session])
            if taken is None:
                return
            assert not group.waiting, "others were here before"
            chunk, at = taken
            attempts = group.backlogs[0].attempts.get(chunk.first + at, 0)
            (given,) = records_of([Slice(0, chunk, at, at + 1, attempts)])
            self.book.delivered(record, group, given)

    @rule(
        number=NUMBERS,
        count=st.integers(1, 5),
        way=st.sampled_from(WAYS),
        named=st.booleans(),
        released=st.sampled_from([0, 1, 1000]),
    )
    def keep_up(self, number: int, count: int, way: str, named: bool, released: int) -> None:
        """A group has what it is given as soon as it is durable."""
        pairs = [(record, name) for record in self.book.topics.values() for name in record.groups]
        fast_path = [
            at for at, (record, name) in enumerate(pairs) if record.topic.groups[name].fast_path
        ]
        if not fast_path:
            return
        place = fast_path[number % len(fast_path)]
        at = list(self.book.topics.values()).index(pairs[place][0])
        for step in range(count):
            self.put(at, 0, 1 + step % 2, TAGS[step % 4], b"", 0, 0, way, named)
            self.turn(1, released)
            self.take(place, step % 3, 3)
            self.pull(place, step % 3, 4, wait_ms=0)

    # -- leases ---------------------------------------------------------------------------

    @rule(number=NUMBERS, count=st.integers(1, 3), others=OTHERS, backwards=st.booleans())
    def ack(
        self, number: int, count: int = 1, others: tuple[int, ...] = (), backwards: bool = False
    ) -> None:
        found = self.leased(number, count)
        if found is not None:
            group, known, partition, leased = found
            self.acked(group, known, partition, sorted({*leased, *others}, reverse=backwards))

    def acked(
        self, group: Group, known: GroupRecord, partition: Partition, offsets: list[int]
    ) -> None:
        """They are settled, whoever has them now, if they were ever handed out."""
        probe = self.probe()
        bodies: set[bytes] = set()
        for offset in offsets:
            place = partition.index, offset
            there = self.messages(group, place)
            if place in known.leases:
                bodies.add(next((body for body in there if body in known.got), there[-1]))
            elif partition.first <= offset < partition.recovered:
                # It may have been handed out before the restart: whoever acks it is believed.
                bodies |= set(there)
                known.excused |= set(there)
            else:
                bodies |= {body for body in there if body in known.attempts}
            known.leases.pop(place, None)
            known.asked.pop(place, None)
        self.box.broker.ack(probe, group, partition, ranges(offsets))
        known.settled |= bodies
        known.confirming.append((probe, bodies))

    def messages(self, group: Group, place: tuple[int, int]) -> list[bytes]:
        """The bodies of what was ever put there: what a crash took has left its place to others."""
        puts = self.book.topics[group.topic.name].puts
        return [body for body, put in puts.items() if (put.index, put.offset) == place]

    @rule(number=NUMBERS, offsets=st.lists(st.integers(0, 20), min_size=1, max_size=3))
    def settle_what_is_not_leased(self, number: int, offsets: list[int]) -> None:
        found = self.group(number)
        if found is None:
            return
        _, group, known = found
        offsets = [offset for offset in offsets if (0, offset) not in known.leases]
        if not offsets:
            return
        partition = group.topic.partitions[0]
        self.acked(group, known, partition, offsets)
        refused = self.probe()
        assert self.box.broker.nack(refused, group, partition, ranges(offsets)) == 0
        assert refusal(refused).refusal is Refusal.NOT_LEASED
        refused = self.probe()
        assert self.box.broker.extend(refused, group, partition, ranges(offsets), 10**15) == 0
        assert refusal(refused).refusal is Refusal.NOT_LEASED

    @rule(
        number=NUMBERS,
        count=st.integers(1, 3),
        others=OTHERS,
        backwards=st.booleans(),
        front=st.booleans(),
        later_ms=TIMES,
    )
    def nack(
        self,
        number: int,
        count: int,
        others: list[int],
        backwards: bool,
        front: bool,
        later_ms: int,
    ) -> None:
        found = self.leased(number, count)
        if found is None:
            return
        group, known, partition, leased = found
        backlog, broker = group.backlogs[partition.index], self.box.broker
        offsets = self.mixed(known, partition, leased, others, backwards)
        given = [offset for offset in offsets if offset in leased]
        passed = {offset: fate_of(backlog, offset) for offset in offsets if offset not in leased}
        due_ms = self.box.now_ms + later_ms if later_ms else 0
        probe = self.probe()
        count = broker.nack(probe, group, partition, ranges(offsets), front, due_ms)
        assert count == len(given)
        assert passed == {offset: fate_of(backlog, offset) for offset in passed}
        # What is due at the same time comes in the order of the log.
        order = sorted(given) if due_ms else given
        assert order_of(backlog, given, partition.end) == order, "they come in another order"
        if front and not due_ms:
            assert copy.deepcopy(backlog).next(partition.end) == given[0]
        for offset in given:
            place = partition.index, offset
            known.ask(
                place, probe, (MessageState.DELAYED, due_ms) if due_ms else (MessageState.READY, 0)
            )
            if not due_ms and any(map(self.expires, self.messages(group, place))):
                del known.asked[place]  # it may end at any time, and nobody is told

    def expires(self, body: bytes) -> bool:
        return any(
            body in r.puts and r.puts[body].message.expires_ms for r in self.book.topics.values()
        )

    @rule(
        number=NUMBERS,
        count=st.integers(1, 3),
        others=OTHERS,
        backwards=st.booleans(),
        more_ms=st.sampled_from([1, 30, 100]),
    )
    def extend(
        self, number: int, count: int, others: list[int], backwards: bool, more_ms: int
    ) -> None:
        found = self.leased(number, count)
        if found is None:
            return
        group, known, partition, leased = found
        backlog = group.backlogs[partition.index]
        offsets = self.mixed(known, partition, leased, others, backwards)
        passed = {offset: fate_of(backlog, offset) for offset in offsets if offset not in leased}
        deadline_ms = self.box.now_ms + more_ms
        probe = self.probe()
        count = self.box.broker.extend(probe, group, partition, ranges(offsets), deadline_ms)
        assert count == len(leased)
        assert passed == {offset: fate_of(backlog, offset) for offset in passed}
        for offset in leased:
            known.ask((partition.index, offset), probe, (MessageState.LEASED, deadline_ms))

    @staticmethod
    def mixed(
        known: GroupRecord,
        partition: Partition,
        leased: list[int],
        others: list[int],
        backwards: bool,
    ) -> list[int]:
        """The leased offsets among others that are not."""
        strangers = {offset for offset in others if (partition.index, offset) not in known.leases}
        return sorted({*leased, *strangers}, reverse=backwards)

    @rule(session=st.integers(0, 2))
    def leave(self, session: int) -> None:
        self.box.broker.leave(self.sessions[session])
        self.sessions[session] = self.box.session()

    # -- time and death -------------------------------------------------------------------

    def turn(self, ms: int, released: int = 0) -> None:
        self.box.turn(ms)
        self.book.time_passed()
        self.book.journal.release(released)

    @rule(ms=TIMES, released=st.integers(0, 3))
    def next_turn(self, ms: int, released: int) -> None:
        self.turn(ms, released)

    @rule(ms=TIMES, data=st.data(), power=st.booleans())
    def restart(self, ms: int, data: st.DataObject, power: bool) -> None:
        def kept(lane: Lane, unsynced: int) -> int:
            return data.draw(st.integers(0, unsynced)) if power else unsynced

        self.crash(ms, kept)

    def crash(self, ms: int, kept: Callable[[Lane, int], int]) -> None:
        journal = self.book.journal.crash(
            lambda lane, unsynced: unsynced if lane[0].startswith("os") else kept(lane, unsynced)
        )
        journal.full = False
        self.box = self.start(journal, self.box.now_ms + ms)
        self.sessions = [self.box.session() for _ in range(3)]
        self.probes, self.pulls = [], []
        self.book.restarted(self.box)

    @rule(
        number=NUMBERS,
        count=st.integers(1, 3),
        what=st.sampled_from(["extend", "extend", "front", "end", "later", "ack"]),
    )
    def settle_and_crash(self, number: int, count: int, what: str) -> None:
        """What was asked for is confirmed, and nothing else comes before the power goes."""
        self.turn(0, 1000)  # the leases themselves are durable
        if what == "ack":
            self.ack(number, count)
        elif what == "extend":
            self.extend(number, count, [], False, 1000)
        else:
            self.nack(number, count, [], False, what == "front", 1000 if what == "later" else 0)
        self.turn(0, 1000)
        self.crash(0, lambda lane, unsynced: 0)

    @rule(full=st.booleans())
    def space(self, full: bool) -> None:
        self.book.journal.full = full

    @invariant()
    def the_book_agrees(self) -> None:
        self.book.agrees()
        for probe in self.pulls:
            assert all(isinstance(answer, Delivered) for answer in probe.answers[:-1])

    # -- the end --------------------------------------------------------------------------

    def rest(self, ms: int = 0) -> None:
        self.turn(ms, 1000)
        for _ in range(1000):
            due_ms = self.box.broker.next_due()
            if due_ms is None or due_ms > self.box.now_ms:
                break
            self.turn(0, 1000)
        else:
            raise AssertionError("the broker does not come to rest")

    def teardown(self) -> None:
        self.book.journal.full = False
        for session in (0, 1, 2):
            self.leave(session)
        self.rest()
        assert not any(probe.open for probe in self.probes), "a ticket was forgotten"
        assert not any(probe.open for probe in self.pulls)
        for _ in range(2000):
            begun = len(self.pulls)
            for number in range(len(GROUPS) * len(TOPICS)):
                self.pull(number, 0, 4, wait_ms=0)
            self.rest()
            while self.leased(0, 1):
                self.ack(0)
            self.rest(100)
            self.rest(1)
            if all(self.drained(probe) for probe in self.pulls[begun:]):
                break
        else:
            raise AssertionError("it never ends")
        self.book.nothing_is_missing()
        waiting = []
        for record in self.book.topics.values():
            for group in itertools.islice(record.topic.groups.values(), 1):
                waiting.append(PullProbe(self.sessions[0]))
                self.box.broker.pull(group, waiting[-1], None)
        self.box.broker.stop()
        self.rest()
        assert not any(pull.open for pull in waiting)

    @staticmethod
    def drained(probe: PullProbe) -> bool:
        answer = probe.answers[-1]
        nothing = (EmptyReason.DRAINED, EmptyReason.FILTERED)
        return isinstance(answer, Empty) and answer.reason in nothing


BrokerMachine.TestCase.settings = examples(
    80, derandomize=True, stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)
TestBroker = BrokerMachine.TestCase


class LongMachine(BrokerMachine):
    """The same, for longer."""


LongMachine.TestCase.settings = settings(BrokerMachine.TestCase.settings, max_examples=250)
TestBrokerForLonger = pytest.mark.check(LongMachine.TestCase)


def test_a_run_of_messages_ends_where_the_disk_does() -> None:
    """Found by the model: a chunk held messages that were not synced yet."""
    machine = BrokerMachine()
    machine.begin(names={"disk"}, groups={"plain"})
    machine.keep_up(count=4, named=False, number=0, released=0, way="put")
    machine.put(
        count=1,
        delay_ms=1,
        expiry_ms=0,
        index=0,
        key=b"",
        named=False,
        number=0,
        tag=b"",
        way="put",
    )
    machine.keep_up(count=3, named=False, number=4, released=1000, way="put")
    machine.teardown()
