"""Worlds of a cluster: what one server promises, several machines do, whatever happens to them."""

from __future__ import annotations

import pytest

from tests.limits import checked
from tests.simulation.cluster.server import START_MS
from tests.simulation.cluster.world import ClusterSimulation
from tests.simulation.seeds import run_seed

SEEDS = [*range(15), *checked(range(15, 200))]
STEPS = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_promised_holds(seed: int) -> None:
    assert run_seed(seed, STEPS, "cluster").problem == ""


def test_a_seed_is_one_run() -> None:
    runs = [ClusterSimulation(3, STEPS) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].digest == runs[1].digest


def test_all_processes_may_be_gone_for_a_moment() -> None:
    """Two machines have no power, and those of the third begin again after they were killed."""
    world = ClusterSimulation(0, 1)
    world.begin()
    *dead, last = world.server.machines.values()
    for machine in dead:
        machine.die()
    while world.server.nodes:
        world._kill()
    world._kill()
    world._pause()
    assert last.alive
    world._pass(START_MS)
    assert world.server.nodes == last.members != []
