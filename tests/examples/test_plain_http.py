"""The programs that speak plain HTTP in other languages run, each where its language is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples.broker_process import ROOT, BrokerProcess
from tests.limits import SHORT_JVM

PROGRAM_TIMEOUT_S = 300.0  # a first `go run` compiles the standard library
SAID = "produced, durability disk\npacked two chairs 0\nanswered HELLO\n"


@pytest.mark.parametrize(
    "command",
    [["node", "parcels.mjs"], ["go", "run", "parcels.go"], ["java", "Parcels.java"]],
    ids=lambda command: command[0],
)
def test_a_program_runs(command: list[str], tmp_path: Path) -> None:
    tool = shutil.which(command[0])
    if tool is None:
        pytest.skip(f"{command[0]} is not installed")
    folder = ROOT / "examples/plain_http"
    with BrokerProcess(tmp_path / "data") as broker:
        for _ in range(2):  # what the first run acknowledged does not come again
            done = subprocess.run(
                [tool, *command[1:], broker.url],
                cwd=folder,
                capture_output=True,
                text=True,
                env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_JVM},
                timeout=PROGRAM_TIMEOUT_S,
                check=False,
            )
            assert done.stdout == SAID, done.stderr
            assert done.returncode == 0
