"""The archive and Spark: written by its tasks, read as its table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import zbus.spark
from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.spark import commands
from zbus.spark.archive import Archive
from zbus.spark.archive.spark import SparkEngine
from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.source.columns import NAMES

TOPICS = ("orders", "007", "a=b%2Fc d", "x" * 200)
COUNT = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("archive") / "data") as broker:
        with connect(f"127.0.0.1:{broker.port}") as bus:
            for topic in TOPICS:
                bus.declare(topic)
                bus.produce_many(topic, [b"%d" % number for number in range(COUNT)], tag="t")
        yield broker


def test_written_by_tasks_and_read_as_a_table(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    root = tmp_path / "a [1]"
    words = ["archive", "--broker", f"127.0.0.1:{broker.port}", "--pattern", ".*", "--json"]
    words += ["--to", str(root), "--file-bytes", "2KiB"]
    found = CliRunner().invoke(commands.spark, words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["messages"] == COUNT * len(TOPICS)
    assert len(Archive(root).files("orders")) > 1
    table = zbus.spark.open_archive(spark, root)
    assert table.columns == list(NAMES)
    rows = table.select("topic", "offset", "body", "tag").collect()
    said = sorted((row.topic, row.offset, bytes(row.body), row.tag) for row in rows)
    assert said == sorted((topic, n, b"%d" % n, "t") for topic in TOPICS for n in range(COUNT))
    assert zbus.spark.open_archive(spark, root, topics=["orders"]).count() == COUNT
    assert table.where("topic = 'orders' and offset >= 90").count() == 10


def test_what_is_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Usage, match="not an archive"):
        zbus.spark.open_archive(spark, tmp_path)


def test_a_task_that_fails_says_why(spark: SparkSession) -> None:
    def fail(item: int) -> list[int]:
        raise ValueError(f"not {item}")

    with pytest.raises(SparkProblem, match=r"a task of Spark failed: .*ValueError: not 1"):
        list(SparkEngine(lambda: spark).each(fail, [1]))
