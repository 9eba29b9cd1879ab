"""The examples with Celery and taskiq: their own workers, and a broker. And Celery's commands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from tests.examples.broker_process import BrokerProcess, Program
from tests.limits import checked


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        # Celery's own way to say where the broker is, without a change of the program.
        monkeypatch.setenv("CELERY_BROKER_URL", process.url.replace("http", "zbus", 1))
        yield process


def celery(*words: str) -> Program:
    return Program("-m", "celery", "--app", "examples.celery_tasks", *words)


@pytest.mark.parametrize("pool", ["prefork", *checked(["solo", "threads"])])
def test_celery(broker: BrokerProcess, pool: str) -> None:
    with celery("worker", "--pool", pool, "-c", "2", "-l", "INFO", "-E") as worker:
        worker.wait_for("ready")
        with Program("-m", "examples.celery_tasks") as program:
            said = program.finish()
        assert said.splitlines()[-4:] == [
            "2 + 3 = 5",
            "in a second: 42",
            "after two failures: DONE",
            "many: 380",
        ]
        with celery("inspect", "ping") as ping:
            assert "1 node online" in ping.finish()
        worker.process.send_signal(signal.SIGTERM)
        worker.finish()


def test_revoke_and_purge(broker: BrokerProcess) -> None:
    url = broker.url.replace("http", "zbus", 1)
    app = Celery(broker=url, set_as_current=False)
    with celery("worker", "-c", "1", "-l", "INFO") as worker:
        worker.wait_for("ready")
        app.control.revoke("unwanted")
        worker.wait_for("flagged as revoked: unwanted")
        app.send_task("examples.celery_tasks.add", (1, 2), task_id="unwanted", countdown=0.2)
        worker.wait_for("Discarding revoked task: .*unwanted")
        with celery("control", "shutdown") as control:
            control.wait_for("No nodes replied")  # it does not answer this
        worker.finish()
    app.send_task("examples.celery_tasks.add", (1, 2))
    app.close()
    with celery("purge", "-f") as purge:
        assert "Purged 1 message from 1 known task queue" in purge.finish()


def test_taskiq(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZBUS", broker.url)
    with Program("-m", "taskiq", "worker", "examples.taskiq_tasks:broker", "-w", "2") as worker:
        with Program("examples/taskiq_tasks.py") as program:
            program.finish()
        worker.wait_for(r"2 \+ 3 = 5")
        worker.wait_for(r"20 \+ 22 = 42")
        worker.process.send_signal(signal.SIGTERM)
        worker.finish()
