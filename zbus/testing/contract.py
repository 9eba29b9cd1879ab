"""What every engine promises (`zbus.storage.port`), as tests for it to pass.

    class TestMine(JournalContract):
        @pytest.fixture
        def engine(self, bench, tmp_path):
            return lambda: MyJournal(tmp_path, bench.post, bench.failures.append)

`engine` makes the engine; made again after `close`, it is to find what was committed. The fixture
`keeps` says whether it does, and `crash` ends an engine without `close`.
`docs/howto/write-an-engine.md` tells more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from zbus.storage.format.batch import iterate
from zbus.storage.port import Journal, JournalDamage, JournalError, Lane, Verdict, Verdicts
from zbus.testing.engines import Bench, Writer, bodies, split

LANE = ("orders", 0)

Crash = Callable[[Any, bool], None]
"""Is given the engine, and whether the power is cut."""


def a_lane(journal: Journal, writer: Writer, roll_every: int = 3, count: int = 12) -> None:
    """Messages 0 to `count`, one in a batch, with state between them."""
    for number in range(count):
        if number % roll_every == 0:
            writer.append(journal, writer.checkpoint)
        writer.append(journal, partial(writer.data, b"%d" % number))
        writer.append(journal, writer.state)


class JournalContract:
    @pytest.fixture
    def bench(self) -> Bench:
        return Bench()

    @pytest.fixture
    def engine(self, bench: Bench) -> Callable[[], Any]:
        """Makes the engine that is tested."""
        raise NotImplementedError("a subclass says which engine it is")

    @pytest.fixture
    def keeps(self) -> bool:
        """Whether what was committed is there when the engine is made again."""
        return True

    @pytest.fixture
    def crash(self) -> Crash | None:
        """Ends an engine without `close`, and `engine` finds what that leaves. A killed process
        leaves what it had handed to the system. If the power is cut, what was not on stable storage
        is gone, as far as a test can do that. None: this engine cannot be made to crash."""
        return None

    @pytest.fixture
    def journal(self, engine: Callable[[], Any], bench: Bench) -> Iterator[Journal]:
        made: Journal = engine()
        yield made
        made.close()
        assert bench.failures == []

    def test_batches_come_back_in_order(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        log = [writer.checkpoint(), writer.data(b"a"), writer.state(), writer.data(b"b", b"c")]
        last = 0
        for batch in log:
            journal.append(LANE, last, split(batch))
            last = next(iterate(batch)).header.crc
        assert bench.recovered(journal) == {LANE: log}
        assert bench.read(journal, LANE, 0) == log[1] + log[3]

    def test_several_batches_in_one_append(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        log = [writer.checkpoint(), writer.data(b"a"), writer.state()]
        journal.append(LANE, 0, split(b"".join(log)))
        assert bench.recovered(journal) == {LANE: log}
        assert bodies(bench.read(journal, LANE, 0)) == [b"a"]

    @pytest.mark.parametrize("synced", [False, True])
    @pytest.mark.parametrize("after", [0, 1])
    def test_a_stale_writer_is_refused(
        self, journal: Journal, bench: Bench, after: int, synced: bool
    ) -> None:
        """The commit says so; what it writes then is refused as well, and other lanes go on."""
        writer, other = Writer(), Writer(("other", 3))
        first = writer.checkpoint()
        journal.append(LANE, 0, split(first))
        assert bench.commit(journal, LANE, synced=synced) == {}
        stale = Writer(last=after)
        stale.append(journal, lambda: stale.data(b"not there"))
        other.append(journal, other.checkpoint)
        assert bench.commit(journal, LANE, other.lane, synced=synced) == {LANE: Verdict.CONFLICT}
        writer.append(journal, lambda: writer.data(b"too late"))
        assert bench.commit(journal, LANE, synced=synced) == {LANE: Verdict.CONFLICT}
        assert bench.commit(journal, other.lane, synced=synced) == {}
        assert bench.recovered(journal)[LANE] == [first]

    def test_a_writer_of_a_lane_that_is_gone_is_refused(
        self, journal: Journal, bench: Bench
    ) -> None:
        writer = Writer()
        journal.append(LANE, 0, split(writer.checkpoint()))
        journal.remove([LANE], lambda: None)
        writer.append(journal, lambda: writer.data(b"a"))
        assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        assert bench.recovered(journal) == {}

    def test_a_lane_begins_with_a_checkpoint(self, journal: Journal, bench: Bench) -> None:
        with pytest.raises(JournalError, match="must begin with a checkpoint"):
            journal.append(LANE, 0, split(Writer().data(b"a")))
        assert bench.recovered(journal) == {}

    def test_batches_that_do_not_chain_are_refused(self, journal: Journal) -> None:
        writer = Writer()
        journal.append(LANE, 0, split(writer.checkpoint()))
        with pytest.raises(JournalDamage):
            journal.append(LANE, writer.last, split(Writer(last=99).data(b"a")))
        with pytest.raises(JournalDamage):
            journal.append(LANE, writer.last, [])
        writer.append(journal, lambda: writer.data(b"a"))

    def test_commit_calls_done_once(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        writer.append(journal, writer.checkpoint)
        calls: list[str] = []
        journal.commit([], True, lambda _: calls.append("nothing to wait for"))
        journal.commit([LANE], True, lambda _: calls.append("first"))
        journal.commit([LANE], True, lambda _: calls.append("nothing new"))
        journal.commit([("unknown", 9)], True, lambda _: calls.append("unknown"))
        bench.run_until(lambda: len(calls) == 4)
        bench.commit(journal, LANE)
        assert sorted(calls) == ["first", "nothing new", "nothing to wait for", "unknown"]

    def test_the_newest_segment_is_what_recovery_gets(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        for make in (writer.checkpoint, lambda: writer.data(b"a"), writer.state):
            writer.append(journal, make)
        last = writer.last
        newest = split(writer.checkpoint() + writer.data(b"b"))
        journal.append(LANE, last, newest[:1])
        journal.append(LANE, newest[0].header.crc, newest[1:])
        assert bench.recovered(journal) == {LANE: [batch.raw for batch in newest]}
        assert bodies(bench.read(journal, LANE, 0)) == [b"a", b"b"]

    def test_checkpoints_one_after_another(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        for _ in range(3):
            writer.append(journal, writer.checkpoint)
            writer.append(journal, writer.state)
        writer.append(journal, lambda: writer.data(b"a"))
        batches = bench.recovered(journal)[LANE]
        assert len(batches) == 3
        assert bodies(bench.read(journal, LANE, 0)) == [b"a"]
        writer.append(journal, writer.checkpoint)
        writer.append(journal, lambda: writer.data(b"b"))
        journal.trim(LANE, 1)
        bench.commit(journal, LANE)
        assert bodies(bench.read(journal, LANE, 0)) == [b"b"]

    @pytest.mark.parametrize("offset", [0, 1, 2, 3, 7, 11])
    @pytest.mark.parametrize(("bytes_max", "most"), [(0, 1), (1, 1), (10_000, 12)])
    def test_reads(
        self, journal: Journal, bench: Bench, offset: int, bytes_max: int, most: int
    ) -> None:
        a_lane(journal, Writer())
        found = bodies(bench.read(journal, LANE, offset, bytes_max))
        assert found == [b"%d" % number for number in range(offset, 12)][:most]

    def test_bytes_max_is_kept(self, journal: Journal, bench: Bench) -> None:
        a_lane(journal, Writer())
        size = len(bench.read(journal, LANE, 0, 1))
        assert len(bodies(bench.read(journal, LANE, 0, 5 * size))) == 5
        assert len(bodies(bench.read(journal, LANE, 0, 5 * size - 1))) == 4

    def test_reads_at_and_after_the_end_and_of_nothing(
        self, journal: Journal, bench: Bench
    ) -> None:
        writer = Writer()
        writer.append(journal, writer.checkpoint)
        assert bench.read(journal, LANE, 0) == b""
        writer.append(journal, lambda: writer.data(b"a"))
        assert bench.read(journal, LANE, 1) == b""
        assert bench.read(journal, LANE, 99) == b""
        with pytest.raises(JournalError, match="unknown"):
            bench.read(journal, ("unknown", 0), 0)

    def test_a_read_begins_with_the_batch_that_holds_the_offset(
        self, journal: Journal, bench: Bench
    ) -> None:
        writer = Writer()
        writer.append(journal, writer.checkpoint)
        writer.append(journal, lambda: writer.data(b"a", b"b", b"c"))
        writer.append(journal, lambda: writer.data(b"d"))
        assert bodies(bench.read(journal, LANE, 2)) == [b"a", b"b", b"c", b"d"]
        assert bodies(bench.read(journal, LANE, 3)) == [b"d"]

    def test_trim_forgets_only_what_is_before(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        a_lane(journal, writer)
        kept = bench.recovered(journal)
        journal.trim(LANE, 6)
        bench.commit(journal, LANE)
        assert bench.stored(journal)[0].first_offset == 6
        assert bodies(bench.read(journal, LANE, 0))[0] == b"6"
        assert bodies(bench.read(journal, LANE, 8))[0] == b"8"
        assert bench.recovered(journal) == kept
        journal.trim(LANE, 1000)
        bench.commit(journal, LANE)
        assert bodies(bench.read(journal, LANE, 0))[-1] == b"11"  # never the newest
        journal.trim(("unknown", 0), 5)
        journal.remove([("unknown", 0)], lambda: None)

    def test_a_lane_that_was_forgotten_can_begin_anew(self, journal: Journal, bench: Bench) -> None:
        writer, other = Writer(), Writer(("other", 3))
        a_lane(journal, writer)
        other.append(journal, other.checkpoint)
        journal.remove([LANE], lambda: None)
        bench.commit(journal, LANE)
        assert list(bench.recovered(journal)) == [other.lane]
        writer = Writer()
        writer.append(journal, writer.checkpoint)
        writer.append(journal, lambda: writer.data(b"new"))
        bench.commit(journal, LANE)
        assert bodies(bench.read(journal, LANE, 0)) == [b"new"]

    def test_a_topic_that_was_removed_is_gone_and_can_begin_anew(
        self, journal: Journal, bench: Bench
    ) -> None:
        writers = [Writer(("orders", index)) for index in range(3)]
        other = Writer(("other", 0))
        for writer in (*writers, other):
            a_lane(journal, writer)
        gone: list[bool] = []
        journal.remove([writer.lane for writer in writers], lambda: gone.append(True))
        assert list(bench.recovered(journal)) == [other.lane], "at once, whenever it is durable"
        bench.run_until(lambda: gone)
        assert gone == [True]
        again = Writer(("orders", 1))
        again.append(journal, again.checkpoint)
        again.append(journal, lambda: again.data(b"new"))
        assert bench.commit(journal, again.lane) == {}
        assert bodies(bench.read(journal, again.lane, 0)) == [b"new"]
        other.append(journal, lambda: other.data(b"goes on"))
        assert bench.commit(journal, other.lane) == {}

    def test_what_was_committed_is_there_again(
        self, engine: Callable[[], Any], bench: Bench, keeps: bool
    ) -> None:
        if not keeps:
            pytest.skip("this engine keeps nothing")
        writer, other = Writer(), Writer(("other", 3))
        journal: Journal = engine()
        a_lane(journal, writer)
        other.append(journal, other.checkpoint)
        expected = bench.recovered(journal)
        assert bench.commit(journal, LANE, other.lane) == {}
        for _ in range(2):
            journal.close()
            journal = engine()
            assert bench.recovered(journal) == expected
        assert bodies(bench.read(journal, LANE, 0)) == [b"%d" % number for number in range(12)]
        stale = Writer(last=1)
        stale.append(journal, lambda: stale.data(b"not there"))
        assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        other.append(journal, lambda: other.data(b"goes on"))
        assert bench.commit(journal, other.lane) == {}
        journal.close()

    @pytest.mark.parametrize("asked", [False, True])
    def test_what_was_found_after_a_crash_outlives_the_next(
        self,
        engine: Callable[[], Any],
        crash: Crash | None,
        bench: Bench,
        keeps: bool,
        asked: bool,
    ) -> None:
        """It is delivered at once, whether its commit was answered or not. An engine that keeps
        nothing finds nothing, and that twice."""
        if crash is None:
            pytest.skip("this engine cannot be made to crash")
        writer, other = Writer(), Writer(("other", 3))
        journal: Journal = engine()
        a_lane(journal, writer)
        assert bench.commit(journal, LANE) == {}
        writer.append(journal, lambda: writer.data(b"12"))
        other.append(journal, other.checkpoint)
        if asked:
            journal.commit([LANE, other.lane], True, lambda _: None)
        crash(journal, False)
        journal = engine()
        found = bench.recovered(journal)
        messages = bodies(bench.read(journal, LANE, 0)) if keeps else []
        assert messages[:12] == [b"%d" % number for number in range(12)] or not keeps
        crash(journal, True)
        journal = engine()
        assert bench.recovered(journal) == found
        if keeps:
            assert bodies(bench.read(journal, LANE, 0)) == messages
            last = next(iterate(found[LANE][-1])).header
            again = Writer(LANE, last.crc, last.end_offset)
            again.append(journal, lambda: again.data(b"goes on"))
            assert bench.commit(journal, LANE) == {}
        journal.close()

    def test_what_was_found_by_opening_again_outlives_a_crash(
        self, engine: Callable[[], Any], crash: Crash | None, bench: Bench, keeps: bool
    ) -> None:
        if crash is None:
            pytest.skip("this engine cannot be made to crash")
        writer = Writer()
        journal: Journal = engine()
        a_lane(journal, writer)
        assert bench.commit(journal, LANE) == {}
        writer.append(journal, lambda: writer.data(b"12"))
        found = bench.recovered(journal, [LANE])
        crash(journal, True)
        journal = engine()
        assert bench.recovered(journal) == (found if keeps else {})
        journal.close()

    def test_opening_finds_the_lanes_that_are_asked_for(
        self, journal: Journal, bench: Bench
    ) -> None:
        """If they are there. It changes nothing for who writes to them."""
        writers = [Writer(("orders", index)) for index in range(3)]
        for writer in writers:
            a_lane(journal, writer)
        everything = bench.recovered(journal)
        assert sorted(everything) == [writer.lane for writer in writers]
        two, unknown = [writers[0].lane, writers[2].lane], ("unknown", 9)
        assert bench.recovered(journal, [*two, unknown]) == {one: everything[one] for one in two}
        assert bench.recovered(journal, [unknown]) == {}
        assert bench.recovered(journal, []) == {}
        for writer in writers:
            writer.append(journal, partial(writer.data, b"goes on"))
        assert bench.commit(journal, *[writer.lane for writer in writers]) == {}
        assert sorted(bench.recovered(journal)) == sorted(everything)
        for writer in writers:
            assert bodies(bench.read(journal, writer.lane, 12)) == [b"goes on"]

    def test_opening_is_done_once_and_behind_what_it_finds(
        self, journal: Journal, bench: Bench
    ) -> None:
        a_lane(journal, Writer())
        calls: list[object] = []
        journal.open([LANE], lambda stored: calls.append(stored.lane), calls.append)
        journal.open([], lambda stored: calls.append(stored.lane), lambda _: calls.append("empty"))
        bench.run_until(lambda: len(calls) == 3)
        bench.commit(journal, LANE)
        calls.remove("empty")
        assert calls == [LANE, None]

    def test_a_lane_that_was_opened_again_goes_on_behind_what_is_there(
        self, journal: Journal, bench: Bench
    ) -> None:
        """Not behind what was refused: who still believes in that is refused again."""
        writer, stale = Writer(), Writer(last=1)
        a_lane(journal, writer)
        stale.append(journal, lambda: stale.data(b"not there"))
        writer.append(journal, lambda: writer.data(b"not there either"))
        assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        for number in (12, 13):
            last = next(iterate(bench.recovered(journal, [LANE])[LANE][-1])).header
            assert bench.commit(journal, LANE) == {}
            again = Writer(LANE, last.crc, last.end_offset)
            again.append(journal, partial(again.data, b"%d" % number))
            assert bench.commit(journal, LANE) == {}
            writer.append(journal, lambda: writer.data(b"nor is this"))
            assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        assert bodies(bench.read(journal, LANE, 0)) == [b"%d" % number for number in range(14)]

    @pytest.mark.parametrize("lanes", [None, [LANE]])
    def test_a_lane_that_is_not_there_can_begin_after_it_was_opened(
        self, journal: Journal, bench: Bench, lanes: list[Lane] | None
    ) -> None:
        stale = Writer(last=1)
        stale.append(journal, lambda: stale.data(b"not there"))
        assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        assert bench.recovered(journal, lanes) == {}
        writer = Writer()
        first = writer.checkpoint()
        journal.append(LANE, 0, split(first))
        assert bench.commit(journal, LANE) == {}
        assert bench.recovered(journal, [LANE]) == {LANE: [first]}

    def test_opening_a_lane_leaves_the_verdicts_of_others(
        self, journal: Journal, bench: Bench
    ) -> None:
        """And what a commit says that was asked for before."""
        writers = [Writer(("orders", index)) for index in range(3)]
        lanes = [writer.lane for writer in writers]
        for writer in writers:
            writer.append(journal, writer.checkpoint)
        for lane in lanes[:2]:
            stale = Writer(lane, last=1)
            stale.append(journal, partial(stale.data, b"not there"))
        before: list[Verdicts] = []
        journal.commit(lanes, True, before.append)
        assert list(bench.recovered(journal, lanes[:1])) == lanes[:1]
        assert bench.commit(journal, *lanes) == {lanes[1]: Verdict.CONFLICT}
        writers[1].append(journal, lambda: writers[1].data(b"too late"))
        assert bench.commit(journal, *lanes) == {lanes[1]: Verdict.CONFLICT}
        bench.run_until(lambda: before)
        assert before == [{lane: Verdict.CONFLICT for lane in lanes[:2]}]
        assert [len(batches) for batches in bench.recovered(journal).values()] == [1, 1, 1]
