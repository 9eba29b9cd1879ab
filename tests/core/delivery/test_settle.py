"""Ranges of deliveries: what a request costs is what it changes, not what it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe, again, refusal
from tests.limits import examples
from zbus.core.cursor.journal import snapshot
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.storage.format.batch import Batch, Kind

ALL = range(1 << 40)
"""To take a step for each of them would take days."""

LEASING = GroupOptions(lease=True, window=100)


def leasing(count: int, durability: str = "os") -> Box:
    """A group g that has handed out all there is."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", durability=durability), "g", LEASING)
    box.put(*[b"%d" % number for number in range(count)])
    box.settle()
    assert len(box.take()) == count
    return box


def ack(box: Box, *ranges: range) -> int:
    probe = Probe()
    count = box.broker.ack(probe, box.group(), box.partition(), ranges)
    box.settle()
    assert probe.fine
    return count


def states(box: Box) -> int:
    """Batches that say how groups stand."""
    assert isinstance(box.journal, CrashJournal)
    written = box.journal.written["T", 0]
    return sum(isinstance(b, Batch) and b.header.kind is Kind.STATE for b in written)


def test_an_ack_of_everything_settles_what_was_handed_out() -> None:
    box = leasing(3)
    box.put(b"not yet")
    box.settle()
    assert ack(box, range(1, 2)) == 1
    assert ack(box, ALL, ALL) == 2
    assert ack(box, ALL) == 0
    box.turn(60_000)
    assert box.take() == [b"not yet"]


def test_an_ack_after_a_restart_settles_what_is_there() -> None:
    box = again(leasing(3))
    box.put(b"new")
    box.settle()
    assert ack(box, range(1, 2)) == 1
    assert ack(box, ALL) == 2
    assert box.group().position() == [3]
    assert box.take() == [b"new"]


def test_an_ack_after_a_restart_moves_the_cursor_at_once() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g", LEASING)
    for _ in range(10):
        box.put(*[b"x"] * 10_000)
        box.settle()
    box = again(box)
    assert ack(box, ALL) == 100_000
    backlog = box.group().backlogs[0]
    assert (backlog.cursor, len(backlog.ahead)) == (100_000, 0)


def test_an_ack_that_changes_nothing_writes_nothing() -> None:
    box = leasing(2)
    assert ack(box, range(2)) == 2
    before = states(box)
    assert ack(box, range(10_000)) == 0
    assert states(box) == before


def test_an_ack_that_changes_nothing_waits_for_the_one_that_did() -> None:
    box = leasing(1, "disk")
    first, second = Probe(), Probe()
    for probe in (first, second):
        box.broker.ack(probe, box.group(), box.partition(), [range(1)])
        box.turn()
        assert probe.open, "it is not durable yet"
    box.settle()
    assert first.fine
    assert second.fine


@pytest.mark.parametrize("verb", ["nack", "extend"])
def test_of_everything_those_that_are_leased(verb: str) -> None:
    box = leasing(3)
    ack(box, range(1, 2))
    where = box.group(), box.partition()
    if verb == "nack":
        count = box.broker.nack(Probe(), *where, [ALL, ALL])
    else:
        count = box.broker.extend(Probe(), *where, [ALL, ALL], box.now_ms + 1_000)
    assert count == 2
    box.turn(60_000)
    assert box.take() == [b"0", b"2"]


def test_of_everything_none_is_leased() -> None:
    box, probe = leasing(0), Probe()
    assert box.broker.nack(probe, box.group(), box.partition(), [range(5, 9), range(7, 12)]) == 0
    assert refusal(probe).text == "none of these 7 offsets is leased"


RANGES = st.lists(
    st.tuples(st.integers(0, 14), st.integers(0, 14)).map(lambda ends: range(*sorted(ends))),
    max_size=4,
)


@examples(300, derandomize=True)
@given(
    before=st.sampled_from([0, 4, 8]),
    taken=st.integers(0, 12),
    settled=RANGES,
    first=st.integers(0, 4),
    asked=RANGES,
)
def test_an_ack_of_ranges_is_that_of_their_offsets(
    before: int, taken: int, settled: list[range], first: int, asked: list[range]
) -> None:
    """Whatever of the log is older than the broker, handed out, settled, put back or forgotten."""
    boxes = []
    for _ in range(2):
        box = Box(CrashJournal())
        box.declare(TopicOptions("T", durability="os"), "g", LEASING)
        box.put(*[b"%d" % number for number in range(before)])
        box.settle()
        box = again(box)
        box.put(*[b"%d" % number for number in range(before, 12)])
        box.settle()
        box.take(count=taken)
        box.broker.nack(Probe(), box.group(), box.partition(), [range(2, 4)], due_ms=box.now_ms + 9)
        ack(box, *settled)
        if first:
            box.broker._retention.advance(box.partition(), first)
            box.partition().first = first
        boxes.append(box)
    one, other = boxes
    count = ack(one, *asked)
    assert count == sum([ack(other, range(o, o + 1)) for offsets in asked for o in offsets])
    here, there = (box.group().backlogs[0] for box in boxes)
    assert snapshot(here, "g") == snapshot(there, "g")
    one.turn(60_000)
    other.turn(60_000)
    assert one.take() == other.take()
    assert [again(box).take() for box in boxes] == [[], []]


@pytest.mark.parametrize("offsets", [range(2, 3), range(1, 4)], ids=["one", "a range"])
def test_what_is_held_for_the_broker_itself_is_not_acknowledged(offsets: range) -> None:
    """It is leased so that nobody else gets it, and was handed to nobody."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", durability="os"), "g", LEASING)
    box.put(b"0", b"1", b"2", b"3")
    box.settle()
    backlog = box.group().backlogs[0]
    backlog.hold(2, box.now_ms + 1_000)
    assert ack(box, offsets) == 0
    assert 2 in backlog.leased
