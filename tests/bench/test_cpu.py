"""Processor time of the broker for a request, beside that of a server that does nothing.

User and system together, durability `os`, connections that live; the least of ten rounds, each in
turn with the floor under the same bytes (`tests/bench/lockstep.py` says why this is steady).
`make bench-cpu` runs this and `test_turn.py`.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.bench.lockstep import LINES, Cost, costs
from tests.bench.measure import Server, floor, show
from tests.process.broker import BrokerProcess

pytestmark = pytest.mark.bench

ROUNDS = 10
RATIOS_MAX = {"put": 1.6, "pull": 1.6, "put, unique ids": 1.9, "pull, unique ids": 1.9}
ALONE_US_MAX = 60.0


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Cost]]:
    """By line: the floor's cost, and the broker's."""
    with ExitStack() as stack:
        floors = {end: stack.enter_context(floor(end)) for end in {line.end for line in LINES}}
        data_dir = tmp_path_factory.mktemp("cpu") / "data"
        process = stack.enter_context(BrokerProcess(data_dir))
        for topic in {line.topic for line in LINES}:
            assert process.get(f"/{topic}?cmd=declare&durability=os").status == 200
        broker = Server.of(process)
        found = costs(ROUNDS, LINES, lambda line: floors[line.end], lambda line: broker)
    for name, (bare, ours) in found.items():
        show(
            line=name,
            us=ours.us,
            floor_us=bare.us,
            ratio=ours.us / bare.us,
            system_us=ours.system_us,
            floor_system_us=bare.system_us,
        )
    return found


@pytest.mark.parametrize(("name", "ratio_max"), RATIOS_MAX.items())
def test_beside_the_floor(measured: dict[str, list[Cost]], name: str, ratio_max: float) -> None:
    bare, ours = measured[name]
    assert ours.us <= ratio_max * bare.us


def test_a_put_that_comes_alone(measured: dict[str, list[Cost]]) -> None:
    """A turn with a single put, from the socket to the socket."""
    assert measured["put, one a turn"][1].us <= ALONE_US_MAX
