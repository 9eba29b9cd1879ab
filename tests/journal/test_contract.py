"""What every engine promises: one suite, run against each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.journal.support import Loop, Writer, bodies, recovered, split
from zbus.journal.batch import iterate
from zbus.journal.memory import MemoryJournal
from zbus.journal.port import Journal, JournalDamage, JournalError, Verdict

LANE = ("orders", 0)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture(params=["memory", "local"])
def journal(request: pytest.FixtureRequest, loop: Loop, tmp_path: Path) -> Iterator[Journal]:
    made: Journal = MemoryJournal() if request.param == "memory" else loop.local(tmp_path / "data")
    yield made
    made.close()
    assert loop.failures == []


def test_batches_come_back_in_order(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    log = [writer.checkpoint(), writer.data(b"a"), writer.state(), writer.data(b"b", b"c")]
    last = 0
    for batch in log:
        journal.append(LANE, last, split(batch))
        last = next(iterate(batch)).header.crc
    assert recovered(journal) == {LANE: log}
    assert loop.read(journal, LANE, 0) == log[1] + log[3]


def test_several_batches_in_one_append(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    log = [writer.checkpoint(), writer.data(b"a"), writer.state()]
    journal.append(LANE, 0, split(b"".join(log)))
    assert recovered(journal) == {LANE: log}
    assert bodies(loop.read(journal, LANE, 0)) == [b"a"]


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("after", [0, 1])
def test_a_stale_writer_is_refused(journal: Journal, loop: Loop, after: int, synced: bool) -> None:
    """That is told by the commit; what it writes then is refused as well, and other lanes go on."""
    writer, other = Writer(), Writer(("other", 3))
    first = writer.checkpoint()
    journal.append(LANE, 0, split(first))
    assert loop.commit(journal, LANE, synced=synced) == {}
    stale = Writer(last=after)
    stale.append(journal, lambda: stale.data(b"not there"))
    other.append(journal, other.checkpoint)
    assert loop.commit(journal, LANE, other.lane, synced=synced) == {LANE: Verdict.CONFLICT}
    writer.append(journal, lambda: writer.data(b"too late"))
    assert loop.commit(journal, LANE, synced=synced) == {LANE: Verdict.CONFLICT}
    assert loop.commit(journal, other.lane, synced=synced) == {}
    assert recovered(journal)[LANE] == [first]


def test_a_writer_of_a_lane_that_is_gone_is_refused(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    journal.append(LANE, 0, split(writer.checkpoint()))
    journal.trim(LANE, None)
    writer.append(journal, lambda: writer.data(b"a"))
    assert loop.commit(journal, LANE) == {LANE: Verdict.CONFLICT}
    assert recovered(journal) == {}


def test_a_lane_begins_with_a_checkpoint(journal: Journal) -> None:
    with pytest.raises(JournalError, match="must begin with a checkpoint"):
        journal.append(LANE, 0, split(Writer().data(b"a")))
    assert recovered(journal) == {}


def test_batches_that_do_not_chain_are_refused(journal: Journal) -> None:
    writer = Writer()
    journal.append(LANE, 0, split(writer.checkpoint()))
    with pytest.raises(JournalDamage):
        journal.append(LANE, writer.last, split(Writer(last=99).data(b"a")))
    with pytest.raises(JournalDamage):
        journal.append(LANE, writer.last, [])
    writer.append(journal, lambda: writer.data(b"a"))


def test_commit_calls_done_once(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    calls: list[str] = []
    journal.commit([], True, lambda _: calls.append("nothing to wait for"))
    assert calls == ["nothing to wait for"]
    journal.commit([LANE], True, lambda _: calls.append("first"))
    journal.commit([LANE], True, lambda _: calls.append("nothing new"))
    journal.commit([("unknown", 9)], True, lambda _: calls.append("unknown"))
    loop.run_until(lambda: len(calls) == 4)
    loop.commit(journal, LANE)
    assert sorted(calls[1:]) == ["first", "nothing new", "unknown"]


def test_the_newest_segment_is_what_recovery_gets(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    for make in (writer.checkpoint, lambda: writer.data(b"a"), writer.state):
        writer.append(journal, make)
    last = writer.last
    newest = split(writer.checkpoint() + writer.data(b"b"))
    journal.append(LANE, last, newest[:1])
    journal.append(LANE, newest[0].header.crc, newest[1:])
    assert recovered(journal) == {LANE: [batch.raw for batch in newest]}
    assert bodies(loop.read(journal, LANE, 0)) == [b"a", b"b"]


def test_checkpoints_one_after_another(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    for _ in range(3):
        writer.append(journal, writer.checkpoint)
        writer.append(journal, writer.state)
    writer.append(journal, lambda: writer.data(b"a"))
    batches = recovered(journal)[LANE]
    assert len(batches) == 3
    assert bodies(loop.read(journal, LANE, 0)) == [b"a"]


def a_lane(journal: Journal, writer: Writer, roll_every: int = 3, count: int = 12) -> None:
    """Messages 0 to `count`, one in a batch, with state between them."""
    for number in range(count):
        if number % roll_every == 0:
            writer.append(journal, writer.checkpoint)
        writer.append(journal, partial(writer.data, b"%d" % number))
        writer.append(journal, writer.state)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 7, 11])
@pytest.mark.parametrize(("bytes_max", "most"), [(0, 1), (1, 1), (10_000, 12)])
def test_reads(journal: Journal, loop: Loop, offset: int, bytes_max: int, most: int) -> None:
    a_lane(journal, Writer())
    found = bodies(loop.read(journal, LANE, offset, bytes_max))
    assert found == [b"%d" % number for number in range(offset, 12)][:most]


def test_bytes_max_is_kept(journal: Journal, loop: Loop) -> None:
    a_lane(journal, Writer())
    size = len(loop.read(journal, LANE, 0, 1))
    assert len(bodies(loop.read(journal, LANE, 0, 5 * size))) == 5
    assert len(bodies(loop.read(journal, LANE, 0, 5 * size - 1))) == 4


def test_reads_at_and_after_the_end_and_of_nothing(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    assert loop.read(journal, LANE, 0) == b""
    writer.append(journal, lambda: writer.data(b"a"))
    assert loop.read(journal, LANE, 1) == b""
    assert loop.read(journal, LANE, 99) == b""
    with pytest.raises(JournalError, match="unknown"):
        loop.read(journal, ("unknown", 0), 0)


def test_a_read_begins_with_the_batch_that_holds_the_offset(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a", b"b", b"c"))
    writer.append(journal, lambda: writer.data(b"d"))
    assert bodies(loop.read(journal, LANE, 2)) == [b"a", b"b", b"c", b"d"]
    assert bodies(loop.read(journal, LANE, 3)) == [b"d"]


def test_trim_forgets_only_what_is_before(journal: Journal, loop: Loop) -> None:
    writer = Writer()
    a_lane(journal, writer)
    kept = recovered(journal)
    journal.trim(LANE, 6)
    loop.commit(journal, LANE)
    assert next(iter(journal.lanes())).first_offset == 6
    assert bodies(loop.read(journal, LANE, 0))[0] == b"6"
    assert bodies(loop.read(journal, LANE, 8))[0] == b"8"
    assert recovered(journal) == kept
    journal.trim(LANE, 1000)
    loop.commit(journal, LANE)
    assert bodies(loop.read(journal, LANE, 0))[-1] == b"11"  # never the newest
    journal.trim(("unknown", 0), 5)
    journal.trim(("unknown", 0), None)


def test_a_lane_that_was_forgotten_can_begin_anew(journal: Journal, loop: Loop) -> None:
    writer, other = Writer(), Writer(("other", 3))
    a_lane(journal, writer)
    other.append(journal, other.checkpoint)
    journal.trim(LANE, None)
    loop.commit(journal, LANE)
    assert list(recovered(journal)) == [other.lane]
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"new"))
    loop.commit(journal, LANE)
    assert bodies(loop.read(journal, LANE, 0)) == [b"new"]


STEPS = st.lists(
    st.tuples(st.sampled_from("dddscct"), st.integers(0, 30), st.booleans()), max_size=30
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_engines_agree(steps: list[tuple[str, int, bool]], tmp_path_factory: object) -> None:
    """The same calls leave the same lane, whatever the engine, restarts included."""
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    loop, data_dir = Loop(), tmp_path_factory.mktemp("agree")
    memory: Journal = MemoryJournal()
    local: Journal = loop.local(data_dir)
    writer = Writer()
    first = split(writer.checkpoint())
    memory.append(LANE, 0, first)
    local.append(LANE, 0, first)
    for step, number, restart in steps:
        last = writer.last
        if step == "t":
            memory.trim(LANE, min(number, writer.end))
            local.trim(LANE, min(number, writer.end))
        else:
            made = {"s": writer.state, "c": writer.checkpoint}.get(
                step, lambda number=number: writer.data(b"x" * number, b"y")
            )()
            batches = split(made)
            memory.append(LANE, last, batches)
            local.append(LANE, last, batches)
        if restart:
            local.close()
            local = loop.local(data_dir)
    stored = next(iter(local.lanes()))
    first_offset = max(stored.first_offset, next(iter(memory.lanes())).first_offset)
    state = [raw for raw in stored.batches if next(iterate(raw)).header.records == 0]
    assert state == [
        raw for raw in recovered(memory)[LANE] if next(iterate(raw)).header.records == 0
    ]
    for offset in range(first_offset, writer.end + 1):
        assert loop.read(local, LANE, offset, 99) == loop.read(memory, LANE, offset, 99)
    local.close()
    assert loop.failures == []
