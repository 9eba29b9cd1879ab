"""What is replayed, and as what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.rows import BEGIN_MS, messages, time_of
from zbus.spark.errors import Usage
from zbus.spark.etl.mapping import SINK
from zbus.spark.replay import frames
from zbus.spark.replay.pacing import Bucket, Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: list[dict[str, Any]] = [
    {"offset": 3, "key": "k", "body": b"xxx"},
    {"offset": 0, "tag": "t", "headers": {"a": "1", "x-replay-run": "old"}},
    {"offset": 2, "id": "id-0", "deliver_at": time_of(BEGIN_MS)},
    {"offset": 1, "topic": "S", "headers": None, "body": None},
]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return messages(spark, *ROWS)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [("S", 1), ("T", 0), ("T", 2), ("T", 3)]),
        ({"since_ms": BEGIN_MS + 1_000}, [("S", 1), ("T", 2), ("T", 3)]),
        ({"until_ms": BEGIN_MS + 1_000}, [("T", 0)]),
        ({"where": "key = 'k' or tag = 't'"}, [("T", 0), ("T", 3)]),
        ({"dedupe_id": True}, [("S", 1), ("T", 0), ("T", 3)]),
        ({"limit": 3}, [("S", 1), ("T", 0), ("T", 2)]),
        ({"limit": 9}, [("S", 1), ("T", 0), ("T", 2), ("T", 3)]),
        ({"limit": 0}, []),
        ({"where": "offset = 99", "limit": 1}, []),
    ],
)
def test_what_is_replayed(
    rows: DataFrame, how: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    found = frames.chosen(rows, **how).collect()
    assert sorted((row.topic, row.offset) for row in found) == expected


def test_a_condition_that_is_none(rows: DataFrame) -> None:
    for where in ("nothing = 1", "key =", "key"):
        with pytest.raises(Usage, match="--where"):
            frames.chosen(rows, where=where)


def test_messages_are_as_they_were(rows: DataFrame) -> None:
    result = frames.messages(rows, "{topic}-again", "run-1")
    assert result.columns == list(SINK)
    bare, tagged, delayed, keyed = result.collect()
    assert [row.topic for row in (bare, tagged, keyed)] == ["S-again", "T-again", "T-again"]
    assert bytes(bare.body) == b""
    assert bare.headers["x-replay-topic"] == "S"
    assert tagged.headers == {
        "a": "1",
        "x-replay-topic": "T",
        "x-replay-partition": "0",
        "x-replay-offset": "0",
        "x-replay-timestamp": str(BEGIN_MS),
        "x-replay-run": "run-1",
    }
    assert (tagged.tag, tagged.id) == ("t", "id-0")
    assert (keyed.key, bytes(keyed.body)) == ("k", b"xxx")
    assert delayed.deliver_at is None
    kept = frames.messages(rows, "again", "run-1", keep_time=True).collect()[2]
    assert (kept.topic, kept.deliver_at is not None) == ("again", True)


def test_what_is_known_before(rows: DataFrame) -> None:
    assert frames.times(rows) == (4, 3, BEGIN_MS, BEGIN_MS + 3_000)
    assert frames.times(rows.limit(0)) is None
    assert frames.topics_of(rows) == ["S", "T"]
    begin = BEGIN_MS // 2_000 * 2_000
    assert frames.buckets(rows, 2_000) == [Bucket(begin, 2, 0), Bucket(begin + 2_000, 2, 3)]
    found = frames.of_slice(rows, Slice(BEGIN_MS + 1_000, BEGIN_MS + 3_000, 2, 0)).collect()
    assert {row.offset for row in found} == {1, 2}
