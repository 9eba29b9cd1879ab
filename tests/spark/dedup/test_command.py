"""`zbus spark dedup`: what it refuses before a session of Spark begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import job, no_session, require_refused
from zbus.client import connect
from zbus.spark.commands import Common


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("dedup") / "data") as process:
        url = f"127.0.0.1:{process.port}"
        with connect(url) as bus:
            bus.declare("orders")
            bus.declare("clean")
        yield url


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Common, "session", no_session)


STREAM = "--from orders --to clean --checkpoint c"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "missing source: --from TOPIC"),
        ("--from orders --colour red", "No such option '--colour'"),
        ("--from orders --by colour", "--by colour: there are id, key, tag, body_hash and header."),
        ("--from orders --by id,id", "--by id,id: a column is named twice"),
        ("--from orders --by ,", "--by : there are"),
        ("--from orders --by header.", "--by header.: there are"),
        ("--from orders --to Orders", "orders would be read and written"),
        ("--from orders --to nowhere", "there is no topic nowhere"),
        ("--from nowhere", "nowhere"),
        ("--from orders --table {tmp}", "{tmp} exists already"),
        ("--from orders --since x", "--since x: it is like"),
        ("--from orders --since 1h --until 2h", "--until is not after --since"),
        ("--from orders --once", "--once and --interval are of streams"),
        ("--from orders --window x", "--window x: it is like 30s, 5m, 24h or '10 minutes'"),
        ("--from orders --window 0s", "--window 0s: it is like"),
        ("--from orders --checkpoint c", "a stream needs --to TOPIC"),
        (f"{STREAM} --table t", "--table is of a range"),
        (f"{STREAM} --until 1h", "a stream has no --until"),
        (f"{STREAM} --once --rate 1MiB", "--once has no --rate"),
        (f"{STREAM} --interval x", "--interval x: it is like"),
    ],
)
def test_what_cannot_be(broker: str, tmp_path: Path, words: str, text: str) -> None:
    found = job("dedup", "--broker", broker, *words.format(tmp=tmp_path).split())
    require_refused(found, 2, text.format(tmp=tmp_path))


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbus.spark.source.location.ASKED_S", 0.2)
    found = job("dedup", "--broker", "127.0.0.1:1", "--from", "orders")
    require_refused(found, 1, "cannot be reached")
