"""The flights through the jobs, as `examples/spark` shows it: figures against the source table."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
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
from zbus.spark.source.location import Where

COUNT = 3_000
ROOT = Path(__file__).parents[2]


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


def expected(count: int | None = COUNT) -> dict[tuple[str, int], float | None]:
    """By airport and hour, of the table."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for flight in islice(rows(), count):
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

    page, tables = tmp_path / "flights.html", tmp_path / "tables"
    words = ["--topics", "flights", "--since", "1h", "--bucket", "1m", "--no-groups"]
    run("report", *place, *words, "--out", str(page), "--data", str(tables))
    assert f"{COUNT:,} messages" in page.read_text()
    traffic = spark.read.parquet(str(tables / "traffic.parquet")).collect()
    assert sum(row.messages for row in traffic) == COUNT
    with connect(url) as bus:
        sizes = [len(each.body) for each in everything(bus, "flights")]
    assert sum(row.bytes for row in traffic) == sum(sizes)

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


def commands(page: str, url: str) -> Iterator[str]:
    """Those of a page, for this broker and this Python."""
    block = page.split("```sh\n")[1].split("```")[0]
    for line in block.replace("\\\n", " ").splitlines():
        command = line.split("  #")[0].strip()
        if command.startswith("zbus "):
            command = f"python -m {command}"
        command = command.replace("localhost:15555", url)
        if "examples.flights.publish" in command:
            command += f" --url http://{url}"
        if "examples.spark.flights" in command and "--archive" not in command:
            command += f" --broker {url}"
        if command:
            yield command.replace("python ", f"{shlex.quote(sys.executable)} ", 1)


def shown(table: str) -> dict[tuple[str, int], float | None]:
    """What `DataFrame.show` has printed."""
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {
        (airport.strip(), int(hour)): None if "NULL" in average else float(average)
        for airport, hour, _, average in cells[1:]
    }


@pytest.mark.check
def test_all_of_them_as_the_readme_says(tmp_path: Path) -> None:
    page = (ROOT / "examples/spark/README.md").read_text()
    with BrokerProcess(tmp_path / "data") as broker:
        url = f"127.0.0.1:{broker.port}"
        environment = {**os.environ, "ZBUS_BROKER": url, "PYTHONPATH": str(ROOT)}
        said = {}
        for command in commands(page, url):
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, (command, done.stdout[-500:], done.stderr[-1_000:])
            said[command.split(" -m ")[-1]] = done.stdout
        tables = [text for command, text in said.items() if "examples.spark.flights" in command]
        assert len(tables) == 2
        for table in tables:
            assert shown(table) == pytest.approx(expected(None))
        late = sum((flight["dep_delay"] or 0) > 60 for flight in rows())
        count = sum(1 for _ in rows())
        with connect(url) as bus:
            assert everything(bus, "flights.bad") == []
        with Where(broker=url).open() as log:
            stored = {topic: log.spans(topic)[0].end for topic in ("late", "again")}
    assert stored == {"late": late, "again": count}
    (line,) = [text for command, text in said.items() if "spark search" in command]
    assert "2013-01-01.UA1545.EWR" in line
    assert f"{count:,} messages" in (tmp_path / "flights.html").read_text()
