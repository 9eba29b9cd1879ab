"""A report's page: what it says. How a browser shows it: `tests/browser/test_spark_pages.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from zbus.spark.page import BARS_MAX, OTHERS, bars, foremost, moment, short, table
from zbus.spark.report.files import backlogs_before, write_tables
from zbus.spark.report.page import page, sentences
from zbus.spark.report.tables import (
    DAY_MS,
    HOUR_MS,
    Anomaly,
    Backlog,
    Count,
    Latency,
    Pending,
    Report,
    Traffic,
    anomalies,
    arrow_table,
)

NOW_MS = 1_800_000_000_000 - 1_800_000_000_000 % DAY_MS
EVIL = '</title><script>fetch("http://evil.test")</script><img src=x onerror=alert(1)>"\'&'


def report_of(topic: str = "orders", tag: str | None = "eu") -> Report:
    traffic = [
        Traffic(topic, 0, tag, NOW_MS + hour * HOUR_MS, 100 * hour, 10_000, 90, 120, 200, 300, 5)
        for hour in range(1, 25)
    ]
    return Report(
        since_ms=NOW_MS,
        until_ms=NOW_MS + DAY_MS,
        bucket_ms=HOUR_MS,
        made_ms=NOW_MS + DAY_MS,
        topics=[topic, "other"],
        source="127.0.0.1:15555",
        traffic=[*traffic, traffic[3]._replace(topic="other")],
        latency=[Latency(topic, NOW_MS + HOUR_MS, 7, 1, 2, 3, 4, 5)],
        pending=[Pending(topic, NOW_MS + 2 * DAY_MS, 12)],
        backlog=[Backlog(topic, f"{tag}", NOW_MS + at, 1_000 * at, 3, 2, 1, 0) for at in (1, 2, 3)],
        anomalies=[Anomaly(topic, NOW_MS + HOUR_MS, 100, 10, 20, 3)],
        keys=[(topic, f"{tag}", 4)],
        notes=["a note"],
    )


def test_what_is_to_be_known_first() -> None:
    assert sentences(report_of()) == [
        "30,400 messages with 250 kB of bodies were stored: 0.352 a second on average.",
        "The busiest time began at 2027-01-16 00:00 UTC: 2,400 messages.",
        "orders has most of them: 99%.",
        "Group eu of orders is 3,000 messages behind, with 0 consumers.",
        "12 delayed messages are still to come.",
        "orders, 2027-01-15 01:00: 100 messages, usual at that time of day are 10.",
    ]
    empty = report_of()
    empty.traffic = []
    assert sentences(empty) == ["Nothing was stored in this time."]
    assert "Nothing was stored" in page(empty)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (0.5, "0.5"), (999, "999"), (1_000, "1 k"), (2_345_678, "2.35 M")],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_many_series_are_few() -> None:
    shown = foremost({f"t{number}": {1: number} for number in range(20)})
    assert list(shown) == [*(f"t{number}" for number in range(19, 12, -1)), OTHERS]
    assert shown[OTHERS] == {1: sum(range(13))}
    assert moment(NOW_MS, DAY_MS) == "2027-01-15"


def test_a_long_time_has_longer_bars() -> None:
    """A message may be due in a year, and another in a second."""
    chart = bars("x", {"a": {0: 1, 2_999: 2, 10**11: 4}}, 0, 10**11, 1_000)
    document = json.loads(chart.split(">", 4)[4].split("<")[0])
    assert len(document["times_s"]) <= BARS_MAX
    assert sum(document["values"][0]) == 7


def test_cells() -> None:
    shown = table(("a", "b"), [("<b>", 1_234), (None, 0.6)], folded=False)
    assert '<td class="t">&lt;b&gt;</td><td>1,234</td>' in shown
    assert '<td class="t"></td><td>1</td>' in shown
    assert "and 7 more" in table(("a",), [(number,) for number in range(507)])


def test_what_is_unusual() -> None:
    def day(number: int, count: int) -> Count:
        return Count("orders", NOW_MS + number * DAY_MS, count)

    def found(*counts: int, until_days: float | None = None) -> list[int]:
        history = [day(number, count) for number, count in enumerate(counts) if count]
        since_ms = NOW_MS + (len(counts) - 1) * DAY_MS
        days = len(counts) if until_days is None else until_days
        until_ms = NOW_MS + int(days * DAY_MS)
        return [row.messages for row in anomalies(history, since_ms, until_ms, DAY_MS)]

    assert found(10, 10, 100) == [100]
    assert found(10, 30, 90) == []
    assert found(30, 30, 9) == [9]
    assert found(30, 30, 11) == []
    assert found(10, 100) == [], "one day is no history"
    assert found(30, 30, 9, until_days=2.9) == [], "that day is not over"
    assert found(30, 30, 0) == [0], "nothing comes any more"
    assert found(30, 30, 0, until_days=5) == [0, 0, 0], "and since then"
    assert anomalies([], NOW_MS, NOW_MS + DAY_MS, DAY_MS) == []


def test_tables_are_files_and_backlogs_are_kept(tmp_path: Path) -> None:
    write_tables(report_of(), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    tables = ("traffic", "latency", "pending", "backlog", "anomalies")
    assert names == {f"{name}.{kind}" for name in tables for kind in ("parquet", "csv")}
    assert backlogs_before(tmp_path) == report_of().backlog
    assert backlogs_before(tmp_path / "none") == []
    empty = arrow_table("backlog", [])
    assert empty.schema.field("at").type == pa.timestamp("ms", "UTC")
