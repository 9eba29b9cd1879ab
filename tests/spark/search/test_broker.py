"""Live topics of a broker; an archive with its live tail; results put into a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.spark.commands import spark as group

COUNT = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("search") / "data") as broker:
        with connect(f"127.0.0.1:{broker.port}") as bus:
            bus.declare("orders")
            bus.declare("others")
            bus.declare("blue")
            put(bus, 0)
        yield broker


def put(bus: BlockingClient, first: int) -> None:
    for number in range(first, first + COUNT):
        bus.produce(
            "orders",
            json.dumps({"n": number, "colour": ["red", "blue"][number % 2]}).encode(),
            id=f"order-{number}",
            key=f"customer-{number % 7}",
            tag="eu",
            headers={"x-kind": "order"},
        )


def run(broker: BrokerProcess, *words: str) -> Result:
    url = f"127.0.0.1:{broker.port}"
    return CliRunner().invoke(
        group, ["search", "--broker", url, "--json", *words], catch_exceptions=False
    )


def offsets(found: Result) -> list[int]:
    assert found.exit_code == 0, found.stderr
    return [json.loads(line)["offset"] for line in found.stdout.splitlines()]


BLUE = ("--json-path", "$.colour", "--equals", "blue", "--topics", "orders")


def test_live_topics(broker: BrokerProcess) -> None:
    assert offsets(run(broker, "--key", "customer-3")) == list(range(3, COUNT, 7))
    assert offsets(run(broker, *BLUE, "--limit", "3")) == [1, 3, 5]
    assert offsets(run(broker, "--topics", "others")) == []
    found = run(broker, "--topics", "nobody")
    assert (found.exit_code, "nobody" in found.stderr) == (2, True)


@pytest.mark.xdist_group("spark")
def test_live_topics_in_spark(spark: Any, broker: BrokerProcess) -> None:
    words = (*BLUE, "--where", "offset % 3 = 0", "--header", "x-kind=order")
    assert offsets(run(broker, *words)) == list(range(3, COUNT, 6))


def test_an_archive_and_its_live_tail(broker: BrokerProcess, tmp_path: Path) -> None:
    url, root = f"127.0.0.1:{broker.port}", str(tmp_path / "archive")
    words = ("--broker", url, "--to", root, "--topics", "orders", "--engine", "local")
    assert CliRunner().invoke(group, ["archive", *words], catch_exceptions=False).exit_code == 0
    with connect(url) as bus:
        put(bus, COUNT)
    assert offsets(run(broker, "--in", root, *BLUE)) == list(range(1, COUNT, 2))
    both = run(broker, "--in", root, "--live", *BLUE)
    assert offsets(both) == list(range(1, 2 * COUNT, 2))
    said = json.loads(run(broker, "--in", root, "--live", *BLUE, "--dry-run").stdout)
    assert (said["files"], said["live_messages"]) == (1, COUNT)


def test_results_are_put_into_a_topic(broker: BrokerProcess) -> None:
    found = run(broker, *BLUE, "--limit", "4", "--to-topic", "blue", "--body", "none")
    assert offsets(found) == [1, 3, 5, 7]
    again = run(broker, "--topics", "blue", "--body", "full")
    row = json.loads(again.stdout.splitlines()[1])
    assert (row["id"], row["tag"], row["key"]) == ("order-3", "eu", "customer-3")
    assert json.loads(row["body"]) == {"n": 3, "colour": "blue"}
    headers = row["headers"]
    assert headers["x-kind"] == "order"
    assert headers["x-search-topic"] == "orders"
    assert (headers["x-search-partition"], headers["x-search-offset"]) == ("0", "3")
    assert abs(int(headers["x-search-timestamp"]) - row["timestamp"]) < 600_000


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("--to-topic orders", 2, "--to-topic orders: it is searched itself"),
        ("--to-topic nobody", 2, "nobody) Not Found"),
        ("--token-file /nowhere/token", 2, "token file"),
    ],
)
def test_what_cannot_be(broker: BrokerProcess, words: str, code: int, text: str) -> None:
    found = run(broker, *words.split())
    assert (found.exit_code, found.stdout) == (code, "")
    assert text in found.stderr
