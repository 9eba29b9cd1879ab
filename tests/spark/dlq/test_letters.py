"""Dead letters as a frame, and their summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spark.rows import messages
from zbus.spark.dlq.letters import letters, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dead(**said: Any) -> dict[str, Any]:
    """A dead letter with headers as the broker writes them."""
    headers = {
        "dead_topic": "orders",
        "dead_group": "billing",
        "dead_partition": "0",
        "dead_offset": "17",
        "dead_attempts": "5",
        "dead_reason": "given back",
        **said.pop("headers", {}),
    }
    return {"headers": headers, **said}


def test_what_headers_say(spark: SparkSession) -> None:
    rows = [
        dead(headers={"x-error": "order 17 failed", "x-redrive-count": "2"}, tag="t"),
        dead(headers={"dead_topic": "a%20b%25+%C3%BC", "error": "no", "x-error": "first"}),
        {"headers": {"dead_offset": "x", "x-redrive-count": "many", "dead_topic": "%zz"}},
        {"headers": None},
    ]
    first, second, odd, bare = letters(messages(spark, *rows)).orderBy("offset").collect()
    assert (first.origin, first.group, first.reason) == ("orders", "billing", "given back")
    assert (first.origin_partition, first.origin_offset, first.attempts) == (0, 17, 5)
    assert (first.error, first.fingerprint) == ("order 17 failed", "order # failed")
    assert first.redrives == 2
    assert (second.origin, second.error) == ("a b%+ü", "first")
    assert (odd.origin, odd.origin_offset, odd.redrives, odd.fingerprint) == (None, None, 0, "")
    assert (bare.origin, bare.reason, bare.error) == (None, None, "")


def test_bad_rows_are_like_dead_letters(spark: SparkSession) -> None:
    headers = {"x-bad-topic": "a%20b", "x-bad-job": "etl", "x-bad-partition": "1"}
    headers |= {"x-bad-offset": "9", "x-bad-reason": "no delay"}
    [row] = letters(messages(spark, {"headers": headers})).collect()
    assert (row.origin, row.group, row.reason, row.error) == (
        "a b",
        "etl",
        "unparseable",
        "no delay",
    )
    assert (row.origin_partition, row.origin_offset) == (1, 9)


def test_a_header_of_ones_own(spark: SparkSession) -> None:
    rows = messages(spark, dead(headers={"why": "x 3", "x-error": "no"}))
    [found] = letters(rows, ["Why"]).collect()
    assert found.fingerprint == "x #"


def test_what_belongs_together(spark: SparkSession) -> None:
    rows = [
        *(dead(headers={"x-error": f"order {n} failed"}, body=b"body") for n in range(5)),
        dead(headers={"x-error": "order 7 failed"}, tag="t"),
        dead(headers={"x-error": "order 8 failed"}, offset=4_000),  # more than an hour later
        dead(headers={"dead_reason": "expired"}),
    ]
    found = summary(letters(messages(spark, *rows)), body_bytes=2).collect()
    assert [row["count"] for row in found] == [5, 1, 1, 1]
    first = found[0]
    assert (first.origin, first.fingerprint, first.tag) == ("orders", "order # failed", None)
    assert [sample.offset for sample in first.samples] == [0, 1, 2]
    assert first.samples[0].error == "order 0 failed"
    assert first.samples[0].body == "bo"
    assert (first.last - first.first).total_seconds() == 4


def test_bodies_are_not_shown_unasked(spark: SparkSession) -> None:
    [row] = summary(letters(messages(spark, dead(body=b"secret")))).collect()
    assert row.samples[0].body is None
