"""The engine that answers late, against a model that anybody can check: lists, and what is to do.

The model has a lane as the list of its batches and a queue of what was asked. Whoever says that an
append is durable says that it is in that list, and nothing leaves its beginning but by `trim`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.limits import examples
from zbus.storage.format.batch import Kind, read_header
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Journal, JournalError, Lane, OpenDone, StoredLane, Verdict, Verdicts
from zbus.testing.engines import Bench, Writer, recovered, split
from zbus.testing.late import Fate, LateJournal

LANES: list[Lane] = [("a", 0), ("a", 1), ("b", 0)]
LANE = LANES[0]

lanes = st.sampled_from(LANES)
sets_of_lanes = st.lists(lanes, unique=True)
kinds = st.lists(st.sampled_from([Kind.DATA, Kind.DATA, Kind.STATE, Kind.CHECKPOINT]), min_size=1)
rarely = st.sampled_from([False] * 5 + [True])
sometimes = st.sampled_from([False, False, True])
fates = st.sampled_from([None, None, None, None, *Verdict])


@dataclass
class Asked:
    """Something that was asked of one lane, or of several and then is in the queues of all."""

    what: str
    number: int = 0  # of its answer
    lanes: Collection[Lane] = ()
    after: int = 0
    batches: Collection[bytes] = ()
    offset: int | None = None
    reached: set[Lane] = field(default_factory=set)


@dataclass
class ModelLane:
    log: list[bytes] = field(default_factory=list)
    trimmed: set[bytes] = field(default_factory=set)  # of `log`
    verdict: Verdict | None = None
    queue: deque[Asked] = field(default_factory=deque)
    held: bool = False
    since: list[bytes] = field(default_factory=list)  # handed over since the lane was opened
    durable: list[bytes] = field(default_factory=list)  # as a commit said

    def crash(self) -> None:
        self.queue.clear()
        self.verdict, self.held, self.since = None, False, []

    def forget(self) -> None:
        self.log, self.trimmed, self.since, self.durable = [], set(), [], []
        self.verdict, self.held = None, False

    @property
    def last(self) -> int:
        return read_header(self.log[-1]).crc if self.log else 0

    def append(self, asked: Asked, fate: Fate, written: bool) -> None:
        self.since += asked.batches
        if self.verdict is not None:
            return
        first = read_header(next(iter(asked.batches)))
        fits = asked.after == self.last and (self.log or first.kind is Kind.CHECKPOINT)
        if fits and (fate is None or (fate is Verdict.LOST and written)):
            self.log += asked.batches
        self.verdict = fate if fits or fate is not None else Verdict.CONFLICT

    def commit(self) -> Verdict | None:
        if self.verdict is None:
            handed_over = set(self.since)
            assert [raw for raw in self.log if raw in handed_over] == self.since
            self.durable = list(self.log)
        return self.verdict

    def open(self) -> list[bytes]:
        """The batches from the newest checkpoint on."""
        assert self.log[: len(self.durable)] == self.durable
        self.verdict, self.since = None, []
        begins = [at for at, raw in enumerate(self.log) if read_header(raw).kind is Kind.CHECKPOINT]
        return [raw for raw in self.log[begins[-1] if begins else 0 :] if raw not in self.trimmed]

    def messages(self) -> list[bytes]:
        there = [raw for raw in self.log if raw not in self.trimmed]
        return [raw for raw in there if read_header(raw).kind is Kind.DATA]

    def trim(self, before: int) -> None:
        gone = [raw for raw in self.messages()[:-1] if read_header(raw).end_offset <= before]
        self.trimmed.update(gone)


class Model:
    """All lanes, and what is to be answered."""

    def __init__(self) -> None:
        self.lanes = {lane: ModelLane() for lane in LANES}
        self.answers: dict[int, object] = {}  # by number; what is not yet known is not there
        self.partly: dict[int, dict[Lane, object]] = {}

    def ask(self, asked: Asked) -> None:
        self.partly[asked.number] = {}
        for lane in asked.lanes:
            self.lanes[lane].queue.append(asked)
        if not asked.lanes:
            self.answers[asked.number] = {}

    def ready(self) -> list[Lane]:
        return [lane for lane, one in self.lanes.items() if one.queue and not one.held]

    def step(self, lane: Lane, fate: Fate, written: bool) -> None:
        one = self.lanes[lane]
        asked = one.queue.popleft()
        asked.reached.add(lane)
        partly = self.partly[asked.number]
        match asked.what:
            case "append":
                one.append(asked, fate, written)
            case "commit":
                if (verdict := one.commit()) is not None:
                    partly[lane] = verdict
            case "open":
                if batches := one.open():
                    partly[lane] = batches
            case "read" if asked.offset is not None:
                partly[lane] = None
                if one.log:
                    found = one.messages()
                    found = [raw for raw in found if read_header(raw).end_offset > asked.offset]
                    partly[lane] = b"".join(found)
            case "trim" if asked.offset is not None:
                one.trim(asked.offset)
            case "remove":
                one.held = True
                if len(asked.reached) == len(asked.lanes):
                    for gone in asked.lanes:
                        self.lanes[gone].forget()
        if len(asked.reached) == len(asked.lanes):
            self.answers[asked.number] = partly


class LateMachine(RuleBasedStateMachine):
    """`expect` has the numbers of what must still be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.number = 0
        self.start(MemoryJournal())

    def start(self, stored: Journal) -> None:
        self.bench = Bench()
        self.journal = LateJournal(self.bench.post, stored)
        self.writers = {lane: Writer(lane) for lane in LANES}
        self.expect: set[int] = set()

    @initialize(begun=sets_of_lanes)
    def begin(self, begun: list[Lane]) -> None:
        """Some lanes are there already."""
        for lane in begun:
            self.another_writes(lane)
            self.writers[lane].last = self.model.lanes[lane].last

    def ask(self, what: str, lanes: Collection[Lane], answered: bool = True) -> Asked:
        self.number += 1
        if answered:
            self.expect.add(self.number)
        return Asked(what, self.number, lanes)

    def answered(self, asked: Asked, answer: object) -> None:
        assert asked.number in self.expect, "twice, or by an engine that is gone"
        self.expect.remove(asked.number)
        assert answer == self.model.answers[asked.number]

    @rule(lane=lanes, kinds=kinds, stale=rarely, amiss=rarely)
    def append(self, lane: Lane, kinds: list[Kind], stale: bool, amiss: bool) -> None:
        """Behind what the writer believes in, or by one that believes there is nothing yet."""
        writer = Writer(lane) if stale else self.writers[lane]
        if not writer.last and not amiss:
            kinds = [Kind.CHECKPOINT, *kinds]
        last, end = writer.last, writer.end
        made = [
            writer.data(b"x") if kind is Kind.DATA else writer.state(kind=kind) for kind in kinds
        ]
        one = self.model.lanes[lane]
        try:
            self.journal.append(lane, last, split(b"".join(made)))
        except JournalError:
            writer.last, writer.end = last, end
            assert not last
            assert kinds[0] is not Kind.CHECKPOINT
            assert not one.log
            assert not one.queue
            assert not one.held
            return
        asked = self.ask("append", [lane], answered=False)
        asked.after, asked.batches = last, made
        self.model.ask(asked)

    @rule(lane=lanes, really=rarely)
    def another(self, lane: Lane, really: bool) -> None:
        if really:
            self.another_writes(lane)

    def another_writes(self, lane: Lane) -> None:
        """Another process, behind what is really there."""
        one = self.model.lanes[lane]
        end = read_header(one.log[-1]).end_offset if one.log else 0
        writer = Writer(lane, one.last, end)
        made = writer.data(b"y") if one.log else writer.checkpoint()
        self.journal.stored.append(lane, one.last, split(made))
        one.log.append(made)

    @rule(lanes=sets_of_lanes, synced=st.booleans())
    def commit(self, lanes: list[Lane], synced: bool) -> None:
        asked = self.ask("commit", lanes)
        self.model.ask(asked)
        self.journal.commit(lanes, synced, partial(self.answered, asked))

    @rule(lane=lanes, offset=st.integers(0, 20))
    def read(self, lane: Lane, offset: int) -> None:
        asked = self.ask("read", [lane])
        asked.offset = offset
        self.model.ask(asked)

        def done(answer: bytes | JournalError) -> None:
            given = None if isinstance(answer, JournalError) else answer
            self.answered(asked, {lane: given})

        self.journal.read(lane, offset, 1 << 20, done)

    @rule(lane=lanes, before=st.integers(0, 20))
    def trim(self, lane: Lane, before: int) -> None:
        asked = self.ask("trim", [lane], answered=False)
        asked.offset = before
        self.model.ask(asked)
        self.journal.trim(lane, before)

    @rule(lanes=sets_of_lanes, really=sometimes)
    def remove(self, lanes: list[Lane], really: bool) -> None:
        if not really:
            return
        asked = self.ask("remove", lanes)
        self.model.ask(asked)
        self.journal.remove(lanes, lambda: self.answered(asked, {}))
        self.writers.update({lane: Writer(lane) for lane in lanes})

    @rule(lanes=st.none() | sets_of_lanes)
    def open(self, lanes: list[Lane] | None) -> None:
        every = [
            lane
            for lane, one in self.model.lanes.items()
            if one.log or one.queue or one.held or one.verdict
        ]
        asked = self.ask("open", every if lanes is None else lanes)
        self.model.ask(asked)
        found: dict[Lane, list[bytes]] = {}

        def keep(stored: StoredLane) -> None:
            assert stored.lane not in found
            found[stored.lane] = list(stored.batches)

        def done(problem: JournalError | None) -> None:
            assert problem is None
            self.answered(asked, found)
            for lane in asked.lanes:
                self.writers[lane] = Writer(lane)
                if lane in found:
                    last = read_header(found[lane][-1])
                    self.writers[lane] = Writer(lane, last.crc, last.end_offset)

        self.journal.open(lanes, keep, done)

    @rule(choices=st.lists(st.integers(0, 5), max_size=12), fate=fates, written=st.booleans())
    def step(self, choices: list[int], fate: Fate, written: bool) -> None:
        """The fate is that of the first, if it is an append."""
        for choice in choices:
            if ready := self.model.ready():
                lane = ready[choice % len(ready)]
                self.model.step(lane, fate, written)
                self.journal.step(lane, fate, written)
                fate = None

    @rule(count=st.integers(1, 5))
    def run_posted(self, count: int) -> None:
        while count and not self.bench.posted.empty():
            self.bench.run_one()
            count -= 1

    @rule(really=rarely)
    def maybe_crash(self, really: bool) -> None:
        if really:
            self.crash()

    def crash(self) -> None:
        for one in self.model.lanes.values():
            one.crash()
        self.start(self.journal.stored)

    @invariant()
    def same_queues_and_verdicts(self) -> None:
        assert set(self.journal.waiting) == set(self.model.ready())
        verdicts = {lane: one.verdict for lane, one in self.model.lanes.items() if one.verdict}
        assert self.journal.verdicts == verdicts

    def teardown(self) -> None:
        while ready := self.model.ready():
            self.model.step(ready[0], None, False)
        self.journal.close()
        self.run_posted(-1)
        assert not self.expect, "each is answered"
        self.crash()
        self.open(LANES)
        self.step([0] * len(LANES), None, False)
        self.run_posted(-1)
        assert not self.expect


TestLate = LateMachine.TestCase
TestLate.settings = examples(200, stateful_step_count=60)


def test_a_store_that_is_full_is_a_verdict() -> None:
    bench = Bench()
    journal = LateJournal(bench.post, MemoryJournal(bytes_max=1))
    writer, other = Writer(LANE), Writer(LANES[1])
    journal.append(LANE, 0, split(writer.checkpoint() + writer.data(b"too much")))
    other.append(journal, other.checkpoint)
    said: list[Verdicts] = []
    journal.commit([LANE, other.lane], True, said.append)
    journal.run()
    assert not said, "only on the broker's thread"
    bench.run_one()
    assert said == [{LANE: Verdict.FULL}]
    assert list(journal.stored.verdicts) == []


def test_what_a_former_engine_was_refused_is_forgotten() -> None:
    stored = MemoryJournal()
    stored.append(LANE, 1, split(Writer(last=1).checkpoint()))
    assert stored.verdicts == {LANE: Verdict.CONFLICT}
    bench = Bench()
    journal, writer = LateJournal(bench.post, stored), Writer(LANE)
    writer.append(journal, writer.checkpoint)
    journal.close()
    assert journal.verdicts == {}
    assert list(recovered(stored)) == [LANE]


def test_a_topic_is_removed_when_all_its_lanes_have_come_so_far() -> None:
    """Until then a crash finds all of them; what was asked for later waits."""
    bench = Bench()
    journal, (one, two) = LateJournal(bench.post), (Writer(lane) for lane in LANES[:2])
    calls: list[object] = []
    one.append(journal, one.checkpoint)
    two.append(journal, two.checkpoint)
    journal.run()
    journal.remove(LANES[:2], lambda: calls.append("removed"))
    journal.step(one.lane)
    journal.append(one.lane, 0, split(Writer(one.lane).data(b"amiss, but who knows")))
    journal.open(None, lambda found: calls.append(found.lane), calls.append)
    assert list(journal.waiting) == [two.lane]
    assert list(recovered(journal.stored)) == LANES[:2]
    journal.step(two.lane)
    assert recovered(journal.stored) == {}
    journal.step(one.lane)
    assert journal.verdicts == {one.lane: Verdict.CONFLICT}
    journal.run()
    assert journal.verdicts == {}
    bench.run_until(lambda: len(calls) == 2)
    assert calls == ["removed", None]


def test_what_stood_in_the_way_of_opening_is_told() -> None:
    """A lane that cannot be read is not taken for one that is not there."""

    class Unreadable(MemoryJournal):
        def open(
            self,
            lanes: Collection[Lane] | None,
            found: Callable[[StoredLane], None],
            done: OpenDone,
        ) -> None:
            if lanes is not None and LANE in lanes:
                done(JournalError("no"))
            else:
                super().open(lanes, found, done)

    bench = Bench()
    journal = LateJournal(bench.post, Unreadable())
    for lane in LANES[:2]:
        writer = Writer(lane)
        writer.append(journal, writer.checkpoint)
    calls: list[object] = []
    journal.open(LANES[:2], lambda found: calls.append(found.lane), calls.append)
    journal.run()
    bench.run_until(lambda: bool(calls) and calls[-1] is not None and len(calls) == 2)
    assert calls[0] == LANES[1]
    assert str(calls[1]) == "no"


def test_what_is_asked_of_a_topic_that_is_being_removed_comes_behind() -> None:
    bench = Bench()
    journal = LateJournal(bench.post)
    calls: list[object] = []
    journal.append(LANE, 0, split(Writer(LANE).checkpoint()))
    journal.step(LANE, Verdict.FULL)
    journal.remove(LANES[:2], lambda: calls.append("removed"))
    journal.step(LANE)
    assert journal.verdicts == {LANE: Verdict.FULL}, "it is not removed yet"
    journal.append(LANE, 0, split(Writer(LANE).data(b"amiss, but the lane may be there by then")))
    journal.open(None, lambda found: calls.append(found.lane), calls.append)
    again = Writer(LANE)
    again.append(journal, again.checkpoint)
    journal.step(LANES[1])
    assert journal.verdicts == {}
    journal.step(LANE)
    assert journal.verdicts == {LANE: Verdict.CONFLICT}
    journal.run()
    assert journal.verdicts == {}
    assert list(recovered(journal.stored)) == [LANE]
    bench.run_until(lambda: len(calls) == 2)
    assert calls == ["removed", None]
