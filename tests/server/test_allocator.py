"""Freed buffers are used again, without the system's help."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import WAIT_S

PROGRAM = """
import resource, sys
from zbus.server.process.memory import keep_freed_memory

kept = keep_freed_memory()
faults = []
for _ in range(50):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [bytes(int(sys.argv[1])) for _ in range(2)]
    del buffers
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(kept, max(faults[10:]))
"""


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 8 << 20])
def test_a_freed_buffer_is_used_again(buffer_bytes: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(buffer_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    kept, faults = done.stdout.split()
    if kept == "False":
        pytest.skip("the C library is not glibc")
    assert int(faults) < 16, "each MiB is 256 pages, and they were cleared again"
