"""An archive as a table: the same messages as in the log, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.archive.harness import data_files, is_whole, job, put_numbers, run
from tests.spark.stored import TIME_MS, MemoryLog, moment
from zbus.spark import open_archive
from zbus.spark.archive import Archive
from zbus.spark.archive.table import PARTITIONED_BY, SCHEMA
from zbus.spark.archive.tasks import Threads
from zbus.spark.archive.upkeep import compact, info
from zbus.spark.errors import SparkProblem, UnknownTopic, Usage
from zbus.spark.source.arrows import read
from zbus.spark.source.columns import NAMES, arrow_schema

TOPICS = ("orders", "a/b", "007", "x" * 300)
HOSTILE = (
    *TOPICS,
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a%2Fb",
    "a=b",
    "%",
    "topic=x/date=2020-01-01",
    "_delta_log",
    "__HIVE_DEFAULT_PARTITION__",
    ".hidden",
    "k\u00f6\u00f6",
    "\U0001f600",
    "a\nb",
    "a\0b",
    "*",
    "[a]",
    "{a,b}",
    "a:b",
    "0:1:a",
    "\\",
    "~",
    "A",
    "a",
    "' OR 1=1 --",
    "null",
    "a#b?c",
)


def filled(topics: tuple[str, ...]) -> MemoryLog:
    found = MemoryLog()
    for topic in topics:
        for number in range(4):
            put_numbers(
                found,
                6,
                topic,
                time_ms=TIME_MS + 1_000 * number,
                keys=[b"k%d" % number] * 6,
                headers=[b"a: 1\r\n"] * 6,
            )
    found.put("orders", [b"second"], 1)
    return found


@pytest.fixture
def log() -> MemoryLog:
    return filled(TOPICS)


@pytest.fixture
def archive(log: MemoryLog, tmp_path: Path) -> Archive:
    run(tmp_path / "a [1]", log, engine=Threads(2))
    return Archive(tmp_path / "a [1]")


def live(log: MemoryLog, *topics: str) -> pa.Table:
    batches = [
        batch
        for topic in topics
        for span in log.spans(topic)
        for batch in read(log, span, span.first, span.end)
    ]
    return pa.Table.from_batches(batches, arrow_schema())


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic[:10])
def test_it_is_what_the_log_has(archive: Archive, log: MemoryLog, topic: str) -> None:
    assert archive.topics() == sorted(TOPICS)
    found = archive.dataset().to_table(columns=list(NAMES), filter=ds.field("topic") == topic)
    assert in_order(found).cast(arrow_schema()).equals(in_order(live(log, topic)))
    assert sum(file.rows for file in archive.files(topic)) == found.num_rows


@pytest.mark.xdist_group("spark")
def test_duckdb_polars_and_plain_spark_agree(
    spark: SparkSession, log: MemoryLog, tmp_path: Path
) -> None:
    """Before and after it was compacted; Spark without a jar of Delta."""
    expected = in_order(live(log, *TOPICS)).to_pylist()
    root = tmp_path / "archive"
    run(root, log)
    columns = ", ".join(f'"{name}"' for name in NAMES)
    for _ in range(2):
        archive = Archive(root)
        paths = [file.path for file in archive.files()]
        query = f"SELECT {columns} FROM read_parquet($paths)"
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            files = database.sql(query, params={"paths": paths}).to_arrow_table()
            delta = archive.dataset()
            dataset = database.sql(f"SELECT {columns} FROM delta").to_arrow_table()
        of_polars = pl.scan_delta(str(root)).select(NAMES).collect().to_arrow()
        of_spark = open_archive(spark, root).toArrow()
        assert delta.count_rows() == len(expected)
        for table in (files, dataset, of_polars, of_spark):
            assert plain(table) == expected
        compact(archive, Threads(1), 1 << 28, [])
    assert len(paths) == len(TOPICS) + 1


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Polars has lists of structs for maps."""
    rows = in_order(table).to_pylist()
    for row in rows:
        row["headers"] = [
            (each["key"], each["value"]) if isinstance(each, dict) else each
            for each in row["headers"]
        ]
    return rows


def test_names_of_topics_are_any_text(tmp_path: Path) -> None:
    """No file is outside of the archive, and no topic has messages of another one."""
    log = filled(HOSTILE)
    root = tmp_path / "archive"
    run(root, log)
    assert Archive(root).topics() == sorted({*HOSTILE, "orders"})
    found = Archive(root).dataset().to_table(columns=list(NAMES))
    assert in_order(found).cast(arrow_schema()).equals(in_order(live(log, *sorted(HOSTILE))))
    assert run(root, log).lanes == []
    is_whole(root)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    assert all(len(Path(path).relative_to(root).parts) == 3 for path in data_files(root))


def test_what_a_filter_leaves_out_is_not_opened(archive: Archive) -> None:
    files = archive.files()
    found = archive.dataset()
    for wanted in (
        ds.field("topic") == "a/b",
        ds.field("timestamp") < pa.scalar(moment(TIME_MS), pa.timestamp("us", "UTC")),
        (ds.field("topic") == "orders") & (ds.field("offset") >= 12),
    ):
        fragments = list(found.get_fragments(filter=wanted))
        assert len(fragments) < len(files)
        assert found.count_rows(filter=wanted) == found.to_table().filter(wanted).num_rows
    assert found.count_rows(filter=ds.field("topic") == "a/b") == 24
    assert found.count_rows(filter=ds.field("offset") == 3) == 4


def test_figures(archive: Archive, log: MemoryLog) -> None:
    put_numbers(log, 6)
    found = info(archive, ["orders"], log)
    assert [(each["messages"], each["lag"]) for each in found] == [(24, 6), (1, 0)]
    assert found[0]["max_time_ms"] == TIME_MS + 3_000


def test_a_version_stays_what_it_was(archive: Archive, log: MemoryLog) -> None:
    put_numbers(log, 6)
    run(archive.path, log)
    assert len(Archive(archive.path).files()) == len(archive.files()) + 1
    assert Archive(archive.path, archive.version).files() == archive.files()
    with pytest.raises(Usage, match="version 99"):
        Archive(archive.path, 99)


def test_the_history_says_what_was_archived(log: MemoryLog, tmp_path: Path) -> None:
    log.first["orders", 0] = 12
    run(tmp_path, log)
    (commit,) = (each for each in DeltaTable(tmp_path).history() if "zbus.archived" in each)
    (gap,) = (gap for each in json.loads(commit["zbus.archived"]) for gap in each["gaps"])
    assert (gap["start"], gap["end"]) == (0, 12)


def test_an_incarnation_that_is_no_number(log: MemoryLog, tmp_path: Path) -> None:
    log.incarnations["orders"] = "one"
    with pytest.raises(SparkProblem, match="no number"):
        run(tmp_path, log)


def test_what_is_not_there(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopic, match="nothing of the topic other"):
        archive.files("other")
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(Usage, match="not an archive"):
            Archive(path)


LARGER = SCHEMA.set(SCHEMA.get_field_index("partition"), pa.field("partition", pa.int64()))


@pytest.mark.parametrize(
    ("schema", "by", "said"),
    [
        (pa.schema({"x": pa.int64()}), [], "other columns"),
        (SCHEMA.remove(0), PARTITIONED_BY, "other columns: topic differ"),
        (SCHEMA.append(pa.field("x", pa.int64())), PARTITIONED_BY, "other columns: x differ"),
        (LARGER, PARTITIONED_BY, "other columns: partition differ"),
        (SCHEMA, [], "partitioned by nothing"),
        (SCHEMA, ["date", "lane"], "partitioned by date, lane"),
    ],
)
def test_a_table_of_another_program(
    log: MemoryLog, tmp_path: Path, schema: pa.Schema, by: list[str], said: str
) -> None:
    DeltaTable.create(str(tmp_path), schema, partition_by=by)
    for what in ("plan", "run"):
        with pytest.raises(Usage, match=said):
            getattr(job(tmp_path, log), what)()
    assert DeltaTable(str(tmp_path)).version() == 0
