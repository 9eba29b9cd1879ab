"""Many seeds: python -m tests.simulation --seeds 10000. Exit code 1 if one fails."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from typing import Final, NamedTuple

from tests.simulation.cluster.world import STEPS as CLUSTER_STEPS
from tests.simulation.cluster.world import ClusterSimulation
from tests.simulation.model import Violation
from tests.simulation.semq import STEPS as SEMQ_STEPS
from tests.simulation.semq import SemqSimulation
from tests.simulation.semq_wide import WideSemqSimulation
from tests.simulation.simulation import STEPS, Simulation
from tests.simulation.workers.world import STEPS as WORKERS_STEPS
from tests.simulation.workers.world import WorkersSimulation

WORLDS: Final[dict[str, tuple[type[Simulation | SemqSimulation | WorkersSimulation], int]]] = {
    "all": (Simulation, STEPS),
    "semq": (SemqSimulation, SEMQ_STEPS),
    "semq-wide": (WideSemqSimulation, SEMQ_STEPS),
    "cluster": (ClusterSimulation, CLUSTER_STEPS),
    "workers": (WorkersSimulation, WORKERS_STEPS),
}
"""What is simulated, and how many steps there are of each seed. SEMQ has endpoints that are real,
too, and worlds of its own; all other dialects share theirs."""

_SHOWN_MAX = 3
_REPORT_EVERY_S = 10.0


class Result(NamedTuple):
    """What came of one seed."""

    seed: int
    steps: int
    virtual_ms: int
    counts: Counter[str]
    problem: str  # empty = none


def run_seed(seed: int, steps: int = 0, dialect: str = "all") -> Result:
    """Run one seed to its end; 0 steps are as many as usual."""
    kind, usual = WORLDS[dialect]
    simulation = kind(seed, steps or usual)
    problem = ""
    try:
        simulation.run()
    except Violation as violation:
        problem = str(violation)
    done = simulation.step_number
    return Result(seed, done, simulation.virtual_ms, simulation.counts, problem)


def _run_task(task: tuple[int, int, str]) -> Result:
    return run_seed(*task)


class Total:
    """Results added up, and told of."""

    def __init__(self, seeds: int) -> None:
        self.failed: list[Result] = []
        self._seeds = seeds
        self._done = self._steps = self._virtual_ms = 0
        self._counts: Counter[str] = Counter()
        self._began = self._told = time.monotonic()

    def add(self, result: Result) -> None:
        self._done += 1
        self._steps += result.steps
        self._virtual_ms += result.virtual_ms
        self._counts += result.counts
        if result.problem:
            self.failed.append(result)
            if len(self.failed) <= _SHOWN_MAX:
                print(result.problem, flush=True)
        if time.monotonic() - self._told > _REPORT_EVERY_S:
            self._told = time.monotonic()
            print(self, flush=True)

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        counts = ", ".join(f"{number} {what}" for what, number in sorted(self._counts.items()))
        failed = " ".join(str(result.seed) for result in self.failed) or "none"
        rate = self._done / seconds
        return (
            f"{self._done} of {self._seeds} seeds in {seconds:.0f} s ({rate:.1f}/s), "
            f"{self._steps} steps, {self._virtual_ms / 3_600_000:.0f} simulated hours, {counts}; "
            f"failed: {failed}"
        )


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--steps", type=int, default=0, help=f"of each seed ({STEPS})")
    parser.add_argument(
        "--dialect",
        choices=WORLDS,
        default="all",
        help=f"worlds of SEMQ's endpoints and platform ({SEMQ_STEPS} steps), or of all else",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (all cores)"
    )
    options = parser.parse_args(arguments)
    first, count = (options.first, options.seeds) if options.seed is None else (options.seed, 1)
    tasks = [(seed, options.steps, options.dialect) for seed in range(first, first + count)]
    total = Total(count)
    if options.jobs == 1 or count == 1:
        for task in tasks:
            total.add(_run_task(task))
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            for result in pool.imap_unordered(_run_task, tasks, chunksize=4):
                total.add(result)
    print(total)
    return 1 if total.failed else 0
