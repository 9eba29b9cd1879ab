"""A topic grows while it is used: messages of a key keep their order, whatever else happens."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from tests.core.support import Box, CrashJournal, Probe, again, ranges, refusal
from zbus.core.cursor.backlog import NO_RANK
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Row, make_row
from zbus.core.topics.growth import LINES_MAX, limits
from zbus.core.verbs.seek import Start

LEASES = GroupOptions(lease=True, lease_ms=1_000_000)
ORDERED = GroupOptions(lease=True, lease_ms=1_000_000, order="key")
PLAIN = GroupOptions()


def grow(box: Box, partitions: int, ordered: bool = True) -> Probe:
    options = TopicOptions("T", partitions=partitions, grown=() if ordered else None)
    probe = box.declare(options)
    box.settle()
    return probe


def grown(lines: list[int], partitions: int, options: GroupOptions = LEASES) -> Box:
    """A topic with as many partitions as there are lines, and that many messages in each, that has
    grown."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=len(lines)), "g", options)
    for index, count in enumerate(lines):
        for at in range(count):
            box.put(b"%d-%d" % (index, at), index=index)
    box.settle()
    assert grow(box, partitions).fine
    for index in range(partitions):
        box.put(b"new-%d" % index, index=index)
    box.settle()
    return box


LIMITS: dict[str, tuple[list[int], int, list[int]]] = {
    "from one, the new ones wait for it": ([1], 3, [NO_RANK, 0, 0]),
    "doubled, each waits for its own": ([0, 1], 4, [NO_RANK, NO_RANK, NO_RANK, 0]),
    "of the other": ([1, 0], 4, [NO_RANK, NO_RANK, 0, NO_RANK]),
    "three times as many": ([0, 1], 6, [NO_RANK, NO_RANK, NO_RANK, 0, NO_RANK, 0]),
    "no multiple, all wait for all others": ([1, 1], 3, [1, 1, 0]),
    "no multiple, only for others": ([0, 1], 3, [0, NO_RANK, 0]),
    "a common divisor": ([1, 0, 0, 0], 6, [NO_RANK, NO_RANK, 0, NO_RANK, 0, NO_RANK]),
    "nothing is waited for": ([0, 0], 3, []),
}


@pytest.mark.parametrize("name", LIMITS)
def test_who_waits_for_whom(name: str) -> None:
    lines, partitions, expected = LIMITS[name]
    box = grown(lines, partitions)
    assert limits(box.group()) == expected
    assert limits(again(box).group()) == expected


def test_what_is_put_back_is_waited_for_and_what_has_a_time_of_its_own_is_not() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T"), "g", LEASES)
    box.put(b"0", b"1", b"2")
    box.put(b"in a year", due_ms=box.now_ms + 31_536_000_000)
    box.settle()
    for _ in range(3):
        box.pull()
        box.settle()
    grow(box, 2)
    box.put(b"new", index=1)
    box.settle()
    waiting = box.pull(wait=True)
    box.nack(0, front=False)  # behind the line, by its own wish
    box.settle()
    assert waiting.bodies == [b"0"]
    waiting = box.pull(wait=True)
    box.nack(1, due_ms=box.now_ms + 100)  # as long as it waits, it is out of the way
    box.settle()
    assert waiting.open
    box.ack(2)
    box.settle()
    assert waiting.bodies == [b"new"]
    assert box.take() == []
    box.settle(100)
    assert box.take() == [b"1"]


def test_in_a_group_with_order_a_key_is_waited_for_until_its_message_is_done() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T"), "g", ORDERED)
    put(box, b"k", b"old")
    box.settle()
    assert box.take() == [b"old"]
    grow(box, 3)
    put(box, b"k", b"new")
    box.settle()
    box.nack(0, due_ms=box.now_ms + 100)
    assert box.take() == []
    box.settle(100)
    assert box.take() == [b"old"]
    box.nack(0, front=False)
    assert box.take() == [b"old"]
    box.ack(0)
    assert box.take() == [b"new"]


def test_partitions_that_wait_for_each_other_give_what_was_put_back() -> None:
    box = grown([1, 1], 3, ORDERED)
    for index in range(2):
        box.pull(partition=index)
        box.settle()
        where = box.group(), box.partition(index=index)
        box.broker.nack(Probe(), *where, ranges([0]), front=False)
    box.settle()
    assert limits(box.group()) != []
    assert sorted(box.take()) == [b"0-0", b"1-0"]
    box.ack(0, index=0)
    box.ack(0, index=1)
    assert sorted(box.take()) == [b"new-0", b"new-1", b"new-2"]


@pytest.mark.parametrize("options", [PLAIN, GroupOptions(filter="none.*"), LEASES])
def test_pulls_that_wait_at_a_line_are_served_when_it_is_crossed(options: GroupOptions) -> None:
    """Also by what needs no acknowledgement: what is delivered at once, or left out."""
    box = grown([3], 2, options)
    waiting = box.pull(wait=True, partition=1)
    box.settle()
    assert waiting.open
    done = box.take(count=3)
    if options is LEASES:
        assert len(done) == 3
        for offset in range(3):
            box.ack(offset)
        box.settle()
    if options.filter:
        assert limits(box.group()) == []
    else:
        assert waiting.bodies == [b"new-1"]


def test_a_later_line_is_not_crossed_before_an_earlier_one() -> None:
    """What is in partition 0 may be older than what is in 2, though nothing of its key is in 1."""
    box = grown([1], 2)
    grow(box, 3)
    for index in range(3):
        box.put(b"last-%d" % index, index=index)
    box.settle()
    assert limits(box.group()) == [2, 0, 0]
    assert box.take() == [b"0-0", b"new-0"]
    box.ack(0)
    assert box.take() == [b"new-1"]
    box.ack(1)
    assert box.take() == [b"last-1"]
    box.ack(0, index=1)
    assert sorted(box.take()) == [b"last-0", b"last-2"]


def test_what_is_older_by_two_growths_is_waited_for() -> None:
    """Keys of 3 were in 1, where nothing of them is, and before that in 0."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T"), "g", LEASES)
    box.put(b"old")
    box.settle()
    for partitions in (2, 4):
        grow(box, partitions)
    assert limits(box.group()) == [NO_RANK, 0, 0, 0]
    assert box.take() == [b"old"]
    box.ack(0)
    assert limits(box.group()) == []


def test_who_reads_once_more_reads_in_order() -> None:
    box = grown([2], 2, PLAIN)
    assert box.take() == [b"0-0", b"0-1", b"new-0"]
    assert box.take() == [b"new-1"]
    box.broker.seek(Probe(), box.group(), Start(offset=0))
    box.settle()
    assert box.take() == [b"0-0", b"0-1", b"new-0"]
    box.declare(TopicOptions("T", partitions=2), "later", PLAIN, Start(offset=0))
    box.settle()
    assert box.take("later") == [b"0-0", b"0-1", b"new-0"]
    box.declare(TopicOptions("T", partitions=2), "last", PLAIN, Start(latest=True))
    box.settle()
    assert limits(box.group("last")) == []


def test_without_order_nothing_waits_and_earlier_lines_are_forgotten() -> None:
    box = grown([1], 2)
    assert grow(box, 3, ordered=False).fine
    assert limits(box.group()) == []
    assert limits(again(box).group()) == []
    assert box.topic().options.grown == ((0,),)
    box = grown([1], 2)
    assert grow(box, 2, ordered=False).fine
    assert limits(box.group()) == []


def test_lines_are_limited_and_forgotten_when_nothing_is_before_them() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T"), "g", PLAIN)
    for partitions in range(2, LINES_MAX + 2):
        box.put(b"x")
        box.settle()
        assert grow(box, partitions).fine
    assert "16 times" in refusal(grow(box, LINES_MAX + 2)).text
    box.broker.purge_topic(Probe(), box.topic())
    box.settle()
    assert grow(box, LINES_MAX + 2).fine
    assert box.topic().options.grown == ((0,),)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (2, "the topic has 3 partitions, and cannot have fewer"),
        (65, "partitions must be 1 to 64"),
    ],
)
def test_numbers_that_are_refused(after: int, why: str) -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=3))
    box.settle()
    assert why in refusal(grow(box, after)).text
    assert len(box.topic().partitions) == 3


def put(box: Box, key: bytes, body: bytes) -> tuple[int, Probe]:
    probe, partition = Probe(), box.topic().partition_for(key)
    row: Row = make_row(b"", b"", body, key=key)
    box.broker.put(partition, probe, row)
    return partition.index, probe


# -- a model ------------------------------------------------------------------------------


class World:
    """Keys in a topic that grows, groups that read it, and crashes."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.box = Box(CrashJournal(), segment_bytes_max=random.choice([1, 1 << 20]))
        first = random.randint(1, 3)
        self.groups = {"leases": LEASES, "ordered": ORDERED, "plain": PLAIN}
        for name, options in self.groups.items():
            self.box.declare(TopicOptions("T", partitions=first), name, options)
        self.box.settle()
        # Of each key: number, partition and offset of its messages, in their order.
        self.stored: dict[bytes, list[tuple[int, int, int]]] = {}
        self.count = 0
        self.held: list[tuple[str, int, int]] = []
        self.back: set[tuple[str, int, int]] = set()  # given back, ever
        self.seen: set[tuple[str, int, int]] = set()  # delivered since the last start

    def step(self) -> None:
        kinds = [self.put] * 8 + [self.pull] * 8 + [self.settle_one] * 8
        self.random.choice([*kinds, self.grow, self.crash, self.seek])()

    def put(self) -> None:
        key = b"k%d" % self.random.randrange(8)
        index, probe = put(self.box, key, b"%s %d" % (key, self.count))
        self.stored.setdefault(key, []).append((self.count, index, probe.offset))
        self.count += 1
        if self.random.random() < 0.7:
            self.box.settle(1)

    def grow(self) -> None:
        count = len(self.box.topic().partitions)
        if count < 12:
            self.box.declare(TopicOptions("T", partitions=count + self.random.randint(1, count)))
            if self.random.random() < 0.7:
                self.box.settle(1)

    def pull(self) -> None:
        name = self.random.choice([*self.groups])
        index = self.random.randrange(len(self.box.topic().partitions))
        partition = index if self.random.random() < 0.3 else None
        self.box.settle(1)
        probe = self.box.pull(name, self.random.randint(1, 4), partition=partition)
        self.box.settle()
        for record in probe.records:
            self.delivered(name, record.partition, record.offset, record.message.key)

    def delivered(self, name: str, index: int, offset: int, key: bytes) -> None:
        group = self.box.group(name)
        mine = next(n for n, *place in self.stored[key] if place == [index, offset])
        for number, other, before in self.stored[key]:
            if number >= mine:
                break
            if {(name, other, before), (name, index, offset)} & self.back and not group.ordered:
                continue  # it has another place
            finished = group.backlogs[other].floor() > before or (
                group.backlogs[other].life(before).name == "DONE"
            )
            assert finished or (other == index and (name, other, before) in self.seen), (
                f"{name} gets {number} of {key!r} after {mine}"
            )
        self.seen.add((name, index, offset))
        if group.lease:
            self.held.append((name, index, offset))

    def settle_one(self) -> None:
        if self.held:
            name, index, offset = self.held.pop(self.random.randrange(len(self.held)))
            where = self.box.group(name), self.box.partition(index=index), ranges([offset])
            if self.random.random() < 0.2:
                self.back.add((name, index, offset))
                self.box.broker.nack(Probe(), *where, front=self.random.random() < 0.5)
            else:
                self.box.broker.ack(Probe(), *where)
            if self.random.random() < 0.7:
                self.box.settle(1)

    def seek(self) -> None:
        name = self.random.choice([*self.groups])
        self.box.broker.seek(Probe(), self.box.group(name), Start(offset=0))
        self.box.settle(1)
        self.seen = {one for one in self.seen if one[0] != name}
        self.held = [one for one in self.held if one[0] != name]

    def crash(self) -> None:
        self.box.turn()
        assert isinstance(self.box.journal, CrashJournal)
        before = len(self.box.topic().partitions)
        journal = self.box.journal.crash(lambda lane, count: self.random.randint(0, count))
        self.box = Box(journal, now_ms=self.box.now_ms)
        partitions = self.box.topic().partitions
        assert len(partitions) <= before
        for key, known in self.stored.items():
            self.stored[key] = [
                one for one in known if one[1] < len(partitions) and one[2] < partitions[one[1]].end
            ]
        self.seen, self.held = set(), []
        self.box.settle(1_000_000)  # leases are over

    def drain(self) -> None:
        """All is delivered in the end: no line is waited at for ever."""
        for name in self.groups:
            for _ in range(2_000):
                self.box.settle(1)
                probe = self.box.pull(name, 5)
                self.box.settle()
                if not probe.records and not self.held:
                    break
                for record in probe.records:
                    self.delivered(name, record.partition, record.offset, record.message.key)
                for held, index, offset in self.held:
                    self.box.ack(offset, held, index=index)
                self.held = []
            ends = [partition.end for partition in self.box.topic().partitions]
            assert [b.reached() for b in self.box.group(name).backlogs] == ends
            assert self.box.group(name).leased_count() == 0


def run(seed: int, steps: int = 100) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.drain()


@pytest.mark.parametrize("seed", range(5))
def test_keys_keep_their_order(seed: int) -> None:
    run(seed)


# -- crashes ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 2])
def test_a_message_is_never_where_no_number_of_partitions_puts_it(first: int) -> None:
    """The growth is lost in all partitions but one, in which a message is that came after it."""
    for kept in range(4):
        box = Box(CrashJournal())
        box.declare(TopicOptions("T", partitions=first), "g", LEASES)
        box.put(b"old")
        box.settle()
        box.declare(TopicOptions("T", partitions=4))
        box.put(b"new", index=kept)
        box.turn()
        assert isinstance(box.journal, CrashJournal)
        found = Box(box.journal.crash(partial(_all_of, kept)), now_ms=box.now_ms)
        assert len(found.topic().partitions) == 4
        assert found.partition(index=kept).end == (2 if kept == 0 else 1)
        found.settle()
        assert len(again(found).topic().partitions) == 4
        assert grow(found, 8).fine
        assert len(again(found).topic().partitions) == 8


def _all_of(kept: int, lane: tuple[str, int], count: int) -> int:
    return count if lane[1] == kept else 0


def test_a_line_is_cut_to_what_a_crash_has_left() -> None:
    """What is put in the place of messages that are lost is behind the line, also after that."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=2), "g", LEASES)
    box.settle()
    box.put(b"lost", index=1)
    box.put(b"old", index=0)
    box.declare(TopicOptions("T", partitions=3))
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    found = Box(box.journal.crash(lambda lane, count: 0 if lane[1] == 1 else count))
    assert found.topic().options.grown == ((1, 0),)
    found.put(b"behind", index=1)
    found.settle()
    last = again(found)
    assert last.topic().options.grown == ((1, 0),)
    assert last.take() == [b"old"]
