"""Slices of a replay, and when they are due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.spark.errors import Usage
from zbus.spark.replay.pacing import (
    Bucket,
    Slice,
    bucket_ms,
    check_targets,
    cut,
    due_s,
    parse_speed,
)


@pytest.mark.parametrize(
    ("text", "expected"), [("1x", 1.0), ("10x", 10.0), ("0.5x", 0.5), ("max", None)]
)
def test_speeds(text: str, expected: float | None) -> None:
    assert parse_speed(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1", "0x", "-1x", "fastx", "nanx", "infx"])
def test_what_is_no_speed(text: str) -> None:
    with pytest.raises(Usage):
        parse_speed(text)


SECONDS = [Bucket(second * 1_000, 10, 100) for second in (0, 1, 2, 5, 6)]


@pytest.mark.parametrize(
    ("speed", "rate", "starts", "due"),
    [
        (None, None, [0], [0.0]),
        (1.0, None, [0, 1, 2, 5, 6], [0.0, 1.0, 2.0, 5.0, 6.0]),
        (2.0, None, [0, 2, 5], [0.0, 1.0, 2.5]),
        (None, 100, [0, 1, 2, 5, 6], [0.0, 1.0, 2.0, 3.0, 4.0]),
        (None, 250, [0, 2, 6], [0.0, 0.8, 1.6]),
        (2.0, 100, [0, 1, 2, 5, 6], [0.0, 1.0, 2.0, 3.0, 4.0]),
        (1.0, 1_000, [0, 1, 2, 5, 6], [0.0, 1.0, 2.0, 5.0, 6.0]),
    ],
)
def test_slices(speed: float | None, rate: int | None, starts: list[int], due: list[float]) -> None:
    found = cut(SECONDS, 1_000, speed, rate)
    assert [one.start_ms // 1_000 for one in found] == starts
    assert due_s(found, speed, rate) == pytest.approx(due)


def test_nothing_is_no_slice() -> None:
    assert cut([], 1_000, 1.0, None) == []
    assert due_s([], 1.0, None) == []


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9), st.integers(0, 10_000)), max_size=30),
    st.one_of(st.none(), st.floats(0.1, 100)),
    st.one_of(st.none(), st.integers(1, 100_000)),
)
def test_slices_hold_everything_once(
    steps: list[tuple[int, int, int]], speed: float | None, rate: int | None
) -> None:
    buckets, at = [], 0
    for step, messages, size in steps:
        at += step
        buckets.append(Bucket(at * 100, messages, size))
    found = cut(buckets, 100, speed, rate)
    assert sum(one.messages for one in found) == sum(one.messages for one in buckets)
    assert sum(one.bytes for one in found) == sum(one.bytes for one in buckets)
    for bucket in buckets:
        assert sum(one.start_ms <= bucket.start_ms < one.end_ms for one in found) == 1
    assert len(due_s(found, speed, rate)) == len(found)


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(5, 5, 100), (0, 999_999, 100), (0, 9_999_999, 1_000)]
)
def test_buckets_are_not_too_many(first: int, last: int, expected: int) -> None:
    assert bucket_ms(first, last) == expected


def test_targets() -> None:
    assert check_targets("b", ["a"], False) == {"a": "b"}
    assert check_targets("{topic}-again", ["a", "b"], False) == {"a": "a-again", "b": "b-again"}
    assert check_targets("A", ["a"], True) == {"a": "A"}


@pytest.mark.parametrize(
    ("to", "topics"), [("A", ["a"]), ("{topic}", ["a"]), ("{topic}x", ["a", "AX"])]
)
def test_a_topic_is_not_read_and_written(to: str, topics: list[str]) -> None:
    with pytest.raises(Usage, match="--force"):
        check_targets(to, topics, False)


def test_a_slice_is_a_range() -> None:
    assert cut(SECONDS[:2], 1_000, None, None) == [Slice(0, 2_000, 20, 200)]
