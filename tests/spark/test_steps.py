"""Partitions go forward in time together: what a watermark would drop is never left for later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.errors import Unverified
from zbus.spark.logs import Log, Span
from zbus.spark.options import read_wish
from zbus.spark.source.lockstep import require_timely, together
from zbus.spark.source.planning import Offsets, Part, find_spans, limit, reached, to_read

WISH = read_wish({"broker": "a:1", "topicsPattern": ".*"})


def log_of(lanes: list[list[tuple[int, int]]]) -> MemoryLog:
    """Of each topic: how long after the one before, and how many."""
    log = MemoryLog()
    for number, batches in enumerate(lanes):
        at_ms = TIME_MS
        for later_ms, count in batches:
            at_ms += later_ms
            log.put(f"t{number}", [b"x"] * count, time_ms=at_ms)
    return log


def times(log: Log, part: Part) -> list[int]:
    found = [log.time_at(part.span, offset) for offset in range(part.start, part.stop)]
    return [time_ms for time_ms in found if time_ms is not None]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 20),
)
def test_no_batch_is_earlier_than_one_before(lanes: list[list[tuple[int, int]]], rows: int) -> None:
    log = log_of(lanes)
    at: Offsets = {}
    newest_ms, read, limited = 0, 0, True
    while limited:
        whole = to_read(find_spans(log, WISH), at, fail=True)
        bounded = limit(whole, rows, None)
        parts = together(log, whole, bounded)
        require_timely(log, parts, 1)
        found = [time_ms for part in parts for time_ms in times(log, part)]
        assert all(part.stop <= less.stop for part, less in zip(parts, bounded, strict=True))
        assert min(found) >= newest_ms
        newest_ms, read, at = max(found), read + len(found), reached(parts)
        limited = parts != whole
    assert read == sum(count for lane in lanes for _, count in lane)


def test_what_is_later_waits_for_what_is_earlier() -> None:
    log = log_of([[(0, 5), (100, 5)], [(200, 10)]])
    whole = to_read(find_spans(log, WISH), {}, fail=True)
    bounded = limit(whole, 16, None)
    assert [part.stop for part in bounded] == [8, 8]
    assert [part.stop for part in together(log, whole, bounded)] == [8, 0]


@pytest.mark.parametrize(("delay_ms", "refused"), [(99, True), (100, True), (101, False)])
def test_what_would_be_dropped_is_refused(delay_ms: int, refused: bool) -> None:
    log = log_of([[(0, 5)], [(100, 10)]])
    behind, ahead = to_read(find_spans(log, WISH), {}, fail=True)
    parts = [behind, ahead._replace(start=5)]
    if refused:
        with pytest.raises(Unverified, match=r"t0, partition 0: offset 0 is 0.1 s older") as found:
            require_timely(log, parts, delay_ms)
        assert found.value.exit_code == 5
    else:
        require_timely(log, parts, delay_ms)


def test_what_retention_has_dropped_says_nothing() -> None:
    log = log_of([[(0, 5)], [(100, 10)]])
    log.first["t1", 0] = 5
    spans: list[Span] = find_spans(log, WISH)
    parts = [Part(spans[0], 0, 5), Part(spans[1], 5, 10)]
    require_timely(log, parts, 1)
    require_timely(log, [part._replace(stop=part.start) for part in parts], 1)
