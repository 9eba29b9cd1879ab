"""Etl jobs with a real broker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

from tests.process.broker import BrokerProcess
from tests.spark.brokers import everything, require_refused
from tests.spark.brokers import job as command
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.spark.errors import UnknownTopic, Unverified, Usage
from zbus.spark.etl import run
from zbus.spark.etl.counting import Counts
from zbus.spark.etl.job import Job
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "carrier string, delay int not null"
SQL = "select value.carrier, value.delay from input where value.delay > 60"
BODIES = [
    {"carrier": "UA", "delay": 90},
    {"carrier": "AA", "delay": 3},
    {"carrier": "B6", "delay": None},
    {"carrier": "DL", "delay": 61},
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("etl") / "data") as broker:
        yield broker


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        for topic in ("flights", "late", "bad"):
            bus.declare(topic, durability="disk")
        yield bus
        for topic in ("flights", "late", "bad"):
            bus.remove(topic)


@pytest.fixture
def where(broker: BrokerProcess) -> Where:
    return Where(broker=f"127.0.0.1:{broker.port}")


def put(bus: BlockingClient, count: int = 1) -> None:
    for _ in range(count):
        for body in BODIES:
            bus.produce("flights", json=body)
    bus.produce("flights", b"nope")


def job(**said: Any) -> Job:
    known = {"sources": ("flights",), "parse": "json", "schema": SCHEMA, "sql": SQL}
    return Job(**{**known, **said}).check()


def test_a_stream_into_files(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    root, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    files = job(
        files=root,
        checkpoint=checkpoint,
        once=True,
        parse=None,
        schema=None,
        sql="select get_json_object(cast(body as string), '$.carrier') as carrier from input"
        " where get_json_object(cast(body as string), '$.delay') > 60",
    )
    put(bus)
    lines: list[str] = []
    first = run.run(spark, where, files, "late", lines.append)
    assert first.problems == ()
    assert first.document()["written"] == 2
    assert lines == ["batch 0: 5 read, 2 written, 3 filtered out, 0 bad"]
    put(bus, 2)
    second = run.run(spark, where, files, "late", lines.append)
    assert (second.counts.offsets, second.counts.read, second.counts.results) == (9, 9, 4)
    found = spark.read.parquet(root).groupBy("carrier").count().orderBy("carrier").collect()
    assert [tuple(row) for row in found] == [("DL", 3), ("UA", 3)]
    with pytest.raises(Usage, match="--sql was"):
        run.run(spark, where, job(files=root, checkpoint=checkpoint, once=True), "late", print)


def results(bus: BlockingClient) -> list[Any]:
    return sorted(json.loads(message.body)["carrier"] for message in everything(bus, "late"))


def test_a_range_into_a_topic(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    put(bus)
    done = run.run(spark, where, job(to="late", bad_rows="bad"), "late job", print)
    assert done.document() == {
        "batches": 1,
        "read": 5,
        "written": 2,
        "filtered": 1,
        "bad": 2,
        "late": 0,
        "repeated": False,
        "problems": [],
    }
    assert [message.body for message in everything(bus, "late")] == [
        b'{"carrier":"UA","delay":90}',
        b'{"carrier":"DL","delay":61}',
    ]
    null, nope = everything(bus, "bad")
    assert json.loads(null.body) == BODIES[2]
    assert (nope.body, nope.headers["x-bad-reason"]) == (b"nope", "not json of this schema")
    assert (null.headers["x-bad-reason"], null.headers["x-bad-offset"]) == ("no delay", "2")
    assert null.headers["x-bad-topic"] == "flights"
    assert null.headers["x-bad-job"] == "late%20job"


def test_a_stream_that_counts(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    """An aggregate with a watermark, and bad rows beside it."""
    sql = "select value.carrier, count(*) as n from input group by value.carrier"
    stream = job(
        to="late",
        bad_rows="bad",
        sql=sql,
        mode="update",
        watermark="1 minute",
        checkpoint=str(tmp_path / "checkpoint"),
        once=True,
    )
    put(bus, 2)
    done = run.run(spark, where, stream, "late", print)
    assert done.problems == ()
    assert done.document()["filtered"] is None
    found = {body["carrier"]: body["n"] for body in map(json.loads, bodies(bus))}
    assert found == {"UA": 2, "AA": 2, "DL": 2}
    assert len(everything(bus, "bad")) == 3


def test_what_comes_too_late_is_told(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    stream = job(
        to="late",
        sql="select count(*) as n from input group by window(event_time, '1 minute')",
        event_time="timestamp_seconds(value.delay)",
        watermark="1 minute",
        checkpoint=str(tmp_path / "checkpoint"),
        once=True,
        group="watch",
    )
    late = []
    for seconds in (100_000, 50_000, 100_001):
        bus.produce("flights", b'{"carrier": "UA", "delay": %d}' % seconds)
        late.append(run.run(spark, where, stream, "late", print).document()["late"])
        [group] = [each for each in bus.query("flights").groups if each.name == "watch"]
        assert group.message_count == 0, "it is moved behind the last batch, too"
    assert late == [0, 1, 0]


def bodies(bus: BlockingClient) -> list[bytes]:
    return [message.body for message in everything(bus, "late")]


def test_bad_rows_without_a_topic_end_a_job(
    spark: SparkSession, bus: BlockingClient, where: Where
) -> None:
    put(bus)
    with pytest.raises(Unverified, match="offset 2 of flights is bad: no delay"):
        run.run(spark, where, job(to="late"), "late", print)
    assert everything(bus, "late") == []


def test_files_and_bad_rows(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    root = str(tmp_path / "out")
    both = job(files=root, bad_rows="bad", checkpoint=str(tmp_path / "checkpoint"), once=True)
    put(bus)
    done = run.run(spark, where, both, "late", print)
    assert (done.counts.results, done.counts.bad_kept) == (2, 2)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0  # else one stays of each batch
    assert sorted(row.carrier for row in spark.read.parquet(root).collect()) == ["DL", "UA"]
    assert len(everything(bus, "bad")) == 2


def test_nothing_that_fits(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    put(bus)
    before = set(bus.server().topics)
    none = job(to="late", bad_rows="bad", sql="select value.carrier from input where 1 = 0")
    done = run.run(spark, where, none, "late", print)
    assert done.problems == ()
    assert everything(bus, "late") == []
    assert len(everything(bus, "bad")) == 2
    only_good = job(to="late", parse=None, schema=None, sql="select body from input where 1 = 0")
    assert run.run(spark, where, only_good, "late", print).counts.results == 0
    made = set(bus.server().topics) - before
    assert not [topic for topic in made if topic.startswith("txn.")]


def test_a_topic_that_is_not_there(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    with pytest.raises(UnknownTopic):
        run.run(spark, where, job(sources=("nowhere",), to="late"), "late", print)


def test_what_would_be_done(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    put(bus)
    found = run.check(spark, where, job(to="late"), "late")
    assert found["columns"] == {"carrier": "string", "delay": "int"}
    assert (found["messages"], found["by_row"]) == (5, True)
    assert everything(bus, "late") == []


# -- the command ----------------------------------------------------------------------------------


PARSED = ("--from", "flights", "--parse", "json", "--schema", SCHEMA)
LATE = ("--sql", SQL, "--to", "late")


def etl(where: Where, *words: str) -> Result:
    return command("etl", "--broker", str(where), "--json", *PARSED, *words)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--sql", "selec 1", "--to", "late"), 2, "PARSE_SYNTAX_ERROR"),
        (("--sql", "select colour from input", "--to", "late"), 2, "UNRESOLVED_COLUMN"),
        (("--sql", "create table t (a int)", "--to", "late"), 2, "begins with select or with"),
        ((*LATE[:2], "--route"), 2, "--route needs a column `topic`"),
        (("--sql", "select key from input", "--to", "late"), 2, "the result has only labels"),
        (("--sql", "select map(1, 2) as key, 1 as n from input", "--to", "late"), 2, "key of the"),
        (("--sql", "select *, 1 as n from input", "--to", "late"), 2, "n would be lost"),
        (("--sql", "select 1 as a, 2 as a from input", "--to", "late"), 2, "a more than once"),
        (("--transform", "no.such:thing", "--to", "late"), 2, "--transform no.such:thing: No mod"),
        (LATE, 5, "offset 2 of flights is bad: no delay; --bad-rows TOPIC keeps such rows"),
        (
            ("--sql", "select null as topic, 1 as n from input", "--bad-rows", "bad", "--route"),
            2,
            "a row of the result has no topic",
        ),
    ],
)
def test_what_a_session_finds(
    spark: SparkSession,
    bus: BlockingClient,
    where: Where,
    words: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    """Each with its exit code, and nothing is stored."""
    put(bus)
    require_refused(etl(where, *words), code, text)
    assert everything(bus, "late") == everything(bus, "bad") == []


def test_a_stream_by_command(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    """It goes on where it was; with another query it is refused; a typo costs no checkpoint."""
    stream = ("--checkpoint", str(tmp_path / "c"), "--once", "--bad-rows", "bad", "--to", "late")
    put(bus)
    assert etl(where, *stream, "--sql", "select colour from input").exit_code == 2
    first = etl(where, *stream, "--sql", SQL, "--since", "1h", "--batch-bytes", "1GiB")
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout)["read"] == 5
    assert "batch 0: 5 read, 2 written, 1 filtered out, 2 bad" in first.stderr
    put(bus)
    again = etl(where, *stream, "--sql", SQL, "--since", "1h")
    assert json.loads(again.stdout).items() >= {"read": 5, "bad": 2, "problems": []}.items()
    assert json.loads(etl(where, *stream, "--sql", SQL).stdout)["batches"] == 0
    assert results(bus) == ["DL", "DL", "UA", "UA"]
    assert len(everything(bus, "bad")) == 4
    other = etl(where, *stream, "--sql", SQL.replace("60", "30"))
    require_refused(other, 2, "--sql was 'select value.carrier, value.delay from input where")
    assert "--allow-change" in other.stderr


def test_out_of_a_directory(
    spark: SparkSession, bus: BlockingClient, where: Where, broker: BrokerProcess, tmp_path: Path
) -> None:
    """A backup is read, and the broker is written to."""
    put(bus)
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy)
    put(bus)
    words = (*LATE, "--bad-rows", "bad", "--data-dir", str(copy))
    planned = json.loads(etl(where, *words, "--dry-run").stdout)
    assert planned["columns"] == {"carrier": "string", "delay": "int"}
    assert everything(bus, "late") == []
    found = etl(where, *words)
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["written"] == 2
    assert results(bus) == ["DL", "UA"]


def test_what_is_not_whole_is_told() -> None:
    counts = Counts(offsets=5, read=4, results=4)
    with pytest.raises(Unverified, match="5 offsets were to be read, and 4 rows were"):
        run.Done(counts, 1, tuple(counts.problems())).require_whole()
