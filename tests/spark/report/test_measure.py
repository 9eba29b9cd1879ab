"""A report's figures against plain Python, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.client.messages import Message
from zbus.spark.commands import spark as command

COUNT = 200


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("report") / "data") as broker:
        url = f"127.0.0.1:{broker.port}"
        with connect(url) as bus:
            bus.declare("orders")
            bus.declare("orders", "billing", ack=True)
            messages = [
                Message(b"x" * (number % 50), key=f"k{number % 7}", headers={"x-sent": "1"})
                for number in range(COUNT)
            ]
            bus.produce_many("orders", messages[::2], tag="eu")
            bus.produce_many("orders", messages[1::2])
            bus.produce("orders", b"later", delay_ms=7_200_000)
        yield url


def run(*words: str) -> Any:
    return CliRunner().invoke(command, ["report", *words])


def test_the_command(spark: Any, url: str, tmp_path: Path) -> None:
    words = ["--broker", url, "--topics", "Orders", "--out", str(tmp_path / "r.html")]
    words += ["--data", str(tmp_path / "d"), "--sent-header", "X-Sent", "--show-keys", "--json"]
    for _ in range(2):
        found = run(*words)
        assert found.exit_code == 0, found.output
    text = json.loads(found.stdout)["summary"]
    assert f"{COUNT + 1} messages" in text[0]
    traffic = spark.read.parquet(str(tmp_path / "d/traffic.parquet")).collect()
    sizes = {None: range(1, COUNT, 2), "eu": range(0, COUNT, 2)}
    for row in traffic:
        if row.tag is not None:
            assert row.messages == COUNT // 2
            assert row.bytes == sum(number % 50 for number in sizes[row.tag])
            assert (row.size_p50, row.size_max, row.distinct_keys) == (24, 48, 7)
    assert sum(row.messages for row in traffic) == COUNT + 1
    latency = spark.read.parquet(str(tmp_path / "d/latency.parquet")).collect()
    assert sum(row.messages for row in latency) == COUNT
    (pending,) = spark.read.parquet(str(tmp_path / "d/pending.parquet")).collect()
    assert pending.messages == 1
    backlog = spark.read.parquet(str(tmp_path / "d/backlog.parquet")).collect()
    assert [(row.group, row.messages) for row in backlog] == [("billing", COUNT + 1)] * 2
    page = (tmp_path / "r.html").read_text()
    assert "Group billing of orders is 201 messages behind" in page
    assert "k3" in page


def test_what_is_still_to_come_was_stored_at_any_time(spark: Any, url: str, tmp_path: Path) -> None:
    with connect(url) as bus:
        bus.declare("quiet")
        bus.produce("quiet", b"x")
        [quiet] = bus.read("quiet", count=1)
    words = ["--broker", url, "--topics", "orders,quiet", "--out", str(tmp_path / "r.html")]
    words += ["--data", str(tmp_path / "d"), "--since", str(quiet.timestamp_ms)]
    assert run(*words).exit_code == 0
    rows = spark.read.parquet(str(tmp_path / "d/pending.parquet")).collect()
    assert [(row.topic, row.messages) for row in rows] == [("orders", 1)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say which topics: --topics A,B or --pattern RE"),
        (["--topics", "a", "--pattern", "b"], "say which topics: --topics A,B or --pattern RE"),
        (["--pattern", "("], "is not a regular expression"),
        (["--topics", "nobody"], "nobody"),
        (["--pattern", "nobody"], "no topic matches nobody"),
        (["--topics", "orders", "--bucket", "x"], "--bucket x: it is like 5m, 1h or 1d"),
        (["--topics", "orders", "--bucket", "1s", "--since", "30d"], "more than 5000 buckets"),
        (["--topics", "orders", "--since", "yesterday"], "--since yesterday"),
        (["--topics", "orders", "--since", "1h", "--until", "2h"], "--until is not after --since"),
        (["--topics", "orders", "--sent-header", "a b"], "no name of a header"),
        (["--topics", "orders", "--from", "/nowhere"], "/nowhere"),
        (["--topics", "orders", "--data-dir", "x", "--groups"], "known to a broker alone"),
    ],
)
def test_what_cannot_be(url: str, tmp_path: Path, words: list[str], said: str) -> None:
    found = run("--broker", url, "--out", str(tmp_path / "r.html"), *words)
    assert found.exit_code == 2, found.output
    assert said in found.output
    assert not (tmp_path / "r.html").exists()
