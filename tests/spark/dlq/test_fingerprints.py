"""Errors that differ in numbers and ids only have one fingerprint."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from zbus.spark.dlq.fingerprints import KEPT_MAX, READ_MAX, fingerprint

CASES = [
    ("", ""),
    ("connection refused", "connection refused"),
    ("Order 4711 of 10.0.0.7: timeout after 30s", "Order # of #.#.#.#: timeout after #s"),
    ("id 550e8400-e29b-41d4-a716-446655440000 unknown", "id # unknown"),
    ("id abcdefab-cdef-abcd-efab-cdefabcdefab unknown", "id # unknown"),
    ("commit 9f3c2a1b7d not found", "commit # not found"),
    ("sha256 of user_42 in order-7", "sha# of user_# in order-#"),
    ("key a1b2c3 of x", "key # of x"),
    ("line 3,\n   column 14", "line #, column #"),
    ("HTTP 503", "HTTP #"),
    ("1,234.50 EUR", "#,#.# EUR"),
    ("Größe 12 für Zoë", "Größe # für Zoë"),
    ("٣ items", "٣ items"),  # other digits than 0 to 9 are letters here
]


def found(spark: SparkSession, *texts: str) -> list[str]:
    rows = spark.createDataFrame(
        [(number, text) for number, text in enumerate(texts)], "n int, t string"
    )
    return [row[0] for row in rows.orderBy("n").select(fingerprint(rows["t"])).collect()]


def test_fingerprints(spark: SparkSession) -> None:
    assert found(spark, *(text for text, _ in CASES)) == [expected for _, expected in CASES]


@settings(max_examples=5, deadline=None)
@given(st.lists(st.text(max_size=2_000), min_size=20, max_size=50))
def test_any_text_has_one(spark: SparkSession, texts: list[str]) -> None:
    for text in found(spark, *texts):
        assert len(text) <= KEPT_MAX
        assert not set(text) & set("0123456789")


def test_numbers_do_not_matter(spark: SparkSession) -> None:
    numbers = (0, 7, 10, 4_711, 10**12, 10**17)
    texts = (f"order {number} failed" for number in numbers)
    assert set(found(spark, *texts)) == {"order # failed"}


@pytest.mark.parametrize("part", ["a", "1", "a1", "1a", "-", "_", " ", "a-", "f_0-"])
def test_no_text_takes_longer(spark: SparkSession, part: str) -> None:
    """A regular expression that goes back and forth would not end within a test."""
    assert len(found(spark, *(part * READ_MAX for _ in range(200)))) == 200
