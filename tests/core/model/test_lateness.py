"""What time does in a group is counted."""

from __future__ import annotations

import pytest

from tests.core.support import Box
from zbus.core.cursor import due_queue as overdue
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.lateness import Lateness
from zbus.storage.memory import MemoryJournal


@pytest.fixture
def box() -> Box:
    box = Box(MemoryJournal())
    topic = TopicOptions("T", settled_ms=60_000)
    box.declare(topic, "g", GroupOptions(lease=True, lease_ms=100, window=100, attempts_max=2))
    box.settle()
    return box


def tally(box: Box) -> Lateness:
    return box.group().backlogs[0].tally


def test_what_is_due(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lots, as they are needed."""
    monkeypatch.setattr(overdue, "LOT", 3)
    box.put(*[b"x"] * 5, due_ms=box.now_ms + 10)
    box.settle()
    assert box.take() == []
    box.turn(15)
    box.settle()
    assert tally(box) == Lateness(due=3, due_late_ms=15, due_latest_ms=5)
    assert len(box.take()) == 5
    assert tally(box).due == 5


def test_what_nobody_acknowledged(box: Box) -> None:
    box.put(b"a", b"b")
    box.settle()
    box.take()
    box.ack(0)
    box.settle(100)
    assert tally(box) == Lateness(lost=1)
    box.take()
    box.settle(100)
    assert tally(box) == Lateness(lost=1, ended=1), "its attempts are used up"


def test_another_takes_its_place(box: Box) -> None:
    box.put(b"a")
    box.settle()
    box.take()
    box.settle(100)
    box.group().backlogs[0].tally = Lateness()
    box.take()
    box.settle(100)
    assert tally(box) == Lateness(ended=1)
