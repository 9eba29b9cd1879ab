"""Duplicates in a topic of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import everything
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.spark.dedup.run import Wanted, run
from zbus.spark.errors import Usage
from zbus.spark.where import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        for topic in ("orders", "clean"):
            bus.declare(topic, durability="disk")
        put(bus)
        yield bus


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


def test_a_stream(spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    wanted = Wanted(sources=("orders",), to="clean", checkpoint=checkpoint, once=True)
    run(spark, where, wanted, "dedup", print)
    put(bus)
    run(spark, where, wanted, "dedup", print)
    assert sorted(message.id for message in everything(bus, "clean")) == ["a", "b", "c"]
    other = Wanted(sources=("orders",), to="clean", checkpoint=checkpoint, once=True, by=("key",))
    with pytest.raises(Usage, match="--by was 'id' and is 'key'"):
        run(spark, where, other, "dedup", print)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"sources": ()}, "--from TOPIC"),
        ({"to": "ORDERS"}, "would be read and written"),
        ({"checkpoint": "c"}, "a stream needs --to"),
        ({"checkpoint": "c", "to": "x", "table": "t"}, "--table is of a range"),
        ({"checkpoint": "c", "to": "x", "until": "1h"}, "no --until"),
        ({"once": True}, "--once is of a stream"),
    ],
)
def test_what_does_not_fit(said: dict[str, Any], text: str) -> None:
    with pytest.raises(Usage) as caught:
        Wanted(**{"sources": ("orders",), **said}).check()
    assert text in str(caught.value)
