"""Owners that take a shard from each other over a stream that fails: nothing acknowledged is lost
or doubled, and a former owner confirms nothing after the next one has read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.limits import checked
from tests.storage.jetstream.cluster import Faults, SimulatedCluster
from zbus.storage.format.batch import iterate
from zbus.storage.jetstream.committer import Failure
from zbus.storage.jetstream.engine import RENEWALS_KEPT, TIMEOUT_MS, JetStreamJournal
from zbus.storage.jetstream.ownership import CERTAIN_MS, QUIET_MS, Claim, Claimed, Owner
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError, Lane, StoredLane, Verdict, Verdicts
from zbus.testing.contract import Crash, JournalContract
from zbus.testing.engines import Bench, Writer, bodies, split

LANE = ("orders", 0)
STEPS_MAX = 20_000
SETTLED_MS = 8_000


class ClusterBench(Bench):
    """The broker's thread is the cluster's: each step is one thing that happens."""

    def __init__(self, seed: int, faults: Faults) -> None:
        super().__init__()
        self.cluster = SimulatedCluster(Random(seed), faults)
        self.owners: list[JetStreamJournal] = []

    def run_one(self) -> None:
        assert self.cluster.step(), "there is nothing to wait for"
        self.at_most_one_delivers()

    def run_for(self, ms: int) -> None:
        until_ms = self.cluster.now_ms + ms
        while self.cluster.step() and self.cluster.now_ms < until_ms:
            self.at_most_one_delivers()

    def at_most_one_delivers(self) -> None:
        delivering = [one for one in self.owners if one.is_certain and not one.is_quiet]
        assert len(delivering) <= 1, "two owners deliver at once"

    def claim(self) -> JetStreamJournal:
        stream, subjects = self.cluster.connect(), Subjects("test")
        answers: list[Claimed | Owner | JournalError | None] = []
        Claim(stream, subjects, "node", "", lambda owner: True, answers.append).start()
        self.run_until(lambda: answers)
        (claimed,) = answers
        assert isinstance(claimed, Claimed)
        self.owners.append(JetStreamJournal(stream, subjects, claimed, self.failures.append))
        return self.owners[-1]


class TestSimulated(JournalContract):
    """The engine keeps the contract over a stream that fails all the time."""

    @pytest.fixture(params=range(3))
    def bench(self, request: pytest.FixtureRequest) -> ClusterBench:
        return ClusterBench(request.param, Faults() if request.param else Faults.none())

    @pytest.fixture
    def engine(self, bench: ClusterBench) -> Callable[[], Any]:
        return bench.claim

    @pytest.fixture
    def crash(self, bench: ClusterBench) -> Crash:
        def crash(journal: JetStreamJournal, power: bool) -> None:
            journal.close()  # what it has sent may arrive yet
            if power:
                bench.cluster.crash()

        return crash


class Broker:
    """A broker, as far as its log goes: appends one message after another, and keeps a book of
    those that were confirmed."""

    def __init__(self, bench: ClusterBench, book: list[bytes]) -> None:
        self.bench = bench
        self.book = book
        self.journal = bench.claim()
        self.writer: Writer | None = None
        self.found: list[bytes] = []
        self.count = 0

    def open(self) -> None:
        found: list[StoredLane] = []
        answers: list[JournalError | None] = []
        self.journal.open(None, found.append, answers.append)
        self.wait(lambda: answers)
        if self.journal.failure is not None:
            return
        assert answers == [None]
        self.writer = Writer()
        for stored in found:
            header = next(iterate(list(stored.batches)[-1])).header
            self.writer = Writer(LANE, header.crc, header.end_offset)
        if not found:
            self.writer.append(self.journal, self.writer.checkpoint)

    def wait(self, condition: Callable[[], object]) -> None:
        for _ in range(STEPS_MAX):
            if condition() or self.journal.failure is not None:
                return
            self.bench.run_one()
        raise AssertionError("the engine hangs")

    def wait_for(self, count: int) -> None:
        """Until so many are confirmed."""
        self.wait(lambda: len(self.book) >= count)

    def put(self, body: bytes) -> None:
        """Append it; it is in the book as soon as it is confirmed."""
        if self.writer is None or self.journal.failure is not None:
            return
        if self.count % 5 == 4:
            self.writer.append(self.journal, self.writer.checkpoint)
        self.count += 1
        self.writer.append(self.journal, lambda: self.writer.data(body))  # type: ignore[union-attr]

        def done(verdicts: Verdicts) -> None:
            if not verdicts:
                self.book.append(body)

        self.journal.commit([LANE], True, done)


def messages(bench: ClusterBench) -> list[bytes]:
    """What the stream holds, by a new owner that nothing disturbs."""
    bench.cluster.faults = Faults.none()
    bench.run_for(SETTLED_MS)  # copies that are under way arrive
    owner = Broker(bench, [])
    owner.open()
    answers: list[bytes | JournalError] = []
    owner.journal.read(LANE, 0, 1 << 20, answers.append)
    owner.wait(lambda: answers)
    assert isinstance(answers[0], bytes), answers
    return bodies(answers[0])


def judge(seed: int) -> None:
    bench = ClusterBench(seed, Faults())
    random = Random(seed + 1)
    confirmed: list[bytes] = []
    sent: list[bytes] = []
    owners: list[Broker] = []
    for epoch in range(4):
        book: list[bytes] = []
        owner = Broker(bench, book)
        owner.open()
        former = list(confirmed)
        for number in range(random.randrange(1, 12)):
            body = b"%d-%d" % (epoch, number)
            sent.append(body)
            owner.put(body)
            for other in owners:  # who lost the shard does not know it yet, perhaps
                if random.random() < 0.3:
                    sent.append(b"old " + body)
                    other.put(b"old " + body)
            for _ in range(random.randrange(30)):
                bench.run_one()
        if random.random() < 0.5:
            done: list[Verdicts] = []
            owner.journal.commit([LANE], True, done.append)
            owner.wait(lambda: done)  # noqa: B023 - called before the next round
        assert confirmed == former
        confirmed += book
        for other in owners:
            assert not [body for body in other.book if body.startswith(b"old")], "confirmed late"
        owners.append(owner)
        owner.book = book
    there = messages(bench)
    late = [body for owner in owners for body in owner.book]
    assert len(there) == len(set(there)), "nothing is there twice"
    assert set(late) <= set(there), "nothing that was confirmed is lost"
    assert [body for body in there if body in set(late)] == sorted(late, key=sent.index)
    assert set(there) <= set(sent)
    assert bench.failures == [] or all("taken over" in text for text in bench.failures)


@pytest.mark.parametrize("seed", [*range(70), *checked(range(70, 10_000))])
def test_owners_that_take_the_shard_from_each_other(seed: int) -> None:
    judge(seed)


def test_a_stream_that_goes_back_ends_the_owner() -> None:
    bench = ClusterBench(1, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    owner.put(b"a")
    bench.run_until(lambda: owner.book)
    del bench.cluster.log[-1]
    bench.cluster.faults = Faults(lost=1)
    owner.put(b"b")
    for _ in range(100):
        bench.cluster.step()
    assert owner.journal.failure is Failure.WENT_BACK


def test_a_full_stream_refuses_messages_and_goes_on() -> None:
    bench = ClusterBench(2, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    owner.put(b"a")
    bench.run_until(lambda: owner.book)
    bench.cluster.bytes_max = bench.cluster.bytes_used() + 10
    answers: list[Verdicts] = []
    writer = owner.writer
    assert writer is not None
    writer.append(owner.journal, lambda: writer.data(b"b" * 100))
    owner.journal.commit([LANE], True, answers.append)
    bench.run_until(lambda: answers)
    assert answers == [{LANE: Verdict.FULL}]
    bench.cluster.bytes_max = 0
    assert list(bench.recovered(owner.journal, [LANE])) == [LANE]
    header = next(iterate(bench.recovered(owner.journal, [LANE])[LANE][-1])).header
    again = Writer(LANE, header.crc, header.end_offset)
    again.append(owner.journal, again.state)
    assert bench.commit(owner.journal, LANE) == {}
    assert messages(bench) == [b"a"]


def test_lanes_are_opened_one_by_one() -> None:
    bench = ClusterBench(3, Faults(behind=0.5))
    journal = bench.claim()
    lanes: list[Lane] = [("topic", number) for number in range(70)]
    for lane in lanes:
        writer = Writer(lane)
        writer.append(journal, writer.checkpoint)
        writer.append(journal, lambda writer=writer: writer.data(b"x"))  # type: ignore[misc]
    assert bench.commit(journal, *lanes) == {}
    journal = bench.claim()
    assert sorted(bench.recovered(journal)) == lanes
    assert split(bench.recovered(journal, [lanes[7]])[lanes[7]][0])


@pytest.mark.parametrize("seed", range(20))
def test_removed_lanes_stay_removed_and_give_their_space_back(seed: int) -> None:
    """Their owner dies before it comes to purging them. Replicas are behind, and damaged."""
    bench = ClusterBench(seed, Faults(behind=0.4, damaged=0.4))
    journal = bench.claim()
    lanes: list[Lane] = [("topic", number) for number in range(6)]
    for lane in lanes:
        writer = Writer(lane)
        writer.append(journal, writer.checkpoint)
    assert bench.commit(journal, *lanes) == {}
    done: list[bool] = []
    for lane in lanes[:5]:
        journal.remove([lane], lambda: done.append(True))
    bench.run_until(lambda: len(done) == 5)
    journal.close()
    journal = bench.claim()
    assert sorted(bench.recovered(journal)) == lanes[5:]
    journal.remove([lanes[5]], lambda: done.append(True))
    for now_ms in range(0, 30_000, 1_000):
        journal.upkeep(now_ms)
        bench.run_for(1_000)
    subjects = [one.subject for one in bench.cluster.present(len(bench.cluster.log))]
    assert [one for one in subjects if ".l." in one] == []
    assert subjects.count("zb.test.0.x") == 1
    assert bench.recovered(bench.claim()) == {}


def written(journal: JetStreamJournal, bench: ClusterBench, lane: Lane, *sizes: int) -> Writer:
    """A lane of segments with these numbers of messages."""
    writer = Writer(lane)
    for size in sizes:
        writer.append(journal, writer.checkpoint)
        for _ in range(size):
            writer.append(journal, partial(writer.data, b"x"))
    assert bench.commit(journal, lane) == {}
    return writer


def test_a_lane_that_was_made_again_keeps_its_beginning() -> None:
    """What an owner that was killed had removed is purged before the word of it is."""
    bench = ClusterBench(1, Faults.none())
    first = bench.claim()
    written(first, bench, ("a", 0), 4, 4)
    first.trim(("a", 0), 4)
    bench.run_for(2_000)
    done: list[bool] = []
    first.remove([("a", 0)], lambda: done.append(True))
    written(first, bench, ("a", 0), 3, 3)
    first.close()
    second = bench.claim()
    bench.recovered(second)
    written(second, bench, ("b", 0), 1)
    second.remove([("b", 0)], lambda: done.append(True))
    for now_ms in range(0, 5_000, 1_000):
        second.upkeep(now_ms)
        bench.run_for(1_000)
    assert len(done) == 2
    third = bench.claim()
    (stored,) = bench.stored(third)
    assert (stored.first_offset, [one.base for one in stored.segments]) == (0, [0, 3])
    assert len(bodies(bench.read(third, ("a", 0), 0))) == 6


@pytest.mark.parametrize("more_ms", range(0, 250, 30))
def test_a_renewal_that_is_refused_purges_nothing(more_ms: int) -> None:
    """None is under way when there is room again, at some of these times."""
    bench = ClusterBench(1, Faults.none())
    journal = bench.claim()
    writer = written(journal, bench, ("a", 0), 1)
    owner = Subjects("test").owner
    bench.run_until(
        lambda: [one.subject for one in bench.cluster.log].count(owner) == RENEWALS_KEPT + 1
    )
    bench.cluster.bytes_max = 1  # so the one that would be kept is refused
    bench.run_for(8_000 + more_ms)
    bench.cluster.bytes_max = 0
    writer.append(journal, writer.state)
    assert bench.commit(journal, ("a", 0)) == {}
    journal.upkeep(0)
    bench.run_for(300)  # before it renews again
    assert journal.failure is None
    journal.close()
    assert list(bench.recovered(bench.claim())) == [("a", 0)]


def test_a_removal_that_is_refused_is_done_when_there_is_room() -> None:
    bench = ClusterBench(1, Faults.none())
    journal = bench.claim()
    written(journal, bench, ("a", 0), 1)
    bench.cluster.bytes_max = 1
    done: list[bool] = []
    journal.remove([("a", 0)], lambda: done.append(True))
    journal.remove([("a", 0)], lambda: done.append(True))
    bench.run_for(10_000)
    assert done == []
    bench.cluster.bytes_max = 0
    bench.run_for(2_000)
    assert done == [True, True]
    assert bench.recovered(bench.claim()) == {}


def test_nothing_is_purged_for_a_removal_that_is_not_stored() -> None:
    bench = ClusterBench(1, Faults.none())
    journal = bench.claim()
    written(journal, bench, ("a", 0), 1)
    bench.cluster.bytes_max = 1
    journal.remove([("a", 0)], lambda: None)
    for now_ms in range(0, 5_000, 1_000):
        journal.upkeep(now_ms)
        bench.run_for(1_000)
    journal.close()
    bench.cluster.bytes_max = 0
    journal = bench.claim()
    assert list(bench.recovered(journal)) == [("a", 0)]
    assert bodies(bench.read(journal, ("a", 0), 0)) == [b"x"]


@pytest.mark.parametrize("room", [0, 1])
def test_who_gives_the_shard_up_hears_whether_that_is_stored(room: int) -> None:
    bench = ClusterBench(1, Faults.none())
    journal = bench.claim()
    bench.cluster.bytes_max = room
    answers: list[bool] = []
    journal.release(answers.append)
    bench.run_until(lambda: answers)
    assert answers == [not room]


@pytest.mark.parametrize("quiet", [True, False])
def test_one_that_leaves_while_it_is_quiet_leaves_that_to_the_next(quiet: bool) -> None:
    """The first one does not know yet that the shard is not its own, and delivers messages."""
    bench = ClusterBench(1, Faults.none())
    bench.claim()
    second = bench.claim()
    if not quiet:
        bench.run_until(lambda: not second.is_quiet)
    answers: list[bool] = []
    second.release(answers.append)
    bench.run_until(lambda: answers)
    third = bench.claim()
    assert third.is_quiet == quiet
    bench.run_for(2 * QUIET_MS)
    assert third.is_certain
    assert not third.is_quiet


LARGE = [b"a", b"b" * 300_000, b"c", b"d" * 64_000, b"e" * 64_300, b"f"]


@pytest.mark.parametrize("sent", [LARGE, LARGE[1:]], ids=["later", "first"])
def test_a_large_append_is_stored_in_pieces_and_read_whole(sent: list[bytes]) -> None:
    """Simulated messages hold 64 KiB."""
    for seed in range(5):
        bench = ClusterBench(seed, Faults())
        owner = Broker(bench, [])
        owner.open()
        for body in sent:
            owner.put(body)
        owner.wait_for(len(sent))
        assert messages(bench) == sent


def test_a_purged_stream_ends_the_owner() -> None:
    bench = ClusterBench(4, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    owner.put(b"a")
    bench.run_until(lambda: owner.book)
    owner.journal.upkeep(0)
    bench.run_for(500)
    assert owner.journal.failure is None
    bench.cluster.purged = set(range(1, len(bench.cluster.log) + 1))
    owner.put(b"b")
    bench.run_for(3_000)  # it renews its ownership meanwhile
    owner.journal.upkeep(1_000)
    bench.run_for(100)
    assert owner.journal.failure is Failure.WENT_BACK
    assert "somebody purged it" in bench.failures[0]


def test_an_owner_stays_certain_without_messages_and_loses_it_with_the_stream() -> None:
    bench = ClusterBench(5, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    for _ in range(100):
        bench.run_for(200)
        assert owner.journal.is_certain
    assert not owner.journal.is_quiet
    bench.cluster.faults = Faults(lost=1)
    bench.run_for(2 * CERTAIN_MS)
    assert not owner.journal.is_certain
    assert not owner.journal.is_late
    answers: list[Verdicts] = []
    owner.put(b"late")
    owner.journal.commit([LANE], True, answers.append)
    bench.run_for(TIMEOUT_MS)
    assert owner.journal.is_late
    assert answers == [{LANE: Verdict.LOST}]


def test_an_owner_that_is_never_certain_because_all_is_slow_gives_up() -> None:
    """Each append is confirmed, and too late to be certain by it."""
    bench = ClusterBench(6, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    bench.cluster.faults = Faults(0, 0, 0, 0, 0, 0, append_ms=CERTAIN_MS + 1_000)
    bench.run_for(2 * CERTAIN_MS)
    assert not owner.journal.is_certain
    assert not owner.journal.is_late
    bench.run_for(TIMEOUT_MS)
    assert owner.journal.unconfirmed_ms < TIMEOUT_MS
    assert owner.journal.is_late


def test_reading_ends_while_more_is_put_all_the_time() -> None:
    """Each commit takes longer than it takes until more is put."""
    bench = ClusterBench(7, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    owner.put(b"first")
    owner.wait_for(1)
    bench.cluster.faults = Faults(0, 0, 0, 0, 0, 0, append_ms=500)
    answers: list[bytes | JournalError] = []
    for number in range(40):
        owner.put(b"%d" % number)
        bench.run_for(100)
        if number == 9:
            owner.journal.read(LANE, 0, 1 << 20, answers.append)
    assert answers, "it waits for what is put later"
    assert isinstance(answers[0], bytes)
    assert bodies(answers[0])[:11] == [b"first", *[b"%d" % number for number in range(10)]]


def test_a_new_owner_reads_one_message_with_few_requests() -> None:
    """It does not know where in its segment the message is, and is asked for no more than that."""
    bench = ClusterBench(8, Faults.none())
    owner = Broker(bench, [])
    owner.open()
    for number in range(300):
        owner.put(b"%d" % number)
        owner.wait_for(number + 1)
        owner.count = 0  # all in one segment
    owner.count = 4  # and the last one in another
    owner.put(b"last")
    owner.wait_for(301)
    owner = Broker(bench, [])
    owner.open()
    answers: list[bytes | JournalError] = []
    before = bench.cluster.reads
    owner.journal.read(LANE, 250, 1, answers.append)
    owner.wait(lambda: answers)
    assert isinstance(answers[0], bytes)
    assert bodies(answers[0]) == [b"250"]
    assert bench.cluster.reads - before <= 3
