"""How long a start takes, by what is stored (`make bench`; writes 10 GB)."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(
    ("topics", "megabytes", "seconds_max"), [(1_000, 10_240, 2.0), (10_000, 100, 5.0)]
)
def test_ready_after_a_kill_and_after_a_stop(
    tmp_path: Path, topics: int, megabytes: int, seconds_max: float
) -> None:
    data_dir = tmp_path / "data"
    try:
        maker = "tests.bench.full_directory"
        arguments = [str(data_dir), str(topics), "2", str(megabytes), "kill"]
        subprocess.run([sys.executable, "-m", maker, *arguments], check=True)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            began = time.monotonic()
            with BrokerProcess(data_dir) as broker:
                seconds = time.monotonic() - began
                print(f"\n{topics} topics, {megabytes} MiB: ready in {seconds:.2f} s")
                assert seconds <= seconds_max
                broker.stop(number)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
