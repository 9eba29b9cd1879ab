"""A part of what `make check-workers` runs whole: tests of clients, each request at a random one of
three workers. In a process of their own, as every world that they make is another one."""

from __future__ import annotations

import subprocess
import sys

SAMPLE = (
    "tests/dialects/mqcloud/test_bad_input.py",
    "tests/dialects/mqcloud/test_holders.py",
    "tests/dialects/camellia/test_reports.py",
    "tests/dialects/camellia/test_java_client.py",
    "tests/dialects/adf/test_queues.py",
    "tests/dialects/semq/test_specification.py",
    "tests/conformance/test_trackers.py",
    "tests/conformance/test_groups_and_filters.py",
    "tests/conformance/test_staged.py",
)


def test_a_sample() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    ran = subprocess.run(
        [*command, "-p", "tests.workers.random_edges", *SAMPLE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr[-2_000:]
    assert int(ran.stdout.rpartition(" passed")[0].split()[-1]) > 300
