"""Dead letters of a real broker: looked at, sent back, dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import everything, job, kill, require_refused
from zbus.client import connect
from zbus.client.blocking import BlockingClient
from zbus.spark import io as ends
from zbus.spark.dlq import apply, groups
from zbus.spark.dlq.apply import Wanted
from zbus.spark.dlq.journal import FINISHED, Journal
from zbus.spark.dlq.letters import letters, summary
from zbus.spark.dlq.plan import Action, Plan, read, write
from zbus.spark.errors import DataLoss, LostRace, SparkProblem, Usage
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DLQ = "orders.DLQ"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("dlq") / "data") as broker:
        yield broker


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    """Six orders that are dead: of each the number is its body and key."""
    with connect(f"127.0.0.1:{broker.port}") as bus:
        bus.declare(DLQ, DLQ, ack=True, durability="disk")
        bus.declare("audit", durability="disk")
        bus.declare(
            "orders", "billing", durability="disk", ack=True, max_attempts=1, dead_letter=DLQ
        )
        for number in range(6):
            headers = {"x-error": f"order {number} failed", "x-redrive-count": str(number % 4)}
            bus.produce("orders", f"{number}".encode(), key=f"k{number}", headers=headers)
        kill(bus, "orders", "billing")
        assert len(everything(bus, DLQ)) == 6
        yield bus
        for topic in ("orders", DLQ, "audit"):
            bus.remove(topic)


@pytest.fixture
def where(broker: BrokerProcess) -> Where:
    return Where(broker=f"127.0.0.1:{broker.port}")


def found(spark: SparkSession, where: Where) -> DataFrame:
    return letters(ends.load(spark, where, ends.find_range(where, [DLQ])))


def planned(
    spark: SparkSession, where: Where, path: Path, action: Action = "redrive", **said: Any
) -> Plan:
    known = {"topic": DLQ, "path": path, "audit": "audit", "count_max": 100, **said}
    plan = apply.make(spark, where, Wanted(**known), action, found(spark, where))
    write(plan, path)
    return read(path)


def test_what_is_dead(spark: SparkSession, where: Where, bus: BlockingClient) -> None:
    [row] = summary(found(spark, where)).collect()
    assert (row["count"], row.origin, row.group) == (6, "orders", "billing")
    assert (row.reason, row.fingerprint) == ("given back", "order # failed")


def test_sent_back_once(
    spark: SparkSession, where: Where, bus: BlockingClient, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    plan = planned(spark, where, path)
    assert [entry.offset for entry in plan.entries] == [0, 1, 2, 4, 5]
    assert plan.left == {"sent back 3 times or more": 1}
    with pytest.raises(Usage, match="the token of this plan"):
        apply.apply(spark, where, plan, path, "other", print)
    said: list[str] = []
    apply.apply(spark, where, plan, path, plan.token, said.append, rate=1)
    apply.apply(spark, where, plan, path, plan.token, said.append)
    assert said == ["1 of 1 parts: 5 messages", "this plan was applied before: nothing to do"]
    back = everything(bus, "orders")[6:]
    assert [message.body for message in back] == [b"0", b"1", b"2", b"4", b"5"]
    assert [message.headers["x-redrive-count"] for message in back] == ["1", "2", "3", "1", "2"]
    assert all("dead_topic" not in message.headers for message in back)
    assert [message.key for message in back] == ["k0", "k1", "k2", "k4", "k5"]
    old = everything(bus, "orders")[:6]
    assert back[0].id == old[0].id
    [told] = everything(bus, "audit")
    document = json.loads(told.body)
    assert (document["action"], document["count"], document["token"]) == ("redrive", 5, plan.token)
    assert document["offsets"] == {"0": "0-2,4-5"}
    [left] = bus.pull(DLQ, DLQ, batch=10)
    assert left.offset == 3


def test_again_after_a_crash(
    spark: SparkSession, where: Where, bus: BlockingClient, tmp_path: Path
) -> None:
    """It ended after the transaction, and before that was written down."""
    path = tmp_path / "plan.json"
    plan = planned(spark, where, path, count_max=2)
    assert plan.left == {"more than --max": 3, "sent back 3 times or more": 1}
    bus.pause(DLQ, DLQ)
    journal = Journal(path)
    journal.add("part", 2)
    journal.add("paused")
    apply._commit(spark, where, plan, plan.entries, 0, True)
    apply.apply(spark, where, plan, path, plan.token, print)
    assert [message.body for message in everything(bus, "orders")[6:]] == [b"0", b"1"]
    assert len(everything(bus, "audit")) == 1
    assert Journal(path).has(FINISHED, 0)
    assert [message.offset for message in bus.pull(DLQ, DLQ, batch=10)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("at", "paused"),
    [("_named", False), ("target", False), ("ends.write", False), ("groups.finish", True)],
)
def test_a_failure_leaves_a_group_paused_only_for_what_is_committed(
    spark: SparkSession,
    where: Where,
    bus: BlockingClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    paused: bool,
) -> None:
    path = tmp_path / "plan.json"
    plan = planned(spark, where, path, count_max=2)
    said: list[str] = []

    def fail(*_: object) -> None:
        raise SparkProblem("no")

    with monkeypatch.context() as patch:
        if at == "target":
            bus.remove("audit")
        else:
            patch.setattr(f"zbus.spark.dlq.apply.{at}", fail)
        with pytest.raises(SparkProblem):
            apply.apply(spark, where, plan, path, plan.token, said.append)
    [group] = [each for each in bus.query(DLQ).groups if each.name == DLQ]
    assert group.paused == paused
    assert ["stays paused: part of the plan is done" in text for text in said] == [True] * paused
    if at == "target":
        bus.declare("audit", durability="disk")
    apply.apply(spark, where, plan, path, plan.token, print)
    assert [message.body for message in everything(bus, "orders")[6:]] == [b"0", b"1"]
    assert [message.offset for message in bus.pull(DLQ, DLQ, batch=10)] == [2, 3, 4, 5]


def test_somebody_else_was_faster(
    spark: SparkSession, where: Where, bus: BlockingClient, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    plan = planned(spark, where, path)
    bus.pull(DLQ, DLQ, batch=1)
    with pytest.raises(LostRace, match="1 messages of the plan are done by now or with a consumer"):
        apply.apply(spark, where, plan, path, plan.token, print)
    assert len(everything(bus, "orders")) == 6
    assert [message.offset for message in bus.pull(DLQ, DLQ, batch=1)] == [1]  # it goes on


def test_another_topic_of_that_name(
    spark: SparkSession, where: Where, bus: BlockingClient, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    plan = planned(spark, where, path)
    bus.declare("orders", "billing", dead_letter="")
    bus.remove(DLQ)
    bus.declare(DLQ, DLQ, ack=True)
    with pytest.raises(DataLoss, match="made again"):
        apply.apply(spark, where, plan, path, plan.token, print)


def test_dropped(spark: SparkSession, where: Where, bus: BlockingClient, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = planned(spark, where, path, "drop")
    assert len(plan.entries) == 6
    apply.apply(spark, where, plan, path, plan.token, print)
    assert bus.pull(DLQ, DLQ, batch=10) == []
    assert len(everything(bus, "orders")) == 6
    [told] = everything(bus, "audit")
    assert json.loads(told.body)["action"] == "drop"


def test_two_steps_by_command(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    """Looked at, planned, confirmed; the same confirmation again does nothing."""
    to, path, page = ("--broker", str(where)), tmp_path / "plan.json", tmp_path / "dead.html"
    shown = job("dlq", "report", *to, "--topic", DLQ, "--out", str(page))
    assert shown.stdout.startswith(f"{DLQ}: 6 dead letters of 1 topics, in 1 groups"), shown.stderr
    assert "order # failed" in page.read_text("utf-8")
    chosen = ("--topic", DLQ, "--where", "redrives < 2 and error like 'order %'")
    bad = job("dlq", "redrive", *to, "--topic", DLQ, "--where", "x = 1", "--plan", str(path))
    require_refused(bad, 2, "--where: [UNRESOLVED_COLUMN")
    words = ("dlq", "redrive", *to, "--plan", str(path))
    trial = job(*words, *chosen, "--dry-run", "--json")
    assert (json.loads(trial.stdout)["messages"], path.exists()) == (4, False)
    planned = job(*words, *chosen, "--max", "3", "--audit", "audit")
    token = planned.stdout.split()[-1]
    assert planned.stdout.endswith(f"dlq redrive --plan {path} --confirm {token}\n")
    assert len(everything(bus, "orders")) == 6
    done = json.loads(job(*words, "--confirm", token, "--json").stdout)
    assert (done["done"], done["messages"], done["targets"]) == (True, 3, {"orders": 3})
    again = job(*words, "--confirm", token)
    assert "was applied before" in again.stderr
    assert [message.body for message in everything(bus, "orders")[6:]] == [b"0", b"1", b"4"]
    assert len(everything(bus, "audit")) == 1


def test_exported(spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("dlq", "export", "--broker", str(where), "--topic", DLQ, "--out", str(out), "--json")
    assert json.loads(job(*words, "--dry-run").stdout) == {"messages": 6}
    assert json.loads(job(*words, "--where", "redrives = 3").stdout)["messages"] == 1
    [row] = spark.read.parquet(str(out)).collect()
    assert (row.origin, row.fingerprint, bytes(row.body)) == ("orders", "order # failed", b"3")
    require_refused(job(*words), 2, "exists already")


def test_codes_of_a_plan_that_is_late(
    spark: SparkSession, bus: BlockingClient, where: Where, tmp_path: Path
) -> None:
    """4 if somebody has its messages by now, 3 if the topic is another one."""
    path = tmp_path / "plan.json"
    words = ("dlq", "drop", "--broker", str(where), "--plan", str(path))
    token = job(*words, "--topic", DLQ).stdout.split()[-1]
    bus.pull(DLQ, DLQ, batch=1)
    require_refused(job(*words, "--confirm", token), 4, "make a new plan")
    bus.declare("orders", "billing", dead_letter="")
    bus.remove(DLQ)
    bus.declare(DLQ, DLQ, ack=True)
    require_refused(job(*words, "--confirm", token), 3, "removed and made again")


def test_which_group(bus: BlockingClient) -> None:
    assert groups.group_of(bus, DLQ, None) == DLQ
    bus.declare(DLQ, "other")
    assert groups.group_of(bus, DLQ, None) == DLQ
    assert groups.group_of(bus, DLQ, "OTHER") == "other"
    with pytest.raises(Usage, match="has no group x"):
        groups.group_of(bus, DLQ, "x")
    bus.remove("audit", "audit")
    with pytest.raises(Usage, match="has no group, so nothing of it can be done"):
        groups.group_of(bus, "audit", None)
