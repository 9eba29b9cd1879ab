"""The worker, with a broker and real signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.broker_process import BrokerProcess, Program
from zbus.client import BlockingClient, Redriven, connect


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(broker.url) as client:
        yield client


def start(url: str) -> Program:
    program = Program("examples/worker.py", url)
    program.wait_for("working on Orders/packing")
    return program


def test_two_workers_share_the_work(broker: BrokerProcess, bus: BlockingClient) -> None:
    with start(broker.url) as first, start(broker.url) as second:
        bus.produce_many("Orders", [str(number) for number in range(300)])
        bus.produce("Orders", "last")
        state = bus.query("Orders", "packing")
        while state.message_count or state.leased_count:
            state = bus.query("Orders", "packing")
        for worker in (first, second):
            worker.process.send_signal(signal.SIGINT)
        said = first.finish() + second.finish()
    done = [line.removeprefix("done: ") for line in said.splitlines() if "done: " in line]
    assert sorted(done) == sorted(["last", *(str(number) for number in range(300))])


def test_a_worker_that_starts_again_does_nothing_again(
    broker: BrokerProcess, bus: BlockingClient
) -> None:
    with start(broker.url) as worker:
        bus.produce_many("Orders", ["a chair", "a table"])
        worker.wait_for("done: a table")
        state = bus.query("Orders", "packing")
        while state.message_count or state.leased_count:
            state = bus.query("Orders", "packing")
        worker.process.send_signal(signal.SIGINT)
        worker.finish()
    with start(broker.url) as worker:
        bus.produce("Orders", "a lamp")
        worker.wait_for("done: a lamp")
        worker.process.send_signal(signal.SIGINT)
        said = worker.finish()
    assert [line for line in said.splitlines() if "done: " in line] == ["done: a lamp"]


def test_what_fails_is_tried_again_and_put_aside(
    broker: BrokerProcess, bus: BlockingClient
) -> None:
    """By the broker; and it goes back when somebody says so."""
    with start(broker.url) as worker:
        bus.produce_many("Orders", ["the impossible", "a chair"])
        for _ in range(3):
            worker.wait_for("failed: the impossible: nobody can do that")
        while not (dead := bus.read("Orders.failed")):
            pass
        assert [(one.text, one.headers["dead_attempts"]) for one in dead] == [
            ("the impossible", "3")
        ]
        assert bus.query("Orders", "packing").dead_count == 1
        assert bus.redrive("Orders.failed") == Redriven(1, 0)
        worker.wait_for("failed: the impossible: nobody can do that")
        worker.process.send_signal(signal.SIGINT)
        said = worker.finish()
    assert bus.query("Orders.failed", "Orders.failed").message_count == 0
    assert said.count("failed: ") == 4


def test_a_worker_that_is_killed(broker: BrokerProcess, bus: BlockingClient) -> None:
    bus.declare("Orders", "packing", ack=True, lease_ms=500)
    with start(broker.url) as worker:
        bus.produce("Orders", "a chair")
        worker.wait_for("done: a chair")
        worker.kill()
    with start(broker.url) as worker:
        bus.produce("Orders", "another chair")
        worker.wait_for("done: another chair")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.finish().endswith("stopped\n")
