"""Messages that are there more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.rows import BEGIN_MS, messages, time_of
from zbus.spark.dedup.frames import clean, duplicates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: list[dict[str, Any]] = [
    {"id": "a", "key": "k", "body": b"1"},
    {"id": "b", "key": "k", "body": b"1", "headers": {"x": "1"}},
    {"id": "a", "key": "l", "body": b"1"},
    {"id": "a", "key": None, "body": b"2", "headers": {"x": "1"}},
    {"id": None, "key": None, "body": b"3"},
    {"id": None, "key": None, "body": b"4"},
]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (["id"], {("a",): (0, [2, 3])}),
        (["key"], {("k",): (0, [1])}),
        (["key", "id"], {}),
        (["key", "body_hash"], {("k",): (0, [1])}),
        (["header.x"], {("1",): (1, [3])}),
    ],
)
def test_the_first_is_kept(
    spark: SparkSession, by: list[str], expected: dict[Any, tuple[int, list[int]]]
) -> None:
    rows = messages(spark, *ROWS)
    found = duplicates(rows, by)
    seen = {
        tuple(row[name] for name in by if name != "body_hash"): (
            row.kept.offset,
            [place.offset for place in row.dropped],
        )
        for row in found.collect()
    }
    assert seen == expected
    dropped = {offset for _, offsets in expected.values() for offset in offsets}
    left = {row.offset for row in clean(rows, found).collect()}
    assert left == set(range(len(ROWS))) - dropped


def test_the_table(spark: SparkSession) -> None:
    [row] = duplicates(messages(spark, *ROWS)).collect()
    assert (row.topic, row.id, row["count"], row.gap_ms) == ("T", "a", 3, 3_000)
    assert row.kept.timestamp.timestamp() * 1_000 == BEGIN_MS


def test_of_several_partitions_the_time_decides(spark: SparkSession) -> None:
    rows = [
        {"id": "a", "partition": 0, "offset": 9, "timestamp": time_of(BEGIN_MS + 5)},
        {"id": "a", "partition": 1, "offset": 3, "timestamp": time_of(BEGIN_MS)},
    ]
    [row] = duplicates(messages(spark, *rows)).collect()
    assert (row.kept.partition, row.kept.offset) == (1, 3)


def test_other_topics_are_others(spark: SparkSession) -> None:
    rows = [{"id": "a", "topic": "T"}, {"id": "a", "topic": "U"}]
    assert duplicates(messages(spark, *rows)).collect() == []
