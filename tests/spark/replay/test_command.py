"""`zbus spark replay`: what it refuses before a session of Spark begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess
from tests.spark.archive import harness
from tests.spark.brokers import job, no_session, require_refused
from tests.spark.stored import MemoryLog
from zbus.client import connect
from zbus.spark.commands import Common


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the archive of two topics."""
    place = tmp_path_factory.mktemp("replay")
    log = MemoryLog()
    log.put("orders", [b"0", b"1"])
    log.put("pay", [b"paid"])
    harness.run(place / "archive", log)
    return place


@pytest.fixture(scope="module")
def broker(place: Path) -> Iterator[str]:
    with BrokerProcess(place / "data") as process:
        url = f"127.0.0.1:{process.port}"
        with connect(url) as bus:
            for topic in ("orders", "again", "orders-replay"):
                bus.declare(topic)
        yield url


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Common, "session", no_session)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "Missing option '--from'"),
        ("--from orders", "Missing option '--to'"),
        ("--from orders --to again --colour red", "No such option '--colour'"),
        ("--from orders --to again --speed fast", "--speed fast: it is like 1x, 10x or 0.5x"),
        ("--from orders --to again --speed 10", "--speed 10: it is like"),
        ("--from orders --to again --speed 0x", "--speed 0x: it is like"),
        ("--from orders --to again --speed -1x", "--speed -1x: it is like"),
        ("--from orders --to again --speed infx", "--speed infx: it is like"),
        ("--from orders --to again --rate 0", "--rate 0: it is bytes a second"),
        ("--from orders --to again --rate 5x", "--rate 5x: it is bytes a second"),
        ("--from orders --to again --limit 0", "'--limit'"),
        ("--from orders --to again --since x", "--since x: it is like 24h (ago)"),
        ("--from orders --to again --since 1h --until 2h", "--until is not after --since"),
        ("--from orders --to again --topics a", "--topics is of an archive"),
        ("--from orders --to ORDERS", "ORDERS would be read and written: name another --to"),
        ("--from orders --to nowhere", "there is no topic nowhere"),
        ("--from nowhere --to again", "nowhere"),
        ("--from archive --to again", "the directory of an archive has a slash: ./archive"),
        ("--from ./no --to again", "no"),
        ("--from ./ --to again", "not an archive"),
        ("--from s3://bucket/x --to again", "object stores are not supported"),
        ("--from ./archive --to orders", "orders would be read and written"),
        ("--from ./archive --to {topic}", "orders, pay would be read and written"),
        ("--from ./archive --to {topic}-replay", "there is no topic pay-replay"),
        ("--from ./archive --to again --topics nobody", "nothing of the topic nobody is archived"),
    ],
)
def test_what_cannot_be(
    broker: str, place: Path, monkeypatch: pytest.MonkeyPatch, words: str, text: str
) -> None:
    monkeypatch.chdir(place)
    found = job("replay", "--broker", broker, *words.split())
    require_refused(found, 2, text)


def test_a_checkpoint_that_is_none(broker: str, place: Path, tmp_path: Path) -> None:
    """It is read before anything is."""
    (tmp_path / "zbus-replay.json").write_text("{")
    words = ("--from", f"{place}{os.sep}archive", "--to", "again", "--checkpoint", str(tmp_path))
    found = job("replay", "--broker", broker, *words)
    require_refused(found, 2, "zbus-replay.json cannot be read")
