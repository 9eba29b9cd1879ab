"""Replays with a real broker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import everything, job
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.spark import io as ends
from zbus.spark.archive.table import Archive
from zbus.spark.errors import DataLoss, SparkProblem, Usage
from zbus.spark.replay import frames
from zbus.spark.replay.pacing import Slice
from zbus.spark.replay.run import PUSHED, Wanted, pushing, run
from zbus.spark.sink.encode import SET_BY_BROKER
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("replay") / "data") as broker:
        yield broker


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        for topic in ("orders", "again"):
            bus.declare(topic, durability="disk")
        for number in range(COUNT):
            headers = {"x-n": f"{number}", "content-type": "text/plain"} if number % 3 else {}
            key = f"k{number % 7}" if number % 2 else ""
            body = bytes([number]) * number
            bus.produce("orders", body, key=key, tag=f"t{number % 5}", headers=headers)
        yield bus
        for topic in ("orders", "again"):
            bus.remove(topic)


@pytest.fixture
def where(broker: BrokerProcess) -> Where:
    return Where(broker=f"127.0.0.1:{broker.port}")


def sequence(spark: SparkSession, where: Where, topic: str) -> list[Any]:
    """Of a topic: what a replay keeps."""
    rows = ends.load(spark, where, ends.find_range(where, [topic])).orderBy("offset").collect()
    return [(row.id, row.tag, row.key, own(row.headers), bytes(row.body)) for row in rows]


def own(headers: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if not name.startswith("x-replay-") and name not in SET_BY_BROKER
    }


def test_the_sequence_is_the_same(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    plan = run(spark, where, Wanted(source="orders", to="again"), print)
    old, new = everything(bus, "orders"), everything(bus, "again")
    assert sequence(spark, where, "again") == sequence(spark, where, "orders")
    assert (plan.messages, len(plan.slices)) == (COUNT, 1)
    headers = new[7].headers
    assert (headers["x-replay-topic"], headers["x-replay-offset"]) == ("orders", "7")
    assert headers["x-replay-timestamp"] == str(old[7].timestamp_ms)
    assert headers["x-replay-run"] == plan.run


def test_an_archive_gives_back_what_it_was_given(
    spark: SparkSession, bus: BlockingClient, where: Where, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The command, from an archive of several files."""
    archive, url = tmp_path / "archive", f"127.0.0.1:{broker.port}"
    small = ("--engine", "local", "--file-bytes", "5KiB")
    kept = job("archive", "--broker", url, "--topics", "orders", "--to", str(archive), *small)
    assert kept.exit_code == 0, kept.output
    assert len(Archive(archive).files("orders")) > 2
    words = ("replay", "--broker", url, "--from", f"{archive}/", "--to", "again", "--json")
    planned = json.loads(job(*words, "--dry-run").stdout)
    assert (planned["messages"], planned["planned"]) == (COUNT, True)
    assert everything(bus, "again") == []
    found = job(*words, "--speed", "100x", "--rate", "1MiB/s")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["messages"] == COUNT
    assert sequence(spark, where, "again") == sequence(spark, where, "orders")


def test_a_backup_is_read_without_its_broker(
    spark: SparkSession, bus: BlockingClient, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Out of a directory, into a broker: a topic of the same name needs --force."""
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy)
    url = f"127.0.0.1:{broker.port}"
    words = ("replay", "--data-dir", str(copy), "--broker", url, "--from", "orders")
    found = job(*words, "--to", "orders", "--limit", "3")
    assert (found.exit_code, "--force" in found.stderr) == (2, True)
    assert job(*words, "--to", "again", "--limit", "3").exit_code == 0
    assert [message.body for message in everything(bus, "again")] == [b"", b"\1", b"\2\2"]


def test_slices_read_only_their_own(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    """Conditions are left to the source meanwhile, and afterwards it is as it was."""
    before = spark.conf.get(PUSHED, "")
    rows = ends.load(spark, where, ends.find_range(where, ["orders"]))

    def plan() -> str:
        some = frames.of_slice(rows, Slice(0, 1, 0, 0))
        return str(some._jdf.queryExecution().executedPlan())

    assert "Filter (" in plan()
    with pushing(spark):
        assert "Filter (" not in plan()
    assert spark.conf.get(PUSHED, "") == before


def test_some_of_them(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    wanted = Wanted(source="orders", to="again", where="tag = 't1' and offset > 10", limit=4)
    run(spark, where, wanted, print)
    places = [message.headers["x-replay-offset"] for message in everything(bus, "again")]
    assert places == ["11", "16", "21", "26"]


def test_an_archive_that_has_grown_since_the_plan(
    spark: SparkSession,
    bus: BlockingClient,
    where: Where,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies between the plan and the first slice. Another topic is archived, and this one
    goes on, and is compacted; then days are taken out."""
    archive, url = tmp_path / "archive", f"127.0.0.1:{broker.port}"
    place = ("--broker", url, "--to", str(archive), "--engine", "local")
    assert job("archive", *place, "--topics", "orders").exit_code == 0
    wanted = Wanted(source=f"{archive}/", to="again")
    checkpoint = str(tmp_path / "checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr("zbus.spark.replay.run._write", lambda *_: 1 / 0)
        with pytest.raises(SparkProblem):
            run(spark, where, wanted, print, checkpoint)
    bus.declare("other")
    bus.produce("other", b"x")
    bus.produce("orders", b"later")
    assert job("archive", *place, "--topics", "orders,other").exit_code == 0
    assert job("archive", "compact", str(archive)).exit_code == 0
    assert len(Archive(archive).files("orders")) == 1
    plan = run(spark, where, wanted, print, checkpoint)
    assert (plan.messages, len(everything(bus, "again"))) == (COUNT, COUNT)
    bus.remove("other")
    expired = job("archive", "expire", str(archive), "--before", "2999-01-01")
    assert expired.exit_code == 0
    assert run(spark, where, wanted, print, checkpoint).messages == COUNT  # of that version
    vacuumed = job("archive", "vacuum", str(archive), "--older-than", "0s", "--force")
    assert vacuumed.exit_code == 0
    with pytest.raises(DataLoss, match=r"version \d+ of .* was vacuumed"):
        run(spark, where, wanted, print, checkpoint)


def test_a_replay_goes_on(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    """At a rate there are several transactions, of which none is done twice."""
    wanted = Wanted(source="orders", to="again", rate_text="1000000", speed_text="1000x")
    checkpoint = str(tmp_path / "checkpoint")
    first = run(spark, where, wanted, print, checkpoint)
    bus.produce("orders", b"later")
    again = run(spark, where, wanted, print, checkpoint)
    assert again.run == first.run
    assert len(everything(bus, "again")) == COUNT
    with pytest.raises(Usage, match=r"another replay \(--rate, --speed, --to\)"):
        run(spark, where, Wanted(source="orders", to="other"), print, checkpoint)


def test_a_trial(spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path) -> None:
    wanted = Wanted(source="orders", to="again")
    plan = run(spark, where, wanted, print, str(tmp_path / "c"), dry_run=True)
    assert plan.messages == COUNT
    assert everything(bus, "again") == []
    assert not (tmp_path / "c").exists()


def test_not_into_itself(spark: SparkSession, bus: BlockingClient, where: Where) -> None:
    with pytest.raises(Usage, match="--force"):
        run(spark, where, Wanted(source="orders", to="Orders"), print)
    run(spark, where, Wanted(source="orders", to="orders", limit=2, force=True), print)
    assert len(everything(bus, "orders")) == COUNT + 2
