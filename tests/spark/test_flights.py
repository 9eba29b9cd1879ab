"""The flights through the jobs, as `examples/spark` shows it: figures against the source table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from click.testing import CliRunner

from examples.flights.data import flights
from examples.flights.publish import Publisher, batches, flight_id
from examples.spark.flights import delays
from tests.process.broker import BrokerProcess
from tests.spark.brokers import everything
from zbus.client import connect
from zbus.spark import open_archive
from zbus.spark.commands import spark as command

COUNT = 3_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("flights") / "data") as broker:
        url = f"127.0.0.1:{broker.port}"
        with connect(url) as bus:
            for topic in ("flights", "late", "flights.bad", "again"):
                bus.declare(topic)
        publisher = Publisher(f"http://{url}", "flights")
        publisher.publish(batches(islice(flights(), COUNT)))
        publisher.close()
        yield url


def run(*words: str) -> Any:
    found = CliRunner().invoke(command, [*words, "--json"])
    assert found.exit_code == 0, found.output
    return found.stdout


def rows() -> Iterator[dict[str, Any]]:
    yield from flights()


def expected() -> dict[tuple[str, int], float | None]:
    """By airport and hour, of the table."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for flight in islice(rows(), COUNT):
        delay = flight["dep_delay"]
        found[flight["origin"], flight["hour"]] += [] if delay is None else [delay]
    return {place: mean(values) if values else None for place, values in found.items()}


def test_flights(spark: Any, url: str, tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    place = ("--broker", url)
    run("archive", *place, "--topics", "flights", "--to", archive)
    run("archive", "verify", archive, "--live", *place)
    wanted = flight_id(next(islice(flights(), 1_234, None)))
    (line,) = run("search", "--in", archive, "--id", wanted).splitlines()
    assert json.loads(line)["offset"] == 1_234

    live = spark.read.format("zbus").options(broker=url, topic="flights").load()
    for messages in (live, open_archive(spark, archive)):
        found = {(row.airport, row.hour): row.average_delay for row in delays(messages).collect()}
        assert found == pytest.approx(expected())

    sql = "SELECT value.dest AS key, value.* FROM input WHERE value.dep_delay > 60"
    words = ["--parse", "json", "--schema", "origin string, dest string, dep_delay int"]
    words += ["--sql", sql, "--to", "late", "--bad-rows", "flights.bad", "--once"]
    words += ["--checkpoint", str(tmp_path / "checkpoint")]
    for _ in range(2):  # what is done is not done again
        run("etl", *place, "--from", "flights", *words)
    late = [row for row in islice(rows(), COUNT) if (row["dep_delay"] or 0) > 60]
    run("replay", *place, "--from", f"{archive}/", "--to", "again")
    with connect(url) as bus:
        assert [json.loads(each.body)["dep_delay"] for each in everything(bus, "late")] == [
            row["dep_delay"] for row in late
        ]
        assert everything(bus, "flights.bad") == []
        again = everything(bus, "again")
        assert [each.body for each in again] == [each.body for each in everything(bus, "flights")]
        assert again[7].headers["x-replay-offset"] == "7"
