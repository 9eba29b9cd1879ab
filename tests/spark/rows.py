"""Frames of messages for tests, with the columns that a source has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from zbus.spark.source.columns import DDL, NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN_MS = 1_700_000_000_000


def time_of(time_ms: int) -> datetime:
    """As Spark has it."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def messages(spark: SparkSession, *rows: dict[str, Any], topic: str = "T") -> DataFrame:
    """Messages; without an offset they have the next one, and a second between them."""
    found = []
    for number, row in enumerate(rows):
        offset = row.get("offset", number)
        known = {
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "timestamp": time_of(BEGIN_MS + 1_000 * offset),
            "id": f"id-{offset}",
            "headers": {},
            "body": b"",
            **row,
        }
        found.append(tuple(known.get(name) for name in NAMES))
    return spark.createDataFrame(found, DDL)
