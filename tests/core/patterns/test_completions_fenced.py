"""Deliveries that are settled while one of the two partitions, or both, are read again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.support import Probe, ranges, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Refusal
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.patterns.completions import Source
from zbus.storage.port import Lane, Verdict

SOURCE: Lane = ("T", 0)
TARGET: Lane = ("Out", 0)


def prepared(lease_stored: bool = True) -> LateBox:
    """A message of `T` is leased by g; nothing is in `Out`."""
    box = LateBox()
    box.declare(TopicOptions("Out", durability="disk"), "g", GroupOptions(lease=True))
    box.put(b"0")
    box.settle()
    assert box.take() == [b"0"]
    if lease_stored:
        box.settle(10)
    return box


def transform(box: LateBox, due_ms: int = 0) -> Probe:
    probe = Probe()
    chunk = Chunk.of([Message(b"", body=b"result")])
    source = Source(box.group(), box.partition(), ranges([0]), due_ms=due_ms, attempts=1)
    box.broker._completions.put(box.partition("Out"), probe, chunk, [source])
    box.turn()
    return probe


def fence(box: LateBox, lane: Lane, written: bool = False) -> None:
    """A put to this partition is lost, or its answer is; it is not read again yet."""
    topic, index = lane
    if lane not in box.late.waiting:
        box.put(b"doomed", topic=topic, index=index)
        box.turn()
    box.late.step(lane, Verdict.LOST, written)
    box.late.step(lane)
    box.run_posted()
    assert box.partition(topic, index).fenced is not None


def step(box: LateBox, lane: Lane) -> None:
    """All that this partition waits for becomes known, and nothing of others."""
    for _ in range(5):
        while lane in box.late.waiting:
            box.late.step(lane)
        box.run_posted()


def read_again(box: LateBox, lane: Lane, pause_ms: int = 1_000) -> None:
    for _ in range(3):
        box.turn(pause_ms)
        step(box, lane)
    assert box.partition(*lane).fenced is None


def life(box: LateBox) -> MessageState:
    return box.group().backlogs[0].life(0)


@pytest.mark.parametrize("refused", [False, True])
def test_what_is_decided_is_not_handed_out_before_both_are_read_again(refused: bool) -> None:
    """Who decided it is fenced, and knows it still, also if it refused something meanwhile."""
    box = prepared()
    probe = transform(box)
    step(box, TARGET)
    assert probe.fine
    box.turn()
    fence(box, SOURCE)
    fence(box, TARGET)
    if refused:
        put = box.put(b"too soon", topic="Out")
        box.turn()
        assert refusal(put).refusal is Refusal.FENCED
    read_again(box, SOURCE)
    box.turn(60_000)
    step(box, SOURCE)
    assert life(box) is MessageState.LEASED
    assert box.take() == []
    read_again(box, TARGET)
    box.settle(2_000)
    assert life(box) is MessageState.DONE


def test_what_is_lost_holds_nothing_after_it_was_read_again() -> None:
    box = prepared()
    probe = transform(box)
    fence(box, TARGET)
    assert refusal(probe).refusal is Refusal.FENCED
    fence(box, SOURCE)
    read_again(box, SOURCE)
    read_again(box, TARGET)
    box.settle(60_000)
    assert box.take() == [b"0"]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("lease_stored", [True, False])
@pytest.mark.parametrize("delay_ms", [0, 100_000])
def test_it_is_decided_right_after_its_partition_was_read_again(
    delay_ms: int, lease_stored: bool, held: bool
) -> None:
    """In the same turn, before it was looked at what becomes of its deliveries; or after that."""
    box = prepared(lease_stored)
    probe = transform(box, delay_ms and box.now_ms + delay_ms)
    fence(box, SOURCE)
    step(box, SOURCE)
    assert box.partition(*SOURCE).fenced is None
    if held:
        box.turn()
    step(box, TARGET)
    assert probe.fine
    box.settle(60_000)
    assert life(box) is (MessageState.DELAYED if delay_ms else MessageState.DONE)


def given(box: LateBox, *bodies: bytes, lease_ms: int = 100_000, **limits: Any) -> None:
    """These messages of `In` are leased by h; dead ones go to `Dead`."""
    for name in ("Out", "Dead"):
        box.declare(TopicOptions(name, durability="disk"), "g", GroupOptions(lease=True))
    leasing = GroupOptions(lease=True, lease_ms=lease_ms, **limits)
    box.declare(TopicOptions("In", durability="disk"), "h", leasing)
    box.settle()
    box.put(*bodies, topic="In")
    box.settle()
    assert box.take("h", topic="In") == [*bodies]
    box.settle(10)


def result_of(box: LateBox, offset: int) -> Probe:
    probe = Probe()
    chunk = Chunk.of([Message(b"", body=b"result")])
    source = Source(box.group("h", "In"), box.partition("In"), ranges([offset]))
    box.broker._completions.put(box.partition("Out"), probe, chunk, [source])
    box.turn()
    return probe


@pytest.mark.parametrize("limits", [{}, {"attempts_max": 1, "dead_letter": "Dead"}])
def test_what_is_done_does_not_die_when_its_lease_ended_while_it_could_not_be_read(
    limits: dict[str, Any],
) -> None:
    box = LateBox()
    given(box, b"0", lease_ms=1_000, **limits)
    probe = result_of(box, 0)
    fence(box, ("In", 0))
    step(box, TARGET)
    assert probe.fine
    for _ in range(3):
        box.turn(1_000)
    step(box, ("In", 0))
    box.settle()
    box.settle(5_000)
    assert [box.topic(name).depth() for name in ("Out", "Dead")] == [1, 0]
    assert box.group("h", "In").backlogs[0].life(0) is MessageState.DONE
    assert box.group("h", "In").backlogs[0].dead == 0


@pytest.mark.parametrize("order", [("In", "Dead"), ("Dead", "In")])
@pytest.mark.parametrize("pause_ms", [10, 1_000])
def test_a_dead_letter_of_which_it_was_not_known_is_there_once(
    pause_ms: int, order: tuple[str, ...]
) -> None:
    """Its topic has it, and its answer was lost; then its own partition is read again, too."""
    box = LateBox()
    given(box, b"0", lease_ms=1_000, attempts_max=1, dead_letter="Dead")
    box.turn(1_000)
    box.turn()
    fence(box, ("Dead", 0), written=True)
    fence(box, ("In", 0))
    for name in order:
        read_again(box, (name, 0), pause_ms)
    for _ in range(300):
        box.settle(pause_ms)
    assert box.topic("Dead").depth() == 1
    backlog = box.group("h", "In").backlogs[0]
    assert (backlog.life(0), backlog.dead) == (MessageState.DONE, 1)


def test_the_topic_of_the_result_goes_before_its_source_is_settled() -> None:
    box = LateBox()
    given(box, b"0")
    probe = result_of(box, 0)
    fence(box, ("In", 0))
    step(box, TARGET)
    assert probe.fine
    step(box, ("In", 0))
    box.turn()
    box.broker.remove_topic(Probe(), box.topic("Out"))
    box.settle()
    box.settle(10_000)
    backlog = box.group("h", "In").backlogs[0]
    assert (backlog.life(0), backlog.leased.settling) == (MessageState.DONE, set())


def test_a_second_word_about_one_closes_no_other_of_its_number() -> None:
    box, lane = LateBox(), ("In", 0)
    given(box, b"0", b"1")
    probe = result_of(box, 0)
    step(box, TARGET)
    assert probe.fine
    box.turn()
    fence(box, TARGET)
    read_again(box, TARGET)
    box.turn()
    known = box.partition("Out").completions
    while known is not None and known.open and lane in box.late.waiting:
        box.late.step(lane)
        box.run_posted()
    box.turn(10)
    step(box, TARGET)
    box.turn(10)
    result_of(box, 1)
    while lane in box.late.waiting:
        box.late.step(lane)
        box.run_posted()
    known = box.partition("Out").completions
    assert known is not None
    assert [one.ranges for one in known.open.values()] == [((1, 2),)]
