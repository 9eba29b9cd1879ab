"""One failure is one failed test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.limits import WAIT_S

TESTS = """
import gc
import socket

def test_leaves_a_socket():
    left = socket.socket()
    raise AssertionError

def test_begins(): pass

def test_collects():
    gc.collect()
"""


def test_what_a_failed_test_left_open_is_not_the_failure_of_a_later_one(tmp_path: Path) -> None:
    file = tmp_path / "test_left.py"
    file.write_text(TESTS)
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    command += ["-c", str(root / "pyproject.toml"), str(file)]
    run = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert "1 failed, 2 passed" in run.stdout, run.stdout
