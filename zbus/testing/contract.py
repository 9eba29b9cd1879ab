"""What every engine promises (`zbus.journal.port`), as tests for it to pass.

    class TestMine(JournalContract):
        @pytest.fixture
        def engine(self, bench, tmp_path):
            return lambda: MyJournal(tmp_path, bench.post, bench.failures.append)

`engine` makes the engine; made again after `close`, it is to find what was committed. The fixture
`keeps` says whether it does. `docs/howto/write-an-engine.md` tells more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from zbus.journal.batch import iterate
from zbus.journal.port import Journal, JournalDamage, JournalError, Verdict
from zbus.testing.engines import Bench, Writer, bodies, recovered, split, stored_lanes

LANE = ("orders", 0)


def a_lane(journal: Journal, writer: Writer, roll_every: int = 3, count: int = 12) -> None:
    """Messages 0 to `count`, one in a batch, with state between them."""
    for number in range(count):
        if number % roll_every == 0:
            writer.append(journal, writer.checkpoint)
        writer.append(journal, partial(writer.data, b"%d" % number))
        writer.append(journal, writer.state)


class JournalContract:
    """See the module."""

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
        assert recovered(journal) == {LANE: log}
        assert bench.read(journal, LANE, 0) == log[1] + log[3]

    def test_several_batches_in_one_append(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        log = [writer.checkpoint(), writer.data(b"a"), writer.state()]
        journal.append(LANE, 0, split(b"".join(log)))
        assert recovered(journal) == {LANE: log}
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
        assert recovered(journal)[LANE] == [first]

    def test_a_writer_of_a_lane_that_is_gone_is_refused(
        self, journal: Journal, bench: Bench
    ) -> None:
        writer = Writer()
        journal.append(LANE, 0, split(writer.checkpoint()))
        journal.trim(LANE, None)
        writer.append(journal, lambda: writer.data(b"a"))
        assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        assert recovered(journal) == {}

    def test_a_lane_begins_with_a_checkpoint(self, journal: Journal) -> None:
        with pytest.raises(JournalError, match="must begin with a checkpoint"):
            journal.append(LANE, 0, split(Writer().data(b"a")))
        assert recovered(journal) == {}

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
        assert calls == ["nothing to wait for"]
        journal.commit([LANE], True, lambda _: calls.append("first"))
        journal.commit([LANE], True, lambda _: calls.append("nothing new"))
        journal.commit([("unknown", 9)], True, lambda _: calls.append("unknown"))
        bench.run_until(lambda: len(calls) == 4)
        bench.commit(journal, LANE)
        assert sorted(calls[1:]) == ["first", "nothing new", "unknown"]

    def test_the_newest_segment_is_what_recovery_gets(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        for make in (writer.checkpoint, lambda: writer.data(b"a"), writer.state):
            writer.append(journal, make)
        last = writer.last
        newest = split(writer.checkpoint() + writer.data(b"b"))
        journal.append(LANE, last, newest[:1])
        journal.append(LANE, newest[0].header.crc, newest[1:])
        assert recovered(journal) == {LANE: [batch.raw for batch in newest]}
        assert bodies(bench.read(journal, LANE, 0)) == [b"a", b"b"]

    def test_checkpoints_one_after_another(self, journal: Journal, bench: Bench) -> None:
        writer = Writer()
        for _ in range(3):
            writer.append(journal, writer.checkpoint)
            writer.append(journal, writer.state)
        writer.append(journal, lambda: writer.data(b"a"))
        batches = recovered(journal)[LANE]
        assert len(batches) == 3
        assert bodies(bench.read(journal, LANE, 0)) == [b"a"]

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
        kept = recovered(journal)
        journal.trim(LANE, 6)
        bench.commit(journal, LANE)
        assert stored_lanes(journal)[0].first_offset == 6
        assert bodies(bench.read(journal, LANE, 0))[0] == b"6"
        assert bodies(bench.read(journal, LANE, 8))[0] == b"8"
        assert recovered(journal) == kept
        journal.trim(LANE, 1000)
        bench.commit(journal, LANE)
        assert bodies(bench.read(journal, LANE, 0))[-1] == b"11"  # never the newest
        journal.trim(("unknown", 0), 5)
        journal.trim(("unknown", 0), None)

    def test_a_lane_that_was_forgotten_can_begin_anew(self, journal: Journal, bench: Bench) -> None:
        writer, other = Writer(), Writer(("other", 3))
        a_lane(journal, writer)
        other.append(journal, other.checkpoint)
        journal.trim(LANE, None)
        bench.commit(journal, LANE)
        assert list(recovered(journal)) == [other.lane]
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
        assert list(recovered(journal)) == [other.lane], "at once, whenever it is durable"
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
        expected = recovered(journal)
        assert bench.commit(journal, LANE, other.lane) == {}
        for _ in range(2):
            journal.close()
            journal = engine()
            assert recovered(journal) == expected
        assert bodies(bench.read(journal, LANE, 0)) == [b"%d" % number for number in range(12)]
        stale = Writer(last=1)
        stale.append(journal, lambda: stale.data(b"not there"))
        assert bench.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
        other.append(journal, lambda: other.data(b"goes on"))
        assert bench.commit(journal, other.lane) == {}
        journal.close()
