"""Duplicates in a topic of a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import everything, job, require_refused
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.client.messages import Message
from zbus.spark.dedup.run import Wanted, require_none_dropped, run
from zbus.spark.errors import Unverified, Usage
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("dedup") / "data") as broker:
        yield broker


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        for topic in ("orders", "clean"):
            bus.declare(topic, durability="disk")
        put(bus)
        yield bus
        for topic in ("orders", "clean"):
            bus.remove(topic)


@pytest.fixture
def where(broker: BrokerProcess) -> Where:
    return Where(broker=f"127.0.0.1:{broker.port}")


def put(bus: BlockingClient) -> None:
    for id in ("a", "b", "a", "c", "a", "b"):
        bus.produce("orders", b"x", id=id)


def test_a_range(spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    wanted = Wanted(sources=("orders",), to="clean", table=table)
    found = run(spark, where, wanted, "dedup", print)
    assert (found["messages"], found["repeated"], found["dropped"]) == (6, 2, 3)
    assert found["written"] == 3
    assert [message.id for message in everything(bus, "clean")] == ["a", "b", "c"]
    rows = spark.read.parquet(table).orderBy("id").collect()
    assert [(row.id, row.kept.offset, [one.offset for one in row.dropped]) for row in rows] == [
        ("a", 0, [2, 4]),
        ("b", 1, [5]),
    ]


@pytest.mark.check
def test_a_stream(spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    wanted = Wanted(sources=("orders",), to="clean", checkpoint=checkpoint, once=True)
    run(spark, where, wanted, "dedup", print)
    put(bus)
    run(spark, where, wanted, "dedup", print)
    assert sorted(message.id for message in everything(bus, "clean")) == ["a", "b", "c"]
    other = Wanted(sources=("orders",), to="clean", checkpoint=checkpoint, once=True, by="key")
    with pytest.raises(Usage, match="--by was 'id' and is 'key'"):
        run(spark, where, other, "dedup", print)


@pytest.mark.check
def test_a_backlog_of_two_topics_loses_nothing(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    """One was written before the other: its messages are not too late for the window."""
    for topic in ("one", "two"):
        bus.declare(topic, durability="disk")
        for part in range(6):
            bus.produce_many(topic, [Message(b"x" * 100, id=f"{part}-{n}") for n in range(10)])
    wanted = Wanted(
        sources=("one", "two"),
        to="clean",
        checkpoint=str(tmp_path / "checkpoint"),
        once=True,
        window="1ms",
        batch_bytes="6KiB",
    )
    assert run(spark, where, wanted, "dedup", print)["messages"] == 120
    assert len(everything(bus, "clean")) == 120


def test_what_spark_has_dropped_is_told() -> None:
    state = SimpleNamespace(numRowsDroppedByWatermark=0)
    progress = SimpleNamespace(batchId=3, stateOperators=[state])
    require_none_dropped(progress)
    state.numRowsDroppedByWatermark = 68
    with pytest.raises(Unverified, match="batch 3: Spark has dropped 68 messages"):
        require_none_dropped(progress)


def test_the_command(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    words = ("dedup", "--broker", str(where), "--from", "orders", "--by", "id,body_hash", "--json")
    told = {"messages": 6, "repeated": 2, "dropped": 3, "written": 0}
    trial = job(*words, "--to", "clean", "--table", str(table), "--dry-run")
    assert (trial.exit_code, table.exists()) == (0, False), trial.stderr
    assert json.loads(trial.stdout).items() >= told.items()
    assert everything(bus, "clean") == []
    found = job(*words, "--table", str(table))
    assert json.loads(found.stdout).items() >= told.items()
    assert "6 messages, 2 of them more than once, 3 too many" in found.stderr
    assert {len(row.body_hash) for row in spark.read.parquet(str(table)).collect()} == {64}
    require_refused(job(*words, "--table", str(table)), 2, "exists already")
