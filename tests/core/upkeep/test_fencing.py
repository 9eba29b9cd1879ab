"""A partition whose storage failed: who asks for it is told so, it is read again, others go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
import pytest

from tests.core.support import Box, Probe, cool, ranges, refusal
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.fanout.subscribers import Subscriber
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.message import Message
from zbus.core.topics.outcomes import Outcome, Peeked
from zbus.core.topics.topic import Session
from zbus.core.verbs.puts import PutOptions
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import JournalDamage, JournalError, ReadDone, Verdict
from zbus.testing.late import LateJournal

LEASED = GroupOptions(lease=True, lease_ms=1_000)
FATES = pytest.mark.parametrize("fate", [Verdict.LOST, Verdict.CONFLICT, Verdict.FULL])


class LateBox(Box):
    """A broker on an engine whose answers come when a test wants them."""

    def __init__(self, partitions: int = 1, durability: str = "disk") -> None:
        self.posted: deque[Callable[[], None]] = deque()
        self.stored = MemoryJournal()
        self.late = LateJournal(self.posted.append, self.stored)
        super().__init__(self.late, wait=self.run_posted)
        self.declare(TopicOptions("T", durability=durability, partitions=partitions), "g", LEASED)
        self.settle()

    def run_posted(self) -> None:
        while self.posted:
            self.posted.popleft()()

    def settle(self, ms: int = 0) -> None:
        self.turn(ms)
        for _ in range(1_000):
            self.late.run()
            self.run_posted()
            due_ms = self.broker.next_due()
            if not (self.late.waiting or self.posted) and (due_ms is None or due_ms > self.now_ms):
                return
            self.turn()
        raise AssertionError("the broker does not come to rest")

    def fail(self, index: int = 0, fate: Verdict = Verdict.LOST, written: bool = False) -> Probe:
        """A put of which that becomes; the partition is fenced, and not read again yet."""
        put = self.put(b"doomed", index=index)
        self.turn()
        lane = ("T", index)
        self.late.step(lane, fate, written)
        self.late.step(lane)
        self.run_posted()
        assert self.partition(index=index).fenced is not None
        return put


@FATES
@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_put_that_failed_is_told_so_and_the_next_is_stored(
    fate: Verdict, durability: str, partitions: int
) -> None:
    box = LateBox(partitions, durability)
    index = partitions - 1
    box.put(b"before", index=index)
    box.settle()
    put = box.fail(index, fate)
    assert refusal(put).refusal is Refusal.FENCED
    assert fate.value in refusal(put).text
    box.settle()
    again = box.put(b"after", index=index)
    box.settle()
    assert again.fine
    assert again.offset == 1
    assert box.take() == [b"before", b"after"]


def test_one_whose_answer_was_lost_may_be_there() -> None:
    box = LateBox()
    put = box.fail(written=True)
    assert refusal(put).refusal is Refusal.FENCED
    box.settle()
    assert box.take() == [b"doomed"]


class Following(Subscriber):
    """Remembers why it ended."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, lambda data: None)
        self.answers: list[Outcome] = []

    def begin(self, position: list[int]) -> None:
        pass

    def answer(self, outcome: Outcome) -> None:
        self.answers.append(outcome)


class Plain:
    """Messages as their bodies."""

    def encode(
        self, topic: object, index: int, chunk: Chunk, at: int, position: list[int]
    ) -> bytes:
        return chunk.bodies[at]

    def encode_gap(self, count: int, position: list[int]) -> bytes:
        return b""


def asked(box: LateBox, verb: Callable[[Probe], object]) -> list[Outcome]:
    probe = Probe()
    verb(probe)
    box.turn()
    return probe.answers


def keyed(key: bytes) -> Chunk:
    return Chunk.of([Message(b"1", body=b"keyed", once=key)])


VERBS: dict[str, Callable[[LateBox, Probe], object]] = {
    "put": lambda box, probe: box.broker.put(box.partition(), probe, make_row(b"1", b"", b"x")),
    "put with a key": lambda box, probe: box.broker.put(
        box.partition(), probe, make_row(b"1", b"", b"x", once=b"key")
    ),
    "put where it ends": lambda box, probe: box.broker.put_all(
        box.partition(),
        probe,
        Chunk.of([Message(b"1", body=b"x")]),
        PutOptions(expected_offset=box.partition().end),
    ),
    "ack": lambda box, probe: box.broker.ack(probe, box.group(), box.partition(), ranges([0])),
    "nack": lambda box, probe: box.broker.nack(probe, box.group(), box.partition(), ranges([0])),
    "extend": lambda box, probe: box.broker.extend(
        probe, box.group(), box.partition(), ranges([0]), box.now_ms + 9_000
    ),
    "declare a group": lambda box, probe: probe.settle(declared(box)),
    "remove a group": lambda box, probe: box.broker.remove_group(probe, box.group()),
    "empty the topic": lambda box, probe: box.broker.purge_topic(probe, box.topic()),
    "empty a group": lambda box, probe: box.broker.purge_group(probe, box.group()),
    "peek": lambda box, probe: box.broker.peek(probe, box.partition(), 0),
    "browse": lambda box, probe: box.broker.browse(probe, box.partition(), 0, 10),
    "read": lambda box, probe: box.broker.read(probe, box.partition(), 0, 1_000),
}


def declared(box: LateBox) -> Outcome:
    probe = box.declare("T", "other")
    box.turn()
    return probe.answers[0]


@pytest.mark.parametrize("verb", VERBS)
def test_everything_else_is_told_to_ask_again(verb: str) -> None:
    """And is done as if nothing had been, when it asks again."""
    box = LateBox()
    box.put(b"a", b"b")
    box.settle()
    pull = box.pull()
    box.settle()
    box.settle(10)  # that it is leased is written
    assert pull.bodies == [b"a"]
    box.fail()
    (answer,) = asked(box, lambda probe: VERBS[verb](box, probe))
    assert isinstance(answer, BrokerError), answer
    assert answer.refusal is Refusal.FENCED
    box.settle()
    probe = Probe()
    if verb == "declare a group":
        probe = box.declare("T", "other")
    else:
        VERBS[verb](box, probe)
    box.settle()
    assert not isinstance(probe.answers[0], BrokerError), probe.answers


def test_followers_are_told_and_come_back() -> None:
    box = LateBox()
    sessions = [box.session() for _ in range(3)]
    before, during, after = [Following(session) for session in sessions]
    box.broker.follow(before, Plain(), [box.partition()])
    box.fail()
    box.broker.follow(during, Plain(), [box.partition()])
    for ended in (before, during):
        (why,) = ended.answers
        assert isinstance(why, BrokerError)
        assert why.refusal is Refusal.FENCED
    box.settle()
    box.broker.follow(after, Plain(), [box.partition()])
    box.settle()
    assert after.answers == []


def test_pulls_wait_and_are_served_when_it_was_read() -> None:
    box = LateBox()
    pull = box.pull(wait=True)
    box.fail(written=True)
    late = box.pull(wait=True)
    box.turn()
    assert pull.open
    assert late.open
    box.settle()
    assert pull.bodies == [b"doomed"]
    put = box.put(b"next")
    box.settle()
    assert put.fine
    assert late.bodies == [b"next"]


def test_what_was_staged_in_the_turn_that_reads_it_again_is_refused() -> None:
    box = LateBox()
    box.fail()
    box.late.run()
    box.run_posted()  # all before it is done
    box.late.run()
    put = box.put(b"x")
    ack = box.ack(0)
    box.run_posted()  # it is read
    assert refusal(put).refusal is Refusal.FENCED
    assert refusal(ack).refusal is Refusal.FENCED
    box.settle()
    assert box.take() == []


@pytest.mark.parametrize("index", [0, 1])
def test_who_asks_again_as_the_first_is_refused_is_answered(index: int) -> None:
    """At that moment the partitions are read: what is asked for would be forgotten with them."""
    box = LateBox(2)
    box.fail()
    box.late.run()
    box.run_posted()
    box.late.run()
    asked: list[Probe] = []

    def ask_again(outcome: Outcome) -> None:
        asked.append(Probe())
        box.broker.confirm(box.partition(index=index), asked[-1])
        asked.append(box.put(b"again", index=1 - index))

    first = Probe(ask_again)
    box.broker.confirm(box.partition(index=1), first)
    box.run_posted()  # they are read
    box.settle()
    assert len(asked) == 2
    assert not any(probe.open for probe in [first, *asked])


def test_other_partitions_and_topics_go_on() -> None:
    box = LateBox(3)
    box.declare("U", "g", LEASED)
    box.settle()
    box.fail(1)
    for index, topic in ((0, "T"), (2, "T"), (0, "U")):
        put = box.put(b"%s %d" % (topic.encode(), index), index=index, topic=topic)
        box.turn()
        for _ in range(3):
            if (topic, index) in box.late.waiting:
                box.late.step((topic, index))
        box.run_posted()
        assert put.fine
    assert box.partition(index=1).fenced is not None
    pull = box.pull(count=10)
    box.turn()
    assert pull.bodies == [b"T 0", b"T 2"]


def test_puts_without_a_key_go_to_partitions_that_serve() -> None:
    box = LateBox(3)
    box.fail(1)
    for _ in range(6):
        assert box.topic().partition_for(b"").index != 1
        put = Probe()
        box.broker.put(box.topic().partition_for(b""), put, make_row(b"", b"", b"x"))
        box.turn()


def test_partition_0_is_read_with_all_others() -> None:
    """It decides about the topic; what was confirmed of the others stays."""
    box = LateBox(3)
    options = box.topic().options
    for index in range(3):
        box.put(b"%d" % index, index=index)
    box.settle()
    declared = box.declare(options, "other")
    box.turn()
    on_its_way = box.put(b"more", index=2)
    box.turn()
    box.late.step(("T", 0), Verdict.LOST)
    box.late.step(("T", 0))
    box.settle()
    assert refusal(declared).refusal is Refusal.FENCED
    assert on_its_way.fine, "nothing was wrong there"
    assert box.topic().group("other") is None
    assert sorted(box.take()) == [b"0", b"1", b"2", b"more"]
    assert box.declare(options, "other").open
    box.settle()
    assert box.topic().group("other") is not None
    assert box.take("other") == []


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_partition_0_says_which_options_a_group_has(order: list[int]) -> None:
    """Whichever is read first: others know them only as of when they were told of them last."""
    box = LateBox(3)
    paused = attrs.evolve(LEASED, paused=True)
    box.declare(box.topic().options, "g", paused)
    box.settle()
    box.fail(0)
    for index in 2 * order:  # what was appended before comes first
        while ("T", index) in box.late.waiting:
            box.late.step(("T", index))
        box.run_posted()
    box.turn()
    assert box.partition().fenced is None
    assert box.group().options == attrs.evolve(paused, created_ms=box.group().options.created_ms)


def test_a_topic_that_was_never_made_is_gone() -> None:
    box = LateBox()
    probe = box.declare("New", "g")
    pull = box.pull(topic="New", wait=True)
    box.turn()
    box.late.step(("New", 0), Verdict.LOST)
    box.settle()
    assert refusal(probe).refusal is Refusal.FENCED
    assert refusal(pull).refusal is Refusal.TOPIC_UNKNOWN
    assert box.broker.topic("New") is None
    box.declare("New", "g")
    box.settle()
    assert box.put(b"x", topic="New").open
    box.settle()
    assert box.take(topic="New") == [b"x"]


def test_what_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    box = LateBox()
    opened: list[bool] = []

    def no_way(lanes: object, found: object, done: Callable[[JournalDamage | None], None]) -> None:
        opened.append(True)
        done(JournalDamage("nobody is there"))

    with monkeypatch.context() as patched:
        patched.setattr(box.late, "open", no_way)
        box.fail(written=True)
        box.settle()
        assert opened == [True]
        put = box.put(b"x")
        box.settle()
        assert "nobody is there" not in refusal(put).text  # it is why it was fenced that counts
        box.settle(999)
        assert opened == [True]
        box.settle(1)
        assert opened == [True, True]
    box.settle(1_000)
    assert box.take() == [b"doomed"]


def test_a_topic_that_is_removed_while_it_is_read() -> None:
    box = LateBox()
    box.fail()
    gone = Probe()
    box.broker.remove_topic(gone, box.topic())
    box.settle()
    assert gone.fine
    assert box.broker.topic("T") is None


def test_an_ack_waits_for_the_decision_it_builds_on() -> None:
    """The group was emptied just now. If that is lost, so is the ack: it is of what comes after."""
    box = LateBox(3)
    box.put(b"a", index=2)
    box.settle()
    pull = box.pull()
    box.settle()
    box.settle(10)
    assert pull.bodies == [b"a"]
    emptied = Probe()
    box.broker.purge_group(emptied, box.group())
    box.turn()
    ack = box.ack(0, index=2)
    box.turn()
    while ("T", 2) in box.late.waiting:
        box.late.step(("T", 2))
    while ("T", 1) in box.late.waiting:
        box.late.step(("T", 1))
    box.run_posted()
    assert ack.open
    box.late.step(("T", 0), Verdict.LOST)
    box.settle()
    assert refusal(emptied).refusal is Refusal.FENCED
    assert refusal(ack).refusal is Refusal.FENCED
    box.settle(2_000)
    assert box.take() == [b"a"]


def test_an_answer_of_before_shows_nothing_of_a_fenced_partition() -> None:
    box = LateBox()
    box.declare("U", "g")
    box.settle()
    both = [box.put(b"a"), box.put(b"b", topic="U")]  # one commit
    box.turn()
    box.late.step(("T", 0))
    box.late.step(("T", 0))
    box.fail()
    box.late.step(("U", 0))
    box.late.step(("U", 0))
    box.run_posted()
    assert [put.fine for put in both] == [True, True]
    assert box.partition().visible == box.partition().first
    box.settle()
    assert box.take() == [b"a"]


def test_nothing_at_hand_is_given_at_once() -> None:
    box = LateBox()
    box.declare("T", "plain", GroupOptions(lease=False))
    box.put(b"a")
    box.settle()
    session = box.session()
    box.broker.register(session, box.group("plain"))
    box.fail()
    assert box.broker.take(box.group("plain"), session) is None
    box.settle()
    assert box.take("plain") == [b"a"]


def test_nothing_that_was_put_back_is_handed_out() -> None:
    box = LateBox()
    box.put(b"a")
    box.settle()
    box.pull()
    box.settle(10)
    box.nack(0)
    box.settle()
    box.fail()
    pull = box.pull(wait=True)
    box.turn()
    assert pull.bodies == []
    box.settle()
    assert pull.bodies == [b"a"]


def test_a_message_in_the_place_of_one_that_was_lost() -> None:
    """What was at hand of the lost one is at hand no more."""
    box = LateBox()
    box.put(b"a")
    box.settle()
    assert box.take() == [b"a"]
    box.settle(10)  # that it was given is written
    box.fail()
    box.settle()
    box.put(b"b")
    box.settle()
    assert box.take() == [b"b"]


def test_a_read_that_began_before_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    box = LateBox()
    box.put(b"a")
    box.settle()
    cool(box)
    reads: list[ReadDone] = []
    with monkeypatch.context() as patched:
        patched.setattr(box.late, "read", lambda lane, offset, size, done: reads.append(done))
        pull = box.pull(wait=True)
        box.turn()
        (answer,) = reads
    box.fail()
    box.settle()
    assert pull.bodies == [b"a"]
    pull = box.pull(wait=True)
    box.turn()
    answer(JournalError("of what was there before"))
    box.settle()
    assert pull.open


@pytest.mark.parametrize("again", [False, True])
def test_a_look_that_began_before_is_not_told_that_nothing_is_there(
    monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    box = LateBox()
    box.put(b"a")
    box.settle()
    cool(box)
    reads: list[ReadDone] = []
    look = Probe()
    with monkeypatch.context() as patched:
        patched.setattr(box.late, "read", lambda lane, offset, size, done: reads.append(done))
        box.broker.peek(look, box.partition(), 0)
        (answer,) = reads
    box.fail()
    if again:
        box.settle()
    answer(b"")
    box.settle()
    if not again:
        assert refusal(look).refusal is Refusal.FENCED
        return
    (peeked,) = look.answers
    assert isinstance(peeked, Peeked)
    assert peeked.pieces[0].chunk.bodies[0] == b"a"


def test_a_group_that_was_never_made_ends_its_pulls() -> None:
    box = LateBox()
    declared = box.declare("T", "other")
    box.turn()
    pull = box.pull("other", wait=True)
    box.turn()
    box.late.step(("T", 0), Verdict.LOST)
    box.settle()
    assert refusal(declared).refusal is Refusal.FENCED
    assert refusal(pull).refusal is Refusal.GROUP_UNKNOWN


def test_a_partition_that_is_another_topics_by_now_stays_closed() -> None:
    """Somebody else removed the topic and made one of that name."""
    box, other = LateBox(3), LateBox(3)
    options = other.topic().options
    other.broker.remove_topic(Probe(), other.topic())
    other.settle()
    other.declare(options, "g")
    other.settle()
    box.stored._lanes["T", 1] = other.stored._lanes["T", 1]
    put = box.put(b"x", index=1)
    box.settle()
    assert refusal(put).refusal is Refusal.FENCED
    for ms in (0, 1_000):
        box.settle(ms)
        assert box.partition(index=1).fenced is not None
    put = box.put(b"y", index=2)
    box.settle()
    assert put.fine


def test_what_a_former_incarnation_has_to_tell_is_told() -> None:
    """Where the group stands in partition 1 is known from partition 0 only, and cut to the end of
    the log; then it is put elsewhere, a message takes the place of what was cut, and the second
    change is lost."""
    box = LateBox(3)
    box.put(b"a", index=1)
    box.settle()
    assert box.take() == [b"a"]
    box.ack(0, index=1)
    box.settle(10)
    box.put(b"doomed", index=1)
    box.broker.purge_topic(Probe(), box.topic())
    box.turn()
    box.late.step(("T", 1), Verdict.LOST)
    partition = box.partition(index=1)
    for _ in range(10):
        box.late.run()
        box.run_posted()
        if partition.fenced is None:
            break
        box.turn(1)
    assert partition.fenced is None
    box.broker.purge_topic(Probe(), box.topic())
    put = box.put(b"b", index=1)
    box.turn()
    for index in (1, 2):
        while ("T", index) in box.late.waiting:
            box.late.step(("T", index))
    box.late.step(("T", 0), Verdict.LOST)
    box.settle()
    box.settle(2_000)
    assert put.fine
    assert box.take() == [b"b"]


def test_what_became_due_meanwhile_goes_before_what_is_put_then() -> None:
    """Though it is put in the same turn."""
    box = LateBox()
    box.put(b"due", due_ms=box.now_ms + 50)
    box.settle()
    assert box.take() == []
    box.settle(10)  # that it is delayed is written
    box.fail()
    while box.partition().fenced is not None:
        box.turn(100)
        while ("T", 0) in box.late.waiting:
            box.late.step(("T", 0))
        box.run_posted()
    box.put(b"after")
    box.settle()
    assert box.take() == [b"due", b"after"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_growth_whose_write_is_lost_is_written_again(index: int) -> None:
    """Clients have been told the number, and may have put by it."""
    box = LateBox(2)
    box.put(b"old", index=1)
    box.settle()
    told = box.declare(TopicOptions("T", partitions=3))
    box.late.step(("T", index), Verdict.LOST)
    box.settle()
    assert refusal(told).refusal is Refusal.FENCED
    box.settle(1_000)
    assert len(box.topic().partitions) == 3
    assert box.topic().options.grown == ((0, 1),)
    put = box.put(b"new", index=2)
    box.settle()
    assert put.fine
    assert box.take() == [b"old"]
    found = Box(box.stored)
    assert found.topic().options == box.topic().options
    assert found.partition(index=2).end == 1
