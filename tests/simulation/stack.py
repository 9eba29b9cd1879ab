"""A broker over the real journal over a simulated disk, driven verb by verb under one seed, and a
ledger of what it promised. `check` holds a disk against the ledger: whatever was on the disk when
the process or the machine went, a new broker must come up with all that was promised, and with
nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import attrs

from tests.core.support import PullProbe, ranges, wishing
from tests.records import records_of
from tests.simulation.desk import Desk
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.model.pull_options import PullOptions
from zbus.core.model.ticket import Ticket
from zbus.core.topics.outcomes import Declared, Delivered, Done, Outcome, Stored
from zbus.core.topics.topic import Group, Partition, Session, Topic
from zbus.core.verbs.declare import GroupWish
from zbus.storage.format.batch import decode_chunk, iterate
from zbus.storage.port import JournalError, Lane
from zbus.testing.disk import Disk

YES, NO, MAYBE = "there", "gone", "asked for"


class Told(Ticket):
    """Calls back with its outcome."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[Outcome], None]) -> None:
        super().__init__()
        self._tell = tell

    def answer(self, outcome: Outcome) -> None:
        self._tell(outcome)


class Extension:
    """A lease is to end then."""

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.confirmed = False


class GroupBook:
    """What was promised of a group. `start` and the floors are offsets by partition."""

    def __init__(self, lease: bool, start: list[int]) -> None:
        self.exists = MAYBE
        self.lease = lease
        self.start = start
        self.maybe_done: set[tuple[int, int]] = set()  # asked for, or delivered without a lease
        self.done: set[tuple[int, int]] = set()
        # The ends of a lease that were asked for one after the other, while it was one lease.
        self.extended: dict[tuple[int, int], list[Extension]] = {}
        self.floor_asked = [0] * len(start)
        self.floor = [0] * len(start)

    def places(self) -> tuple[list[int], ...]:
        """What it has of each partition."""
        return self.start, self.floor_asked, self.floor


class TopicBook:
    """What was promised of a topic."""

    def __init__(self, durability: str, partitions: int) -> None:
        self.exists = MAYBE
        self.durability = durability
        self.sent: dict[bytes, Message] = {}
        self.stored: list[dict[int, bytes]] = [{} for _ in range(partitions)]  # acknowledged
        self.purge_asked = [0] * partitions
        self.partitions = partitions  # that were acknowledged
        self.groups: dict[str, GroupBook] = {}

    def fit(self, count: int) -> None:
        """The topic has that many partitions: it has grown, or a crash has taken that."""
        for line in (self.purge_asked, *(p for g in self.groups.values() for p in g.places())):
            line[count:] = [0] * (count - len(line))
        self.stored[count:] = [{} for _ in range(len(self.stored), count)]


class Stack(Desk):
    """A run that keeps the ledger. `step` is a turn of what the seed says."""

    def __init__(
        self,
        disk: Disk,
        random: Random,
        *,
        books: dict[str, TopicBook] | None = None,
        serials: itertools.count[int] | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of a `Desk`."""
        super().__init__(disk, **options)
        self.random = random
        self.books: dict[str, TopicBook] = {} if books is None else books
        self.serials = itertools.count() if serials is None else serials
        self.refused = 0
        self.session = Session(b"s", "127.0.0.1:1")

    # -- turns ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Turn until all that was asked for is durable."""
        for _ in range(200):
            self.work()
            busy = self.posted or self.broker._dispatch.runs.active or self.broker._tick.touched
            if not busy and not any(worker.jobs for worker in self.workers):
                return
            self.now_ms += 5
            self.turn()
            if self.failures:
                return

    def step(self) -> None:
        """What the seed says: some verbs in one turn, time, a sync."""
        random = self.random
        self.now_ms += random.choice((0, 0, 1, 7, 100, 1500))
        if random.random() < 0.15:
            self.journal.upkeep(self.now_ms)
        verbs = [self.verb() for _ in range(random.choice((0, 1, 1, 2, 4)))]
        if random.random() < 0.02:
            verbs += [self.put] * 50  # a burst, which makes batches of many messages
        self.turn(*verbs)
        for worker in self.workers:
            if worker.jobs and random.random() < 0.6:
                worker.run(1)

    def verb(self) -> Callable[[], None]:
        verbs = [self.put, self.put, self.put, self.put_all, self.pull, self.pull, self.pull]
        verbs += [self.ack, self.ack, self.ack, self.nack, self.extend, self.declare]
        rare = [self.remove_topic, self.remove_group, self.purge_topic, self.purge_group]
        rare += [self.grow] * 3
        return self.random.choice(rare if self.random.random() < 0.04 else verbs)

    # -- verbs ----------------------------------------------------------------------------

    def _topic(self) -> tuple[Topic, TopicBook] | None:
        topics = [topic for name, topic in sorted(self.broker.topics.items())]
        if not topics:
            return None
        topic = self.random.choice(topics)
        return topic, self.books[topic.name]

    def _group(self) -> tuple[Topic, TopicBook, Group, GroupBook] | None:
        found = self._topic()
        if found is None or not found[0].groups:
            return None
        topic, book = found
        name = self.random.choice(sorted(topic.groups))
        return topic, book, topic.groups[name], book.groups[name]

    def message(self) -> Message:
        random = self.random
        serial = b"m%d." % next(self.serials)
        size = 6_000 if random.random() < 0.04 else random.choice((0, 20, 200, 900))
        body = serial + random.randbytes(size)
        due_ms = self.now_ms + random.choice((50, 2000)) if random.random() < 0.1 else 0
        return Message(serial, body=body, produced_ms=self.broker.now_ms, due_ms=due_ms)

    def put(self) -> None:
        self._put([self.message()])

    def put_all(self) -> None:
        self._put([self.message() for _ in range(self.random.randint(2, 6))])

    def _put(self, messages: list[Message]) -> None:
        found = self._topic()
        if found is None:
            return
        topic, book = found
        partition = self.random.choice(topic.partitions)
        book.sent.update((message.body, message) for message in messages)

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Stored):
                for offset, message in enumerate(messages, ticket.offset):
                    assert offset not in book.stored[partition.index], "an offset is given twice"
                    book.stored[partition.index][offset] = message.body
            else:
                self.refused += 1

        ticket = Told(told)
        if len(messages) == 1 and not (messages[0].due_ms or messages[0].expires_ms):
            one = messages[0]
            labels = one.tag, one.key
            self.broker.put(partition, ticket, make_row(one.id, one.headers, one.body, *labels))
        else:
            self.broker.put_all(partition, ticket, Chunk.of(messages))

    def declare(self) -> None:
        random = self.random
        name = random.choice("abc")
        topic = self.broker.topic(name)
        book = self.books.get(name)
        if topic is None:
            durability = "os" if name == "c" else "disk"
            partitions = random.choice((1, 1, 3))
            options = TopicOptions(name, partitions=partitions, durability=durability)
            old = book.sent if book is not None and book.exists != NO else {}
            book = self.books[name] = TopicBook(durability, partitions)
            book.sent.update(old)  # the removal may turn out not to have happened
        else:
            options = topic.options
        assert book is not None
        group_name, lease = random.choice((("x", True), ("y", True), ("z", False)))
        wish = GroupWish(group_name, GroupOptions(lease=lease, lease_ms=3000, window=20))
        ticket = Told(partial(self._declared, book, group_name))
        is_new = topic is None or topic.group(group_name) is None
        self.broker.declare(ticket, name, wishing(options, wish))
        group = self.broker.topics[name].groups[group_name]
        if is_new:
            book.groups[group_name] = GroupBook(lease, group.position())

    def grow(self) -> None:
        found = self._topic()
        if found is None or len(found[0].partitions) > 6:
            return
        topic, book = found
        count = len(topic.partitions) + self.random.randint(1, 2)

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Declared):
                book.partitions = max(book.partitions, count)

        options = attrs.evolve(topic.options, partitions=count)
        book.fit(count)  # it is written at once, and the power may be cut there
        self.broker.declare(Told(told), topic.name, wishing(options, None))
        book.fit(len(topic.partitions))

    def _declared(self, book: TopicBook, name: str, outcome: Outcome) -> None:
        if isinstance(outcome, Declared):
            if self.broker.topic(outcome.topic.name) is not outcome.topic:
                return  # its removal was asked for since then, and may be durable before it is told
            if book.exists == MAYBE:
                book.exists = YES
            if outcome.topic.groups.get(name) is outcome.group:
                book.groups[name].exists = YES
        else:
            self.refused += 1

    def remove_topic(self) -> None:
        found = self._topic()
        if found is None:
            return
        topic, book = found
        book.exists = MAYBE

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Done) and not self.failures:
                book.exists = NO

        self.broker.remove_topic(Told(told), topic)

    def remove_group(self) -> None:
        found = self._group()
        if found is None:
            return
        _, _, group, group_book = found
        group_book.exists = MAYBE

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                group_book.exists = NO

        self.broker.remove_group(Told(told), group)

    def purge_topic(self) -> None:
        found = self._topic()
        if found is None or any(partition.staged for partition in found[0].partitions):
            return
        topic, book = found
        ends = [partition.end for partition in topic.partitions]
        book.purge_asked = [max(pair) for pair in zip(book.purge_asked, ends, strict=True)]
        calls = [self._purged(topic, book.groups[name]) for name in sorted(topic.groups)]

        def told(outcome: Outcome) -> None:
            for call in calls:
                call(outcome)

        self.broker.purge_topic(Told(told), topic)

    def purge_group(self) -> None:
        found = self._group()
        if found is None or any(partition.staged for partition in found[0].partitions):
            return
        topic, _, group, group_book = found
        self.broker.purge_group(Told(self._purged(topic, group_book)), group)

    def _purged(self, topic: Topic, book: GroupBook) -> Callable[[Outcome], None]:
        ends = [partition.end for partition in topic.partitions]
        book.floor_asked = [max(pair) for pair in zip(book.floor_asked, ends, strict=True)]
        book.extended.clear()

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                ends.extend([0] * (len(book.floor) - len(ends)))  # it has grown meanwhile
                book.floor[:] = [max(pair) for pair in zip(book.floor, ends, strict=True)]

        return told

    def pull(self) -> None:
        found = self._group()
        if found is None:
            return
        _, _, group, book = found

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Delivered) and not book.lease:
                given = records_of(outcome.pieces)
                book.maybe_done.update((r.partition, r.offset) for r in given)

        pull = PullProbe(self.session, PullOptions(self.random.choice((1, 3))), told)
        self.broker.pull(group, pull, self.now_ms)

    def _leased(self) -> tuple[Group, GroupBook, Partition, list[int]] | None:
        """Some leases of a group in one partition, in any order."""
        found = self._group()
        if found is None:
            return None
        topic, _, group, book = found
        held = [
            (partition, list(group.backlogs[partition.index].leased))
            for partition in topic.partitions
            if group.backlogs[partition.index].leased
        ]
        if not held:
            return None
        partition, offsets = self.random.choice(held)
        count = min(len(offsets), self.random.choice((1, 1, 2, 4)))
        return group, book, partition, self.random.sample(offsets, count)

    def ack(self) -> None:
        found = self._leased()
        if found is None:
            return
        group, book, partition, offsets = found
        places = {(partition.index, offset) for offset in offsets}
        book.maybe_done |= places
        for place in places:
            book.extended.pop(place, None)

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                book.done.update(places)

        self.broker.ack(Told(told), group, partition, ranges(offsets))

    def nack(self) -> None:
        found = self._leased()
        if found is None:
            return
        group, book, partition, offsets = found
        for offset in offsets:
            book.extended.pop((partition.index, offset), None)
        due_ms = self.now_ms + 500 if self.random.random() < 0.3 else 0
        front = self.random.random() < 0.5
        ticket = Told(lambda outcome: None)
        self.broker.nack(ticket, group, partition, ranges(offsets), front, due_ms)

    def extend(self) -> None:
        found = self._leased()
        if found is None:
            return
        group, book, partition, offsets = found
        deadline_ms = self.now_ms + self.random.choice((100, 5_000, 60_000))
        asked = []
        for offset in offsets:
            known = book.extended.setdefault((partition.index, offset), [])
            if any(one.deadline_ms <= self.now_ms for one in known):
                known.clear()  # the lease is another one by now
            known.append(one := Extension(deadline_ms))
            asked.append(one)

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                for one in asked:
                    one.confirmed = True

        self.broker.extend(Told(told), group, partition, ranges(offsets), deadline_ms)


def adopt(stack: Stack, power_cut: bool) -> None:
    """What was only asked for may have happened or not: go on with what was found."""
    for book in stack.books.values():
        if power_cut and book.durability == "os" and book.exists == YES:
            book.exists = MAYBE
    for name, topic in stack.broker.topics.items():
        book = stack.books[name]
        book.fit(len(topic.partitions))
        if book.exists != YES:
            fresh = stack.books[name] = TopicBook(book.durability, len(topic.partitions))
            fresh.sent = book.sent
            book = fresh
        for group_name, group in topic.groups.items():
            known = book.groups.get(group_name)
            if known is None or known.exists != YES:
                book.groups[group_name] = GroupBook(group.lease, group.position())


# -- holding a disk against the ledger ----------------------------------------------------


def read_all(stack: Stack, lane: Lane, first: int, end: int) -> dict[int, Message]:
    """Every message of a lane by offset, straight from the journal."""
    found: dict[int, Message] = {}
    offset = first
    while offset < end:
        answers: list[bytes | JournalError] = []
        stack.journal.read(lane, offset, 1 << 20, answers.append)
        stack.work()
        stack.run_posted()
        answer = answers[0]
        if isinstance(answer, JournalError):
            raise answer
        for batch in iterate(answer):
            for at, message in enumerate(decode_chunk(batch).messages(), batch.header.base_offset):
                assert at not in found, f"{lane} holds offset {at} twice"
                found[at] = message
        assert max(found, default=-1) >= offset, f"{lane} does not give offset {offset}"
        offset = max(found) + 1
    return found


def check(stack: Stack, books: dict[str, TopicBook], power_cut: bool) -> None:
    """A broker that came up again has everything that was promised, and nothing else."""
    topics = stack.broker.topics
    for name in topics:
        assert name in books, f"there is a topic {name} that nobody declared"
    for name, book in books.items():
        topic = topics.get(name)
        promised = book.durability == "disk" or not power_cut
        assert topic is not None or book.exists != YES or not promised, f"topic {name} is lost"
        assert topic is None or book.exists != NO, f"topic {name} was removed and is there"
        if topic is not None:
            known = book.partitions if promised and book.exists == YES else 1
            assert len(topic.partitions) >= known, f"topic {name} has fewer partitions"
            for partition in topic.partitions:
                _check_partition(stack, partition, book, promised and book.exists == YES, power_cut)
            if promised and book.exists == YES:
                _check_groups(topic, book, stack.now_ms)


def _check_partition(
    stack: Stack, partition: Partition, book: TopicBook, promised: bool, power_cut: bool
) -> None:
    first = partition.first
    lane = partition.lane
    try:
        found = (
            read_all(stack, lane, first, partition.end) if partition.stored.segment_bytes else {}
        )
    except JournalError:
        if promised:
            raise
        return  # an older segment with a hole; said to whoever asks
    bodies = [message.body for message in found.values()]
    assert len(set(bodies)) == len(bodies), f"{lane} holds a message twice"
    for offset, message in found.items():
        sent = book.sent.get(message.body)
        assert sent is not None, f"{lane} at {offset}: nobody sent {message.body[:20]!r}"
        assert message.due_ms == sent.due_ms
        assert message.id == sent.id
    if promised:
        asked = book.purge_asked[partition.index]
        end = max(book.stored[partition.index], default=-1) + 1
        assert partition.end >= end, f"{lane} ends at {partition.end}, before {end}"
        for offset, body in book.stored[partition.index].items():
            if offset >= asked:
                assert offset in found, f"{lane} lost offset {offset}"
                assert found[offset].body == body, f"{lane} has another message at {offset}"


def _check_groups(topic: Topic, book: TopicBook, now_ms: int) -> None:
    for name, group_book in book.groups.items():
        group = topic.groups.get(name)
        if group is None:
            assert group_book.exists != YES, f"{topic.name}: group {name} is lost"
            continue
        assert group_book.exists != NO, f"{topic.name}: group {name} was removed and is there"
        if group_book.exists == YES:
            for partition in topic.partitions:
                _check_backlog(partition, group, book, group_book, now_ms)


def _check_backlog(
    partition: Partition, group: Group, book: TopicBook, group_book: GroupBook, now_ms: int
) -> None:
    index = partition.index
    backlog = group.backlogs[index]
    where = f"{partition.lane}, group {group.name}"
    begin = max(group_book.start[index], group_book.floor_asked[index], book.purge_asked[index])
    for offset, body in book.stored[index].items():
        life = backlog.life(offset)
        if (index, offset) in group_book.done or offset < group_book.floor[index]:
            assert life is MessageState.DONE, f"{where}: {offset} was settled, and is {life}"
        elif offset >= begin and (index, offset) not in group_book.maybe_done:
            assert life is not MessageState.DONE, f"{where}: {offset} was skipped"
            if life is MessageState.READY and offset < backlog.cursor:
                assert book.sent[body].due_ms <= now_ms, f"{where}: {offset} is ready too early"
    for (at, offset), extensions in group_book.extended.items():
        confirmed = [number for number, one in enumerate(extensions) if one.confirmed]
        ends = {one.deadline_ms for one in extensions[confirmed[-1] :]} if confirmed else set()
        if at == index and ends and min(ends) > now_ms:
            found = backlog.leased.due_of(offset) if offset in backlog.leased else None
            assert found in ends, f"{where}: the lease of {offset} was extended, and ends {found}"
