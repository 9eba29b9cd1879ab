"""A head office and its branches, with everything between them failing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples/semq/branches.py"


def test_orders_through_outages_of_line_machine_and_broker() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "5"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "the broker is killed" in said
    assert said[-1] == "head office: 15 orders are confirmed, 0 of them twice", done.stdout
