"""Worlds of several workers: what one process promises, three do, whatever happens to them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.limits import WAIT_S, checked
from tests.simulation.seeds import run_seed

SEEDS = [*range(10), *checked(range(10, 100))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_promised_holds(seed: int) -> None:
    assert run_seed(seed, dialect="workers").problem == ""


def test_a_seed_is_one_run() -> None:
    """Also where hashes of strings differ."""
    code = (
        "from tests.simulation.workers.world import WorkersSimulation\n"
        "for seed in range(2):\n"
        "    simulation = WorkersSimulation(seed, 60)\n"
        "    simulation.run()\n"
        "    print(simulation.digest)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=WAIT_S,
        ).stdout
        for hash_seed in ("0", "4711")
    }
    (output,) = outputs
    assert len(set(output.split())) == 2
