"""Order per key: what a group hands out, against the book of what is unfinished.

The rule is short: what is handed out is the lowest unfinished message of its key in its partition,
but for those before it in the same batch, and none of that key is leased. And all for which that is
true is handed out to whoever asks for everything.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.core.support import Box, CrashJournal, Probe, PullProbe, again, cool, ranges, refusal
from tests.limits import examples
from tests.records import Record
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery import settle as leases
from zbus.core.log import Found, Size
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.message import Message
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.topic import Partition
from zbus.core.verbs.seek import Start

LEASE_MS = 5_000
DELAY_MS = 3_000
LONG_MS = 6_000
ORDERED = GroupOptions(lease=True, lease_ms=LEASE_MS, window=1_000, order="key")
UNORDERED = attrs.evolve(ORDERED, order="")

Place = tuple[int, int]


@attrs.define
class Fate:
    """What is known of an unfinished message."""

    key: bytes
    leased_ms: int = 0  # until when
    delayed_ms: int = 0


class Book:
    """All unfinished messages, by partition and offset."""

    def __init__(self) -> None:
        self.open: dict[Place, Fate] = {}

    def of_key(self, place: Place) -> list[Place]:
        """All of the key of this one in its partition, which itself is one of them."""
        key = self.open[place].key
        if not key:
            return [place]
        return sorted(p for p, f in self.open.items() if p[0] == place[0] and f.key == key)

    def leased(self, now_ms: int) -> list[Place]:
        return sorted(place for place, fate in self.open.items() if fate.leased_ms > now_ms)

    def deliverable(self, now_ms: int) -> set[Place]:
        """What somebody who asks for everything is given."""
        found: set[Place] = set()
        for place in self.open:
            line = self.of_key(place)
            if any(self.open[p].leased_ms > now_ms for p in line):
                continue
            before = line[: line.index(place) + 1]
            if not any(self.open[p].delayed_ms > now_ms for p in before):
                found.add(place)
        return found

    def delivered(self, records: list[Record], now_ms: int, ordered: bool) -> None:
        batch: list[Place] = []
        before = set(self.leased(now_ms))
        for record in records:
            place = (record.partition, record.offset)
            fate = self.open[place]
            assert place not in before
            assert fate.delayed_ms <= now_ms, "never early"
            if ordered:
                line = self.of_key(place)
                assert not before & set(line), "one holder at a time"
                assert place == next(p for p in line if p not in batch), "the lowest first"
            batch.append(place)
        for place in batch:
            self.open[place].leased_ms = now_ms + LEASE_MS
            self.open[place].delayed_ms = 0


def put(box: Box, *keys: bytes, index: int = 0) -> range:
    """A message for each key, and where they are."""
    partition, probe = box.partition(index=index), Probe()
    first = partition.end
    messages = [Message(b"%d" % at, key=key, body=key) for at, key in enumerate(keys, first)]
    box.broker.put_all(partition, probe, Chunk.of(messages))
    return range(first, partition.end)


NUMBERS = st.integers(0, 30)
KEYS = st.sampled_from([b"", b"a", b"a", b"b", b"c"])


class KeyedMachine(RuleBasedStateMachine):
    """See the module."""

    exact = True  # nothing is left behind because too much is parked

    @initialize(partitions=st.integers(1, 3))
    def begin(self, partitions: int) -> None:
        self.box = Box(CrashJournal(), segment_bytes_max=900)
        self.book = Book()
        self.ordered = True
        self.options = TopicOptions("T", partitions=partitions)
        self.box.declare(self.options, "g", ORDERED)
        self.box.settle()
        self.waiting: list[PullProbe] = []

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), number=NUMBERS)
    def put(self, keys: list[bytes], number: int) -> None:
        index = number % self.options.partitions
        offsets = put(self.box, *keys, index=index)
        self.book.open |= {(index, at): Fate(k) for at, k in zip(offsets, keys, strict=True)}
        self.settle()

    @rule(count=st.integers(1, 4))
    def pull(self, count: int) -> None:
        """Some that wait, so that it is seen who is woken."""
        probe = PullProbe(self.box.session(), PullOptions(count))
        self.box.broker.pull(self.box.group(), probe, None)
        self.waiting.append(probe)
        self.settle()

    @rule()
    def pull_all(self) -> None:
        """Everything that may be handed out is."""
        if self.waiting:
            return
        self.box.broker._tick.put_ms = 0
        expected = self.book.deliverable(self.box.now_ms)
        probe = self.box.pull(count=1_000)
        self.box.settle()
        self.box.settle(1)
        records = probe.records
        self.book.delivered(records, self.box.now_ms - 1, self.ordered)
        places = {(record.partition, record.offset) for record in records}
        if self.ordered and self.exact:
            assert places == expected

    def some(self, number: int, count: int) -> list[Place]:
        leased = self.book.leased(self.box.now_ms)
        if not leased:
            return []
        first = leased[number % len(leased)]
        return [place for place in leased if place[0] == first[0] and place >= first][:count]

    @rule(number=NUMBERS, count=st.integers(1, 3))
    def ack(self, number: int, count: int) -> None:
        places = self.some(number, count)
        if places:
            probe, partition = Probe(), self.box.partition(index=places[0][0])
            where = ranges([offset for _, offset in places])
            assert self.box.broker.ack(probe, self.box.group(), partition, where) == len(places)
            for place in places:
                del self.book.open[place]
            self.settle()

    @rule(
        number=NUMBERS, count=st.integers(1, 3), front=st.booleans(), delay=st.sampled_from([0, 1])
    )
    def nack(self, number: int, count: int, front: bool, delay: int) -> None:
        places = self.some(number, count)
        if places:
            probe, partition = Probe(), self.box.partition(index=places[0][0])
            where = ranges([offset for _, offset in places])
            due_ms = delay and self.box.now_ms + DELAY_MS
            self.box.broker.nack(probe, self.box.group(), partition, where, front, due_ms)
            for place in places:
                self.book.open[place].leased_ms = 0
                self.book.open[place].delayed_ms = due_ms
            self.settle()

    @rule(ms=st.sampled_from([0, 1, LONG_MS]))
    def time_passes(self, ms: int) -> None:
        self.settle(ms)

    @rule()
    def restart(self) -> None:
        """Pulls are gone, leases are not."""
        self.box.settle()
        self.box = again(self.box, 900)
        self.waiting = []

    @rule()
    def forget_chunks(self) -> None:
        """What comes next has to be read."""
        self.settle()
        cool(self.box)

    @rule()
    def switch(self) -> None:
        """Others of a key may be leased then, and it is known of none which key it has."""
        self.ordered = not self.ordered
        options = ORDERED if self.ordered else UNORDERED
        assert self.box.declare(self.options, "g", options).open
        self.settle()

    @rule(number=NUMBERS)
    def empty(self, number: int) -> None:
        if number < 5:
            self.box.broker.purge_group(Probe(), self.box.group())
            self.book.open.clear()
            self.settle()

    def settle(self, ms: int = 0) -> None:
        """What was handed out meanwhile is entered in the book."""
        self.box.settle(ms)
        for probe in list(self.waiting):
            if not probe.open:
                self.waiting.remove(probe)
                self.book.delivered(probe.records, self.box.now_ms, self.ordered)
        if self.waiting and self.ordered and self.exact:
            left = self.book.deliverable(self.box.now_ms)
            assert not left, "somebody waits for it"

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "box"):
            self.box.check()

    def teardown(self) -> None:
        """Whatever happened, all is handed out and acknowledged in the end."""
        if not hasattr(self, "box"):
            return
        for probe in self.waiting:
            self.box.broker.leave(probe.session)
        self.waiting = []
        for _ in range(100):
            self.settle(LONG_MS)
            self.pull_all()
            while self.book.leased(self.box.now_ms):
                self.ack(0, 1_000)
            if not self.book.open:
                return
        raise AssertionError("some are never handed out")


class Crowded(KeyedMachine):
    """Hardly anything may be parked: then others wait, too, but not for ever."""

    exact = False


SETTINGS = examples(60, stateful_step_count=40)


@pytest.mark.parametrize(
    ("machine", "parked_max"), [(KeyedMachine, 10_000), (Crowded, 2)], ids=["roomy", "crowded"]
)
def test_the_lowest_unfinished_of_each_key_is_handed_out_to_one_at_a_time(
    machine: type[KeyedMachine], parked_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zbus.core.log.GROWS_TO", Size(bytes_max=600, count_max=4))
    monkeypatch.setattr("zbus.core.cursor.backlog.PARKED_MAX", parked_max)
    run_state_machine_as_test(machine, settings=SETTINGS)


def boxed(options: GroupOptions = ORDERED, topic: TopicOptions | str = "T") -> Box:
    box = Box(CrashJournal())
    box.declare(topic, "g", options)
    box.settle()
    return box


def give(box: Box, *keys: bytes) -> None:
    put(box, *keys)
    box.settle()


def test_a_busy_key_is_passed_and_its_next_message_comes_when_it_is_free() -> None:
    box = boxed()
    give(box, b"a", b"a", b"b", b"", b"a")
    assert [box.take(count=1) for _ in range(4)] == [[b"a"], [b"b"], [b""], []]
    waiting = box.pull(wait=True)
    box.settle()
    assert waiting.open
    box.ack(0)
    box.settle()
    assert [record.offset for record in waiting.records] == [1]


def test_a_message_that_was_given_back_for_later_keeps_those_behind_it_waiting() -> None:
    box = boxed()
    give(box, b"a", b"a", b"b")
    box.take(count=1)
    box.nack(0, due_ms=box.now_ms + DELAY_MS)
    box.settle()
    assert box.take() == [b"b"]
    box.settle(DELAY_MS)
    assert box.take() == [b"a", b"a"]


def test_what_a_filter_drops_or_expires_waits_for_nobody_and_holds_up_nobody() -> None:
    box = boxed(attrs.evolve(ORDERED, filter="in"))
    late = box.now_ms + 10
    chunk = Chunk.of(
        [
            Message(b"", b"in", b"k", body=b"first"),
            Message(b"", b"out", b"k", body=b"dropped"),
            Message(b"", b"in", b"k", body=b"expires", expires_ms=late),
            Message(b"", b"in", b"k", body=b"last"),
        ]
    )
    box.broker.put_all(box.partition(), Probe(), chunk)
    box.settle()
    assert box.take(count=1) == [b"first"]
    assert box.take() == []
    assert box.group().backlogs[0].ready.parked_count == 2
    box.settle(10)
    box.ack(0)
    box.settle()
    assert box.take() == [b"last"]


def test_with_too_much_parked_the_cursor_waits_until_a_key_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbus.core.cursor.backlog.PARKED_MAX", 3)
    box = boxed()
    give(box, b"hot", b"hot", b"hot", b"hot", b"hot", b"cold")
    assert box.take(count=1) == [b"hot"]
    assert box.take() == []
    assert box.group().backlogs[0].ready.parked_count == 3
    box.nack(0, front=False)  # behind what the cursor never gets to
    box.settle()
    assert box.take() == [b"hot"] * 5 + [b"cold"]


def test_after_a_restart_nothing_goes_out_before_the_busy_keys_are_read() -> None:
    """The reads come late, and one message is finished meanwhile."""
    before = boxed()
    give(before, b"a", b"", b"b", b"a", b"b", b"c")
    assert before.take(count=1) == [b"a"]
    assert before.take(count=1) == [b""]
    assert before.take(count=1) == [b"b"]
    box = again(before)
    late: list[Callable[[], None]] = []
    fetch = box.topic().fetch

    def comes_late(
        partition: Partition, offset: int, portion: Size, done: Callable[[Found], None]
    ) -> None:
        late.append(lambda: fetch(partition, offset, portion, done))

    box.topic().fetch = comes_late
    probe = box.pull(count=10, wait=True)
    box.settle()
    box.settle(1)
    assert probe.open
    box.ack(2)
    while late:
        late.pop()()
        box.settle(100)
    assert probe.bodies[0] == b"b"
    assert b"a" not in probe.bodies
    box.ack(0)
    box.settle()
    rest = box.pull(count=10, wait=True)
    for _ in range(20):
        while late:
            late.pop()()
        box.settle(100)
    assert sorted(probe.bodies + rest.bodies) == [b"a", b"b", b"c"]


def test_a_message_that_nobody_wants_any_more_frees_its_key() -> None:
    """The caller is gone; what was given back of it is not handed out again."""
    box = boxed(topic=TopicOptions("T", durability="os", calls=True))
    give(box, b"a", b"a")
    assert box.take(count=1) == [b"a"]
    box.nack(0, due_ms=box.now_ms + DELAY_MS)
    waiting = box.pull(wait=True)
    box.settle()
    assert waiting.open
    leases.withdraw(box.broker._dispatch.runs, box.partition(), 0)
    box.settle()
    assert [record.offset for record in waiting.records] == [1]


def test_what_the_log_forgets_frees_its_key() -> None:
    """A memory topic that keeps two messages: the one handed out and those parked fall off."""
    options = TopicOptions("T", durability="memory", retention_count=2)
    box = boxed(topic=options)
    give(box, b"a", b"a", b"a")
    assert box.take(count=1) == [b"a"]
    assert box.take() == []
    box.broker.put(box.partition(), Probe(), make_row(b"", b"", b"x" * 10, b"", b"b"))
    give(box, b"a", b"a")
    for _ in range(5):
        box.settle(2_000)
    box.check()
    first = box.partition().first
    probe = box.pull(count=100)
    box.settle(LONG_MS)
    box.settle(1)
    probe = probe if probe.records else box.pull(count=100)
    box.settle()
    assert {record.offset for record in probe.records} >= set(range(max(first, 3), 6))


def test_a_message_that_found_no_room_leaves_no_trace() -> None:
    box = boxed()
    give(box, b"a", b"a")
    assert box.take(count=1) == [b"a"]
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    journal.full = True
    put(box, b"a", b"b")
    box.settle()
    journal.full = False
    give(box, b"b", b"a")
    assert box.take() == [b"b"]
    box.ack(0)
    box.settle()
    assert box.take() == [b"a", b"a"]


def test_a_new_group_takes_over_what_is_parked_in_another() -> None:
    box = boxed()
    give(box, b"a", b"a", b"b")
    assert box.take(count=1) == [b"a"]
    assert box.take() == [b"b"]
    box.declare("T", "copy", ORDERED, Start(copy="g"))
    box.settle()
    assert box.take("copy") == [b"a", b"a", b"b"]


REFUSED = [
    (TopicOptions("T"), attrs.evolve(ORDERED, order="id"), "order is key, priority or none"),
    (TopicOptions("T"), attrs.evolve(ORDERED, lease=False), "needs acknowledgements"),
    (TopicOptions("T"), attrs.evolve(ORDERED, lease=None), "needs acknowledgements"),
    (TopicOptions("T", lease=True), attrs.evolve(ORDERED, lease=False), "needs acknowledgements"),
]


@pytest.mark.parametrize(("topic", "group", "why"), REFUSED)
@pytest.mark.parametrize("known", [False, True])
def test_an_order_that_cannot_be_kept_is_refused(
    topic: TopicOptions, group: GroupOptions, why: str, known: bool
) -> None:
    box = Box(CrashJournal())
    if known:
        box.declare(topic, "g", ORDERED)
        give(box, b"a", b"a")
    probe = box.declare(topic, "g", group)
    box.settle()
    assert why in refusal(probe).text
    if known:
        assert [box.take(count=1), box.take()] == [[b"a"], []], "as it was"


def test_a_topic_does_not_take_the_leases_from_a_group_with_order() -> None:
    box = boxed(attrs.evolve(ORDERED, lease=None), TopicOptions("T", lease=True))
    probe = box.declare(TopicOptions("T"))
    box.settle()
    assert "group g: an order needs acknowledgements" in refusal(probe).text
    both = box.declare(TopicOptions("T"), "g", attrs.evolve(ORDERED, order="", lease=None))
    box.settle()
    assert both.fine


@pytest.mark.parametrize(
    "topic", [TopicOptions("T", competing=True), TopicOptions("T", durability="os", calls=True)]
)
def test_other_kinds_of_topics_keep_the_order_too(topic: TopicOptions) -> None:
    box = boxed(topic=topic)
    give(box, b"a", b"a", b"b")
    assert [box.take(count=1) for _ in range(3)] == [[b"a"], [b"b"], []]
