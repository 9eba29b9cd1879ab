"""Services as programs: on either event loop, stopped while they work."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import zbus
from tests.examples.broker_process import BrokerProcess
from tests.limits import WAIT_S

PROGRAM = """
import logging, sys
import {loop}
from zbus.client import Service

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
service = Service("S")

@service.method
async def slow() -> str:
    print("working", flush=True)
    await {loop}.sleep(0.3)
    return "{loop}"

service.run(sys.argv[1])
print("stopped", flush=True)
"""


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_a_service_that_is_stopped_answers_first(tmp_path: Path, loop: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        service = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(loop=loop), broker.url],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert service.stdout is not None
            assert "serving" in service.stdout.readline()
            with zbus.connect(broker.url) as bus, bus.pipeline() as pipe:
                call = pipe.call("S", "slow", timeout_s=WAIT_S)
                pipe.flush()
                assert service.stdout.readline() == "working\n"
                service.send_signal(signal.SIGTERM)
                assert call.result() == loop
            assert service.stdout.read() == "stopped\n"
            assert service.wait(WAIT_S) == 0
        finally:
            service.kill()
            service.communicate()
