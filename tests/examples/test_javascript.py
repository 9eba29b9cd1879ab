"""The worker in JavaScript, with a broker and real signals."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.examples.broker_process import BrokerProcess, Program
from zbus.client import connect

NODE = shutil.which("node") or ""
FLAGS = ("--no-warnings", "--experimental-websocket")  # Node 22 needs none

pytestmark = pytest.mark.skipif(not NODE, reason="node is not installed: `make test` installs it")


def test_the_worker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, connect(broker.url) as bus:
        arguments = (*FLAGS, "examples/javascript/worker.mjs", broker.url)
        with Program(*arguments, program=NODE) as worker:
            worker.wait_for("working on Orders/packing")
            bus.produce("Orders", json={"name": "none", "pieces": 0})
            bus.produce("Orders", json={"name": "chairs", "pieces": 2})
            worker.wait_for('packed {"name":"chairs","pieces":2}')
            worker.wait_for("attempt 3 failed: there is nothing to pack in none")
            with bus.consume("OrdersDead", timeout_ms=10_000) as dead:
                found = dead.next()
                assert found is not None
                assert found.json() == {"name": "none", "pieces": 0}
            worker.process.send_signal(signal.SIGINT)
            worker.finish()
        assert [each.json() for each in bus.read("Packed")] == [{"name": "chairs"}]
