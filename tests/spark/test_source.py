"""The format in Spark: one session for all (`tests/spark/conftest.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.broker import BrokerProcess
from tests.process.endpoint import wait_for
from zbus.client import connect
from zbus.spark.source.listener import Lag
from zbus.spark.source.location import Where

pytestmark = pytest.mark.xdist_group("spark")

COUNT = 300


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker, and where its data is."""
    data = tmp_path_factory.mktemp("source") / "data"
    with BrokerProcess(data) as broker:
        url = f"127.0.0.1:{broker.port}"
        with connect(url) as bus:
            bus.declare("orders")
            for tag in ("eu", "us"):
                bodies = [b"%d" % number for number in range(COUNT // 2)]
                bus.produce_many("orders", bodies, tag=tag)
        yield {"broker": url, "path": str(data)}


def test_a_table_and_sql(spark: Any, filled: dict[str, str]) -> None:
    orders = spark.read.format("zbus").option("broker", filled["broker"]).option("topic", "orders")
    orders.load().createOrReplaceTempView("orders")
    found = spark.sql(
        "SELECT tag, count(*), sum(cast(cast(body AS string) AS int)), max(offset)"
        " FROM orders GROUP BY tag ORDER BY tag"
    ).collect()
    total = sum(range(COUNT // 2))
    assert [tuple(row) for row in found] == [("eu", 150, total, 149), ("us", 150, total, 299)]


def test_a_directory_has_the_same_rows(spark: Any, filled: dict[str, str]) -> None:
    source = spark.read.format("zbus").option("topic", "orders")
    remote = source.option("broker", filled["broker"]).load().sort("offset").collect()
    source = spark.read.format("zbus").option("topic", "orders").option("path", filled["path"])
    assert wait_for(lambda: source.load().count() == COUNT), "it is not said to be synced"
    assert source.load().sort("offset").collect() == remote


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_conditions(spark: Any, filled: dict[str, str], pushed: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    orders = spark.read.format("zbus").option("broker", filled["broker"]).option("topic", "orders")
    frame = orders.load().where("offset >= 10 AND offset < 200 AND tag = 'us'").select("offset")
    assert [row.offset for row in frame.sort("offset").collect()] == list(range(150, 200))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert ("Filter (" in plan) == (pushed == "false")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_schema_as_projection(spark: Any, filled: dict[str, str]) -> None:
    orders = spark.read.format("zbus").schema("offset long, tag string")
    frame = orders.option("broker", filled["broker"]).option("topic", "orders").load()
    assert frame.columns == ["offset", "tag"]
    assert frame.where("tag = 'eu'").count() == COUNT // 2


def test_a_stream_that_goes_on_where_it_was(
    spark: Any, filled: dict[str, str], tmp_path: Path
) -> None:
    def run() -> None:
        orders = spark.readStream.format("zbus").option("broker", filled["broker"])
        orders = orders.option("topic", "orders").option("startingOffsets", "earliest")
        orders = orders.option("maxOffsetsPerTrigger", "200")
        writer = orders.load().writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "rows"))
        query.awaitTermination()

    run()
    with connect(filled["broker"]) as bus:
        bus.produce_many("orders", [b"more"] * 10, tag="new")
    run()
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.count() == rows.select("offset").distinct().count() == COUNT + 10


def test_after_a_run_nothing_is_behind(spark: Any, filled: dict[str, str], tmp_path: Path) -> None:
    """Spark tells a source of its last batch never; a listener hears of it."""
    told: list[dict[str, int]] = []
    lag = Lag(Where(broker=filled["broker"]), "done", lambda _, behind: told.append(behind))
    spark.streams.addListener(lag)
    try:
        orders = spark.readStream.format("zbus").schema("offset long").option("topic", "orders")
        orders = orders.option("broker", filled["broker"]).option("startingOffsets", "earliest")
        writer = orders.load().writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        assert wait_for(lambda: told[-1:] == [{"orders": 0}])
    finally:
        spark.streams.removeListener(lag)  # or it follows the queries of all other tests
    with connect(filled["broker"]) as bus:
        assert bus.query("orders", "done").message_count == 0, "it is told when the group has moved"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "orders"}, "there is no option topik; did you mean topic?"),
        ({"topic": "nobody"}, "nobody"),
        ({"topic": "orders", "startingOffsets": '{"a": 1}'}, "the offsets are of a"),
    ],
)
def test_errors_say_what_is_wrong(
    spark: Any, filled: dict[str, str], options: dict[str, str], text: str
) -> None:
    reader = spark.read.format("zbus").option("broker", filled["broker"]).options(**options)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark, which kind differs
        reader.load().count()
    assert text in str(caught.value)
