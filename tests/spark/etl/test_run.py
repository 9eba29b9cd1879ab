"""Etl jobs with a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.spark.errors import Usage
from zbus.spark.etl import run
from zbus.spark.etl.job import Job
from zbus.spark.logs import Where

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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        for topic in ("flights", "late", "bad"):
            bus.declare(topic)
        yield bus


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
