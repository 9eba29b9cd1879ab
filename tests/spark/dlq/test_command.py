"""`zbus spark dlq`: what it refuses before a session of Spark begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import job, no_session, require_refused
from zbus.client import connect
from zbus.spark.commands import Common
from zbus.spark.dlq.plan import Entry, Plan

PLAN = Plan(
    action="redrive",
    topic="dead",
    group="dead",
    incarnations=("1",),
    entries=(Entry(0, 0, "a", "orders", 1),),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("dlq") / "data") as process:
        url = f"127.0.0.1:{process.port}"
        with connect(url) as bus:
            bus.declare("dead", "dead", ack=True)
            for group in ("a", "b"):
                bus.declare("two", group)
            bus.declare("none", "x")
            bus.remove("none", "x")
        yield url


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Common, "session", no_session)


NEW = "--plan {tmp}/new.json"
OLD = "--plan {tmp}/plan.json"
DO = f"{OLD} --confirm {PLAN.token}"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("bury", "No such command 'bury'"),
        ("report", "missing source: --topic TOPIC"),
        ("report --topic nowhere", "nowhere"),
        ("report --topic dead --since x", "--since x: it is like 24h (ago)"),
        ("report --topic dead --since 1h --until 2h", "--until is not after --since"),
        ("export --topic dead", "Missing option '--out'"),
        ("export --topic dead --out {tmp}", "{tmp} exists already"),
        ("redrive --topic dead", "Missing option '--plan'"),
        (f"redrive {NEW}", "missing source: --topic TOPIC"),
        (f"redrive {NEW} --topic nowhere", "nowhere"),
        (f"redrive {NEW} --topic dead --group x", "dead has no group x; there are: dead"),
        (f"redrive {NEW} --topic two", "two has the groups a, b: say which one, --group NAME"),
        (f"redrive {NEW} --topic none", "none has no group, so nothing of it can be done"),
        (f"redrive {NEW} --topic dead --max 0", "'--max'"),
        (f"redrive {NEW} --topic dead --max 100001", "'--max'"),
        (f"redrive {NEW} --topic dead --redrives-max 0", "'--redrives-max'"),
        (f"redrive {NEW} --topic dead --rate 5", "--rate belongs to --confirm TOKEN"),
        (f"redrive {NEW} --topic dead --data-dir d", "dlq redrive is done in a broker"),
        (f"redrive {OLD} --topic dead", "plan.json exists already: name another one"),
        (f"redrive {NEW} --confirm x", "new.json cannot be read"),
        ("redrive --plan {tmp}/changed.json --confirm x", "was changed after it was made"),
        ("redrive --plan {tmp}/none.json --confirm x", "is no plan of zbus spark dlq"),
        (f"redrive {OLD} --confirm x", f"the token of this plan is {PLAN.token}, not x"),
        (f"drop {DO}", "is a plan to redrive, and not to drop"),
        (f"drop {NEW} --topic dead --to orders", "No such option '--to'"),
        (f"redrive {DO} --topic two", "the plan is of dead, and not of two"),
        (f"redrive {DO} --where true", "--where is said when a plan is made"),
        (f"redrive {DO} --to orders", "--to is said when a plan is made"),
        (f"redrive {DO} --max 10000", "--max is said when a plan is made"),
        (f"redrive {DO} --rate 0", "'--rate'"),
    ],
)
def test_what_cannot_be(broker: str, tmp_path: Path, words: str, text: str) -> None:
    (tmp_path / "plan.json").write_text(PLAN.text())
    (tmp_path / "changed.json").write_text(PLAN.text().replace('"a"', '"b"'))
    (tmp_path / "none.json").write_text("[]")
    name, *more = words.format(tmp=tmp_path).split()
    found = job("dlq", name, *(() if name == "bury" else ("--broker", broker)), *more)
    require_refused(found, 2, text.format(tmp=tmp_path))


def test_a_trial_of_a_plan(broker: str, tmp_path: Path) -> None:
    """It says what would be done, without Spark."""
    path = tmp_path / "plan.json"
    path.write_text(PLAN.text())
    words = ("--plan", str(path), "--confirm", PLAN.token, "--dry-run")
    found = job("dlq", "redrive", "--broker", broker, *words)
    assert found.exit_code == 0
    assert "done: False\nmessages: 1\n" in found.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]
