"""`zbus spark etl`: what it refuses before a session of Spark begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.brokers import job, no_session, require_refused
from zbus.client import connect
from zbus.spark.commands import Common

FILE = """
from = "flights"
sql = "SELECT * FROM input"
to = "late"
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("etl") / "data") as process:
        url = f"127.0.0.1:{process.port}"
        with connect(url) as bus:
            bus.declare("flights")
            bus.declare("late")
        yield url


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Common, "session", no_session)


GOOD = ("--from", "flights", "--sql", "SELECT * FROM input", "--to", "late")
STREAM = "--checkpoint {tmp}/c"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--colour red", "No such option '--colour'"),
        ("{tmp}/no.toml", "no.toml cannot be read"),
        ("{tmp}/colour.toml", "there is no option 'colour'"),
        ("{tmp}/damaged.toml", "damaged.toml is not TOML"),
        ("--route", "--to TOPIC, --route or --files DIR"),
        ("--parse avro", "'avro' is not one of 'json', 'csv', 'text'"),
        ("--parse json", "--parse json needs --schema"),
        ("--schema a", "--schema is for --parse json or csv"),
        ("--bad-rows late", "--to and --bad-rows are the same"),
        ("--bad-rows bad", "--bad-rows is for rows that cannot be parsed: add --parse"),
        ("--parse text --bad-rows bad", "there is no topic bad: make it, zbus declare bad"),
        ("--from LATE", "LATE would be read and written"),
        ("--from nowhere", "nowhere"),
        ("--transform nothing", "--transform nothing: it is like package.module:function"),
        ("--mode complete", "'complete' is not one of 'append', 'update'"),
        ("--mode update", "--mode is of streams: add --checkpoint DIR"),
        ("--once", "--once and --interval are of streams: add --checkpoint DIR"),
        ("--interval 5s", "--once and --interval are of streams: add --checkpoint DIR"),
        ("--rate 1MiB", "--rate and --batch-bytes are of streams: add --checkpoint DIR"),
        (f"{STREAM} --until 1h", "a stream has no --until"),
        (f"{STREAM} --interval soon", "--interval soon: it is like 30s, 5m, 24h or '10 minutes'"),
        (f"{STREAM} --interval 0s", "--interval 0s: it is like"),
        (f"{STREAM} --once --interval 5s", "--once and --interval contradict each other"),
        (f"{STREAM} --once --rate 5MiB", "--once has no --rate: say --batch-bytes"),
        (f"{STREAM} --rate much", "--rate much: it is bytes a second, like 20MiB/s"),
        (f"{STREAM} --rate 0", "--rate 0: it is bytes a second"),
        (f"{STREAM} --batch-bytes -1", "--batch-bytes -1: it is a size, like 256MiB"),
        (f"{STREAM} --rate 1MiB --batch-bytes 1MiB", "contradict each other"),
        (f"{STREAM} --watermark late", "--watermark late: it is like 30s"),
        ("--event-time value.at", "--event-time needs --watermark"),
        ("--since yesterday", "--since yesterday: it is like 24h (ago), 2026-11-23T12:00"),
        ("--since 1h --until 2h", "--until is not after --since"),
        ("--token-file {tmp}/no", "no cannot be read"),
        ("--data-dir {tmp}/no", "no"),
        ("--broker 127.0.0.1:x", "broker: "),
    ],
)
def test_what_cannot_be(broker: str, tmp_path: Path, words: str, text: str) -> None:
    (tmp_path / "colour.toml").write_text("colour = 'red'")
    (tmp_path / "damaged.toml").write_text("to =")
    found = job("etl", "--broker", broker, *GOOD, *words.format(tmp=tmp_path).split())
    require_refused(found, 2, text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "missing source: --from TOPIC"),
        ("--from flights --to late", "missing query: --sql QUERY or --transform"),
        ("--from flights --sql x", "missing target: --to TOPIC, --route or --files DIR"),
        ("--from flights --sql x --to nowhere", "there is no topic nowhere"),
        ("--from flights --sql x --files d --checkpoint c --mode update", "--files has no --mode"),
        ("{tmp}/job.toml --from nowhere", "nowhere"),
        ("{tmp}/job.toml --to nowhere", "there is no topic nowhere"),
    ],
)
def test_what_is_missing(broker: str, tmp_path: Path, words: str, text: str) -> None:
    (tmp_path / "job.toml").write_text(FILE)
    found = job("etl", "--broker", broker, *words.format(tmp=tmp_path).split())
    require_refused(found, 2, text)


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbus.spark.source.location.ASKED_S", 0.2)
    found = job("etl", "--broker", "127.0.0.1:1", *GOOD)
    require_refused(found, 1, "the broker 127.0.0.1:1 cannot be reached")
