"""The sink in Spark: tables and streams that are written into topics, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.broker import BrokerProcess
from zbus.client import BlockingClient, connect

COUNT = 100


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("written") / "data") as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.fixture
def bus(url: str) -> Iterator[BlockingClient]:
    with connect(url) as found:
        for topic in found.server().topics:
            found.remove(topic)
        for topic in ("in", "out"):
            found.declare(topic)
        found.produce_many("in", [b"%d" % number for number in range(COUNT)])
        yield found


def bodies(bus: BlockingClient, topic: str = "out") -> list[str]:
    return [each.body.decode() for each in bus.read(topic, count=1_000)]


def copy(spark: Any, url: str, checkpoint: Path, **more: str) -> None:
    """A stream from one topic into the other, through a shuffle, in batches of 30."""
    source = spark.readStream.format("zbus").option("broker", url).option("topic", "in")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "30")
    rows = source.load().select("body", "key").repartition(3)
    sink = rows.writeStream.format("zbus").option("broker", url).option("topic", "out")
    sink = sink.options(**more).option("checkpointLocation", str(checkpoint))
    sink.trigger(availableNow=True).start().awaitTermination()


def test_a_table(spark: Any, url: str, bus: BlockingClient) -> None:
    bus.declare("other")
    rows = spark.sql(
        "SELECT if(id < 3, 'out', 'other') AS topic, concat('n', id) AS body, 'eu' AS tag,"
        " cast(id AS string) AS key, map('color', 'blue') AS headers FROM range(0, 5, 1, 2)"
    )
    rows.write.format("zbus").mode("append").option("broker", url).save()
    assert bodies(bus) == ["n0", "n1", "n2"]
    assert bodies(bus, "other") == ["n3", "n4"]
    first = bus.read("out")[0]
    assert (first.tag, first.key, first.headers["color"]) == ("eu", "0", "blue")
    assert sorted(bus.server().topics) == ["in", "other", "out"], "nothing is left behind"


def test_a_table_whose_last_row_fails_is_not_written(
    spark: Any, url: str, bus: BlockingClient
) -> None:
    rows = spark.sql(
        "SELECT if(id = 99, raise_error('the last'), concat('', id)) AS body"
        " FROM range(0, 100, 1, 2)"
    )
    with pytest.raises(Exception, match="the last"):
        rows.write.format("zbus").mode("append").options(broker=url, topic="out").save()
    assert bodies(bus) == []
    assert sorted(bus.server().topics) == ["in", "out"]


def test_a_batch_that_spark_repeats_is_written_once(
    spark: Any, url: str, bus: BlockingClient, tmp_path: Path
) -> None:
    copy(spark, url, tmp_path)
    expected = sorted(str(number) for number in range(COUNT))
    assert sorted(bodies(bus)) == expected
    # As if the driver had ended between the broker's commit and the note that Spark makes of it.
    notes = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(notes) > 1
    notes[-1].unlink()
    notes[-1].with_name(f".{notes[-1].name}.crc").unlink()
    bus.produce_many("in", ["more"] * 5)
    copy(spark, url, tmp_path)
    assert sorted(bodies(bus)) == sorted([*expected, *["more"] * 5])


@pytest.mark.parametrize(
    ("sql", "options", "said"),
    [
        ("SELECT 1 AS body", {"topic": "out"}, "body is binary or string, and not int"),
        ("SELECT 'a' AS body", {}, "missing target: the option topic, or a column topic"),
        ("SELECT 'a' AS body", {"topic": "nowhere"}, "nowhere"),
        ("SELECT 'a' AS body", {"topik": "out"}, "there is no option topik; did you mean topic?"),
    ],
)
def test_errors_say_what_is_wrong(
    spark: Any, url: str, bus: BlockingClient, sql: str, options: dict[str, str], said: str
) -> None:
    writer = spark.sql(sql).write.format("zbus").mode("append").option("broker", url)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark, which kind differs
        writer.options(**options).save()
    assert said in str(caught.value)
