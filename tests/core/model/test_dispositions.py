"""What is kept of messages that are finished: how much, and how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, again
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.ranges import finish_all
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model import dispositions as module
from zbus.core.model.dispositions import NO_ENDINGS, Disposition, Dispositions, Ending

STEPS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from([*Disposition, None]),
        st.integers(0, 3),
        st.integers(0, 30),
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_the_last_end_of_each_counts(
    steps: list[tuple[int, Disposition | None, int, int]], by_snapshot: bool
) -> None:
    kept_ms, now_ms = 50, 1_000
    fates, shadow = Dispositions(), Dispositions()
    model: dict[int, Ending] = {}
    for offset, fate, attempts, ms in steps:
        now_ms += ms
        if fate is None:
            known = offset in model and model[offset].time_ms > now_ms - kept_ms
            assert fates.forget(offset) >= known
            assert fates.find(offset, now_ms, kept_ms) is None, "at once"
            assert not fates.forget(offset)
        else:
            fates.note(offset, fate, attempts)
            assert fates.find(offset, now_ms, kept_ms) == Ending(fate, now_ms, attempts), "at once"
        shadow.apply(fates.take(now_ms, kept_ms))
        assert fates.take(now_ms, kept_ms) is NO_ENDINGS
        if fate is None:
            model.pop(offset, None)
        else:
            model[offset] = Ending(fate, now_ms, attempts)
        if by_snapshot:
            shadow = Dispositions()
            shadow.apply(fates.snapshot(now_ms, kept_ms))
        for one in (fates, shadow):
            for at in range(10):
                ending = model.get(at)
                fresh = ending is not None and ending.time_ms > now_ms - kept_ms
                assert one.find(at, now_ms, kept_ms) == (ending if fresh else None)


def test_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNT_MAX", 3)
    fates = Dispositions()
    for offset in (0, 1, 2, 0, 3):
        fates.note(offset, Disposition.DONE, 0)
        fates.take(10, 100)
    assert [at for at in range(5) if fates.find(at, 10, 100)] == [0, 2, 3]
    assert len(fates.snapshot(10, 100)) == 3


def test_what_is_past_its_time_is_not_stored() -> None:
    fates = Dispositions()
    fates.note(0, Disposition.DONE, 0)
    fates.take(10, 100)
    assert len(fates.snapshot(109, 100)) == 1
    assert fates.snapshot(110, 100) is NO_ENDINGS


def test_nothing_is_noted_twice() -> None:
    backlog = Backlog()
    backlog.keep_fates(True)
    backlog.lease(0, 1)
    assert backlog.finish(0)
    assert not backlog.finish(0, Disposition.DELETED)
    assert finish_all(backlog, range(5)) == 4
    assert backlog.fates is not None
    found = [backlog.fates.find(at, 0, 9) for at in range(6)]
    assert found == [Ending(Disposition.DONE, 0, 1), *[Ending(Disposition.DONE, 0, 0)] * 4, None]


def test_without_the_option_nothing_is_kept() -> None:
    backlog = Backlog()
    finish_all(backlog, range(5))
    assert backlog.fates is None


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_crash_between_the_end_and_the_write(partitions: int) -> None:
    """It comes again, and has one end: what is told and what is done are one write."""
    box = Box(CrashJournal())
    options = TopicOptions("T", partitions=partitions, settled_ms=1_000)
    box.declare(options, "g", GroupOptions(lease=True))
    box.settle()
    box.put(b"0")
    box.settle()
    assert box.take() == [b"0"]
    box.ack(0)
    assert isinstance(box.journal, CrashJournal)
    crashed = Box(box.journal.crash(lambda lane, unsynced: 0), now_ms=box.now_ms)
    backlog = crashed.group().backlogs[0]
    assert backlog.fates is not None
    assert backlog.fates.find(0, crashed.now_ms, 1_000) is None
    settled = again(box).group().backlogs[0].fates
    assert settled is not None
    ending = settled.find(0, box.now_ms, 1_000)
    assert ending is not None
    assert (ending.fate, ending.attempts) == (Disposition.DONE, 1)
