"""Processor time of the broker for a request, beside that of a server that does nothing.

User and system together, durability `os`, connections that live; the least of many short rounds,
each in turn with the floor under the same bytes (`tests/bench/lockstep.py` says why this is
steady). `make bench-cpu` runs this and `test_turn.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean, median
from typing import NamedTuple

import pytest

from tests.bench.lockstep import LINES, Cost, costs
from tests.bench.measure import Server, floor, show
from tests.process.broker import BrokerProcess

pytestmark = pytest.mark.bench

ROUNDS = 30
RATIOS_MAX = {
    "put": 1.6,
    "pull": 1.6,
    "put, unique ids": 1.9,
    "pull, unique ids": 1.9,
    "put, a crowd of clients": 3.0,
    "pull of that": 2.6,
}
ALONE_US_MAX = 60.0


class Measured(NamedTuple):
    """One line of both servers."""

    us: float
    floor_us: float
    ratio: float
    ratio_median: float  # of rounds side by side: where it is far from the ratio, look again
    system_us: float
    floor_system_us: float


def summed_up(bare: list[Cost], ours: list[Cost]) -> Measured:
    least, least_bare = min(ours).us, min(bare).us
    return Measured(
        least,
        least_bare,
        least / least_bare,
        median(one.us / other.us for one, other in zip(ours, bare, strict=True)),
        mean(one.system_us for one in ours),
        mean(one.system_us for one in bare),
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measured]:
    with ExitStack() as stack:
        floors = {end: stack.enter_context(floor(end)) for end in {line.end for line in LINES}}
        data_dir = tmp_path_factory.mktemp("cpu") / "data"
        process = stack.enter_context(BrokerProcess(data_dir))
        for topic in {line.topic for line in LINES}:
            assert process.get(f"/{topic}?cmd=declare&durability=os").status == 200
        broker = Server.of(process)
        taken = costs(ROUNDS, LINES, lambda line: floors[line.end], lambda line: broker)
    found = {name: summed_up(*columns) for name, columns in taken.items()}
    for name, one in found.items():
        show(line=name, **one._asdict())
    return found


@pytest.mark.parametrize(("name", "ratio_max"), RATIOS_MAX.items())
def test_beside_the_floor(measured: dict[str, Measured], name: str, ratio_max: float) -> None:
    assert measured[name].ratio <= ratio_max


def test_a_put_that_comes_alone(measured: dict[str, Measured]) -> None:
    """A turn with a single put, from the socket to the socket."""
    assert measured["put, one a turn"].us <= ALONE_US_MAX
