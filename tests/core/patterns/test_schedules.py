"""Schedules across a power cut; what they do otherwise: `tests/conformance/test_schedules.py`."""

from __future__ import annotations

import pytest

from tests.core.patterns.test_completions import crashes
from tests.core.support import Box, CrashJournal, Probe
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.patterns.schedules import CRON
from zbus.dialects.zbus.messages.cron import TIMES

HOUR_MS = 3_600_000


@pytest.mark.parametrize("synced", range(4))
def test_a_power_cut_leaves_an_occurrence_and_its_next_time_or_neither(synced: int) -> None:
    """And however late the next start is, each hour comes once."""
    box = Box(CrashJournal())
    assert isinstance(box.journal, CrashJournal)
    box.broker.schedules.times = TIMES
    box.declare(TopicOptions("Out", durability="disk"), "r", GroupOptions())
    first_ms = (box.now_ms // HOUR_MS + 1) * HOUR_MS
    row = make_row(b"id", CRON + b"0 * * * *\r\n", b"x", due_ms=first_ms)
    box.broker.schedules.put(Probe(), box.topic("Out"), row)
    box.settle()
    box.turn(first_ms - box.now_ms)
    for _ in range(synced):
        box.journal.release(1)
        box.turn()
    for after in crashes(box):
        after.broker.schedules.times = TIMES
        after.settle(HOUR_MS // 2)  # a lease that was kept is over
        assert after.take("r", topic="Out") == [b"x"]
        after.settle(HOUR_MS // 2)
        assert after.take("r", topic="Out") == [b"x"]
