"""The handler of `logging`: what it sends, what it drops, and that it never waits."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import zbus.client
from tests.examples.broker_process import BrokerProcess, lasting_port
from zbus.integrations.logs import TAG_BYTES_MAX, TEXT_MAX, TopicHandler

NUMBERS = count()
Make = Callable[..., tuple[logging.Logger, TopicHandler]]


@pytest.fixture
def make(port: int) -> Iterator[Make]:
    """A logger with a handler, and a topic of its own."""
    made = []

    def handler(to: int = port, **options: Any) -> tuple[logging.Logger, TopicHandler]:
        number = next(NUMBERS)
        logger = logging.Logger(f"shop.{number}")
        made.append(TopicHandler(f"Logs{number}", f"http://127.0.0.1:{to}", **options))
        logger.addHandler(made[-1])
        return logger, made[-1]

    yield handler
    for each in made:
        each.close()


def read(port: int, handler: TopicHandler, number: int) -> list[zbus.client.Delivery]:
    handler.flush()
    with zbus.client.connect(f"http://127.0.0.1:{port}") as bus:
        while len(found := bus.read(handler.topic)) < number:
            pass
    return found


def test_records(make: Make, port: int) -> None:
    logger, handler = make()
    logger.info("sold %d chairs", 2)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logger.exception("this failed")
    first, second = read(port, handler, 2)
    assert first.tag == f"INFO.{logger.name}"
    document = first.json()
    assert document["message"] == "sold 2 chairs"
    assert (document["level"], document["logger"]) == ("INFO", logger.name)
    assert document["process"] == os.getpid()
    assert abs(document["time"] - time.time()) < 60
    assert second.json()["exception"].endswith("ZeroDivisionError: division by zero")


def test_a_formatter(make: Make, port: int) -> None:
    logger, handler = make()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.warning("late")
    assert [each.text for each in read(port, handler, 1)] == ["WARNING late"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a" * 500, "x"),
        ("a b;c*", "y"),
        ("naïve.日本", "z\r\n\x00"),
        ("a", "x" * 10 * TEXT_MAX),
        ("\x7f\r\n", "\ud800"),
    ],
)
def test_odd_records(make: Make, port: int, name: str, text: str) -> None:
    """Whatever it is, it is one record, which stops no other."""
    logger, handler = make()
    handler.handle(logging.makeLogRecord({"name": name, "msg": text, "levelname": "INFO"}))
    logger.info("the next")
    found = read(port, handler, 1)
    assert found[-1].json()["message"] == "the next"
    assert all(len(each.tag.encode()) <= TAG_BYTES_MAX for each in found)
    assert all(len(each.body) < 2 * TEXT_MAX for each in found)


def test_what_is_dropped_is_told(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While there is no broker nothing waits, and nothing is kept above the bound."""
    port = lasting_port()
    logger, handler = make(port, records_max=10)
    begun = time.monotonic()
    for number in range(2_000):
        logger.info("number %d", number)
    logger.error("and this")
    assert time.monotonic() - begun < 1
    with BrokerProcess(tmp_path / "data", port):
        kept = 2_001 - handler.dropped.total()
        assert kept <= 10 + 10  # those that wait, and a batch that was being sent
        logger.info("again") if handler.dropped.total() else None
        with zbus.client.connect(f"http://127.0.0.1:{port}") as bus:
            bus.declare(handler.topic)
            told: list[str] = []
            while not any("1 ERROR" in text for text in told):
                logger.debug("something new")
                stored = bus.read(handler.topic, count=10_000)
                told = [one.json()["message"] for one in stored if one.tag.startswith("WARNING")]
        assert "records were dropped (" in told[-1]
    logger.info("too late")
    handler.close()
    assert "records were dropped (" in capsys.readouterr().err


def test_a_fork(make: Make, port: int) -> None:
    """What waits in the parent is not sent by the child."""
    logger, handler = make()
    logger.info("parent")
    handler.flush()
    child = os.fork()
    if child == 0:
        logger.info("child")
        handler.flush()
        os._exit(0)
    os.waitpid(child, 0)
    logger.info("parent again")
    assert sorted(each.json()["message"] for each in read(port, handler, 3)) == [
        "child",
        "parent",
        "parent again",
    ]
