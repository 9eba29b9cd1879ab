"""All pulls of a group end, which are very many: in parts, and nothing else waits for all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.support import Box, Probe, PullProbe
from zbus.core.delivery.budget import ENDED_PER_TURN_MAX as PART
from zbus.core.model.errors import BrokerError
from zbus.core.topics.outcomes import Delivered, Empty, EmptyReason
from zbus.storage.memory import MemoryJournal

COUNT = 2 * PART + 10


def waiting(box: Box, count: int = COUNT) -> list[PullProbe]:
    box.declare("T", "g")
    box.settle()
    session = box.session()
    pulls = [PullProbe(session) for _ in range(count)]
    for pull in pulls:
        box.broker.pull(box.group(), pull, box.now_ms + 60_000)
    box.settle()
    return pulls


def open_ones(pulls: list[PullProbe]) -> int:
    return sum(pull.open for pull in pulls)


def remove_group(box: Box) -> None:
    box.broker.remove_group(Probe(), box.group())


def remove_topic(box: Box) -> None:
    box.broker.remove_topic(Probe(), box.topic())


@pytest.mark.parametrize("remove", [remove_group, remove_topic])
def test_a_part_of_them_ends_in_each_turn(remove: Any) -> None:
    box = Box(MemoryJournal())
    pulls = waiting(box)
    remove(box)
    left = [open_ones(pulls)]
    while left[-1]:
        assert box.broker.next_due() == box.now_ms, "the next turn comes at once"
        box.turn()
        left.append(open_ones(pulls))
    assert left == [COUNT - PART, COUNT - 2 * PART, 0]
    assert all(isinstance(pull.answers[-1], BrokerError) for pull in pulls)
    assert box.broker._dispatch.pulls.count == 0


def test_two_groups_share_a_part() -> None:
    box = Box(MemoryJournal())
    pulls = waiting(box, PART)
    box.declare("T", "h")
    box.settle()
    others = [PullProbe(box.session()) for _ in range(PART)]
    for pull in others:
        box.broker.pull(box.group("h"), pull, None)
    box.settle()
    remove_topic(box)
    assert open_ones([*pulls, *others]) == PART
    box.turn()
    assert open_ones([*pulls, *others]) == 0


def test_nothing_is_handed_out_in_a_group_whose_pulls_end() -> None:
    box = Box(MemoryJournal())
    pulls = waiting(box)
    group = box.group()
    box.broker._dispatch.pulls.cancel(group, EmptyReason.LEFT)
    box.put(b"x")
    box.settle()
    assert not any(isinstance(pull.answers[-1], Delivered) for pull in pulls)
    assert box.take() == [b"x"], "whoever comes when they have ended is served"


def test_those_that_end_otherwise_meanwhile_end_once() -> None:
    box = Box(MemoryJournal())
    pulls = waiting(box)
    remove_group(box)
    box.broker.leave(pulls[-1].session)
    box.turn(60_000)
    box.settle()
    assert open_ones(pulls) == 0
    assert box.broker._dispatch.pulls.count == 0


def test_a_broker_that_stops_ends_all_of_them_at_once() -> None:
    box = Box(MemoryJournal())
    pulls = waiting(box)
    box.broker.stop()
    assert open_ones(pulls) == 0
    ends = {pull.answers[-1].reason for pull in pulls if isinstance(pull.answers[-1], Empty)}
    assert ends == {EmptyReason.STOPPING}
