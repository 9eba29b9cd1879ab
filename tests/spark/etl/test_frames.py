"""The frames of an etl job: parsed, bad, queried, counted, mapped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.rows import BEGIN_MS, messages
from zbus.spark.errors import Usage
from zbus.spark.etl import files, history, mapping, parsing, query
from zbus.spark.etl.counting import Counts
from zbus.spark.etl.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "a int not null, b string"

JSON_CASES: list[tuple[bytes | None, str | None]] = [
    (b'{"a": 1, "b": "x"}', None),
    (b'{"a": 1}', None),
    (b'{"a": 1, "other": []}', None),
    (b' {"a": 1}\n', None),
    (b'{"b": "x"}', "no a"),
    (b"{}", "no a"),
    (b'{"a": null}', "no a"),
    (b'{"a": "x"}', "not json of this schema"),
    (b'{"a": 99999999999}', "not json of this schema"),
    (b"nope", "not json of this schema"),
    (b"[1, 2]", "not json of this schema"),
    (b'[{"a": 1}, {"a": 2}]', "not json of this schema"),
    (b"null", "not json of this schema"),
    (b'{"a": 1}, {"a": 2}', "not one json document"),
    (b'{"a": 1}, "x": 2', "not one json document"),
    (b'{"a": 1}]', "not one json document"),
    (b'{"a": 1},0] and more', "not one json document"),
    (b'{"a": 1} {"a": 2}', "not one json document"),
    (b'{"a": 1} and more', "not one json document"),
    (b'{"a": 1', "not json of this schema"),
    (b"", "empty"),
    (None, "no body"),
    (b'{"a": 1, "b": "\xff"}', "not UTF-8"),
]

CSV_CASES: list[tuple[bytes | None, str | None]] = [
    (b"1,x", None),
    (b'1,"x,y"', None),
    (b"1,x\r\n", None),
    (b"1,", None),
    (b"q,x", "not csv of this schema"),
    (b"1", "not csv of this schema"),
    (b"1,x,3", "not csv of this schema"),
    (b",x", "no a"),
    (b"", "empty"),
    (b"1,\xff", "not UTF-8"),
]

TEXT_CASES: list[tuple[bytes | None, str | None]] = [
    (b"x", None),
    (b"", None),
    (b"\xff", "not UTF-8"),
    (None, "no body"),
]


@pytest.mark.parametrize(
    ("parse", "schema", "cases"),
    [("json", SCHEMA, JSON_CASES), ("csv", SCHEMA, CSV_CASES), ("text", None, TEXT_CASES)],
    ids=["json", "csv", "text"],
)
def test_what_is_bad_and_why(
    spark: SparkSession,
    parse: str,
    schema: str | None,
    cases: list[tuple[bytes | None, str | None]],
) -> None:
    rows = messages(spark, *({"body": body} for body, _ in cases))
    found = parsing.parsed(rows, parse, schema).orderBy("offset").collect()
    said = [(bytes(row.body) if row.body is not None else None, row._why) for row in found]
    assert said == cases


def test_a_schema_that_is_none(spark: SparkSession) -> None:
    for ddl in ("a wrong", "", "int", "a int,, b int"):
        with pytest.raises(Usage, match="--schema"):
            parsing.schema_of(ddl)


def test_bad_rows_say_where_and_why(spark: SparkSession) -> None:
    headers = {"x": "1", "x-bad-reason": "older"}
    row = {"body": b"nope", "key": "k", "tag": "t", "offset": 7, "headers": headers}
    rows = parsing.parsed(messages(spark, row, topic="a topic+ü"), "json", SCHEMA)
    [found] = parsing.bad(rows, "bad", "etl job").collect()
    assert found.topic == "bad"
    assert (found.key, found.tag, found.id, bytes(found.body)) == ("k", "t", "id-7", b"nope")
    assert found.headers == {
        "x": "1",
        "x-bad-topic": "a%20topic%2B%C3%BC",
        "x-bad-job": "etl%20job",
        "x-bad-partition": "0",
        "x-bad-offset": "7",
        "x-bad-timestamp": str(BEGIN_MS + 7_000),
        "x-bad-reason": "not json of this schema",
    }


def uncounted(rows: DataFrame, _what: str, *_columns: Any) -> DataFrame:
    return rows


def job(**said: Any) -> Job:
    return Job(
        **{"sources": ("T",), "to": "out", "parse": "json", "schema": SCHEMA, **said}
    ).check()


def bodies(result: DataFrame) -> list[Any]:
    return [json.loads(row.body) for row in mapping.messages(result, "out").collect()]


def test_a_query_of_rows_is_counted(spark: SparkSession) -> None:
    rows = messages(spark, *({"body": body} for body, _ in JSON_CASES))
    sql = "select value.a * 2 as twice, value.b from input where value.b is not null"
    outcome = query.apply(spark, rows, job(sql=sql, bad_rows="bad"), "etl", uncounted)
    assert outcome.by_row
    assert bodies(outcome.results) == [{"twice": 2, "b": "x"}]
    assert outcome.bad is not None
    assert outcome.bad.count() == sum(why is not None for _, why in JSON_CASES)


def test_without_a_topic_for_bad_rows_the_first_one_ends_the_job(spark: SparkSession) -> None:
    rows = messages(spark, {"body": b'{"a": 1}'}, {"body": b"nope"})
    outcome = query.apply(spark, rows, job(sql="select value.a from input"), "etl", uncounted)
    with pytest.raises(Exception, match="offset 1 of T is bad: not json of this schema"):
        outcome.results.collect()


@pytest.mark.parametrize(
    ("sql", "by_row"),
    [
        ("select * from input", True),
        ("select value.a from input where key = 'x'", True),
        ("with x as (select value.a from input) select a from x where a > 1", True),
        ("select count(*) as n from input", False),
        ("select distinct key from input", False),
        ("select explode(array(1, 2)) as n from input", False),
        ("select a.key from input a join input b on a.id = b.id", False),
        ("select key from input union all select key from input", False),
        ("select key from input limit 3", False),
        ("select key from input where key in (select max(key) from input)", False),
    ],
)
def test_which_queries_are_of_rows(spark: SparkSession, sql: str, by_row: bool) -> None:
    rows = messages(spark, {"body": b'{"a": 1}'})
    assert query.apply(spark, rows, job(sql=sql), "etl", uncounted).by_row is by_row


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"sql": "selekt 1"}, "the query cannot be done"),
        ({"sql": "select nothing from input"}, "the query cannot be done"),
        ({"sql": "drop view input"}, "the query gives no rows"),
        ({"transform": "x"}, "it is like package.module:function"),
        ({"transform": "zbus.nowhere:f"}, "No module named"),
        ({"transform": "zbus.units:nothing"}, "has no attribute"),
        ({"transform": "tests.spark.etl.test_frames:wrong"}, "returned int, not a DataFrame"),
        ({"sql": "select 1 a from input", "watermark": "soon"}, "--watermark"),
    ],
)
def test_queries_that_are_refused(spark: SparkSession, said: dict[str, Any], text: str) -> None:
    with pytest.raises(Usage) as caught:
        query.apply(spark, messages(spark), job(**said), "etl", uncounted)
    assert text in str(caught.value)


def wrong(_rows: DataFrame) -> int:
    return 3


def doubled(rows: DataFrame) -> DataFrame:
    return rows.unionAll(rows)


def test_a_function_gets_what_the_query_made(spark: SparkSession) -> None:
    rows = messages(spark, {"body": b'{"a": 1}'})
    name = "tests.spark.etl.test_frames:doubled"
    outcome = query.apply(
        spark, rows, job(sql="select value.a from input", transform=name), "etl", uncounted
    )
    assert bodies(outcome.results) == [{"a": 1}, {"a": 1}]
    assert not outcome.by_row


def test_results_are_messages(spark: SparkSession) -> None:
    result = spark.sql(
        "select 7 as key, 't' as tag, map('a', 1) as headers, timestamp '2026-01-01' as deliver_at,"
        " named_struct('x', null, 'y', cast('z' as binary)) as body"
    )
    [row] = mapping.messages(result, "out").collect()
    assert (row.topic, row.key, row.tag, row.id, row.headers) == ("out", "7", "t", None, {"a": "1"})
    assert row.deliver_at is not None
    assert json.loads(row.body) == {"y": "eg=="}
    assert mapping.messages(result, "out").columns == list(mapping.SINK)


def test_a_json_body_keeps_nulls(spark: SparkSession) -> None:
    result = spark.sql("select 'k' as key, cast(null as int) as n, date '2026-01-02' as `a day`")
    assert bodies(result) == [{"n": None, "a day": "2026-01-02"}]


def test_each_row_has_its_topic(spark: SparkSession) -> None:
    result = spark.sql("select * from values ('a', 'x'), (null, 'y') as t(topic, body)")
    first = mapping.messages(result.limit(1), None).collect()
    assert [(row.topic, bytes(row.body)) for row in first] == [("a", b"x")]
    with pytest.raises(Exception, match="has no topic"):
        mapping.messages(result, None).collect()


def test_a_column_that_is_there_twice(spark: SparkSession) -> None:
    with pytest.raises(Usage, match="more than once"):
        mapping.messages(spark.sql("select 1 as a, 2 as a"), "out")


def test_counts_of_what_was_observed() -> None:
    metrics = {
        query.READ: {"rows": 5, "bad": 1},
        query.RESULTS: {"rows": 3},
        query.BAD: {"rows": 1},
    }
    expected = Counts(offsets=5, read=5, bad=1, results=3, bad_kept=1)
    assert query.counts_of(metrics, True, 5, True) == expected
    assert query.counts_of({}, True, 7, True) == Counts(by_row=False)


def test_a_batch_of_files_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("select 1 as a")
    root = str(tmp_path / "out")
    assert files.write(spark, root, "job", 3, rows)
    assert not files.write(spark, root, "job", 3, spark.sql("select 2 as a"))
    assert files.write(spark, root, "job", 4, spark.sql("select 3 as a"))
    found = spark.read.parquet(root).orderBy("a").collect()
    assert [(row.a, row.zbus_batch) for row in found] == [
        (1, "job-0000000003"),
        (3, "job-0000000004"),
    ]


@pytest.mark.parametrize("columns", [["a", "A"], ["zbus_batch"]])
def test_files_that_could_not_be_read(columns: list[str]) -> None:
    with pytest.raises(Usage):
        files.check(columns)


def begin(checkpoint: Path) -> None:
    """As Spark does when a batch begins."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1")


def test_a_checkpoint_knows_its_job(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "check point")
    history.agree(spark, place, {"--sql": "typo"})
    history.agree(spark, place, {"--sql": "a"})  # no batch has begun: it may be another
    begin(tmp_path / "check point")
    history.agree(spark, place, {"--sql": "a"})
    with pytest.raises(Usage, match=r"--sql was 'a' and is 'b'.*--allow-change"):
        history.agree(spark, place, {"--sql": "b"})
    history.agree(spark, place, {"--sql": "b"}, allow_change=True)
    (tmp_path / "check point" / "state").mkdir()
    with pytest.raises(Usage, match="its state is of the old one"):
        history.agree(spark, place, {"--sql": "c"}, allow_change=True)
    history.agree(spark, place, {"--sql": "b"})


def test_a_checkpoint_of_somebody_else(spark: SparkSession, tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(Usage, match="was not begun by this job"):
        history.agree(spark, str(tmp_path), {"--sql": "a"})
    history.agree(spark, str(tmp_path), {"--sql": "a"}, allow_change=True)
