"""Freed buffers are used again, without the system's help."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import WAIT_S

PROGRAM = """
import resource
from zbus.server.process.memory import keep_freed_memory

kept = keep_freed_memory()
faults = []
for _ in range(50):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [bytes(512 << 10) for _ in range(4)]
    del buffers
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(kept, max(faults[10:]))
"""


def test_a_freed_buffer_is_used_again() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    kept, faults = done.stdout.split()
    if kept == "False":
        pytest.skip("the C library is not glibc")
    assert int(faults) < 16, "2 MiB are 512 pages, and they were cleared again"
