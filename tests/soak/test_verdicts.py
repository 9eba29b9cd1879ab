"""What the soak makes of what it measured."""

from __future__ import annotations

import math

import pytest

from tests.soak.campaign import MIB, grown
from tests.soak.figures import Figures, with_held_up


@pytest.mark.parametrize(
    ("took_ms", "waited_ms"),
    [
        ([], []),
        ([1.0, 0.5], [0.5, 1.0]),
        ([5.0], [5.0]),
        ([9.0], [9.0]),
        ([10.0], [5.0, 10.0]),
        ([1.0, 21.0], [1.0, 6.0, 11.0, 16.0, 21.0]),
    ],
)
def test_a_stall_counts_for_each_round_that_it_held_up(
    took_ms: list[float], waited_ms: list[float]
) -> None:
    assert with_held_up(took_ms, period_ms=5.0) == waited_ms


def test_percentiles() -> None:
    found = Figures.of([*[1.0] * 989, *[3.0] * 10, 4.0], period_ms=5.0)
    assert found == (1.0, 3.0, 4.0, 4.0, 1_000)
    assert math.isnan(Figures.of([], period_ms=5.0).p99)


def test_one_stall_among_many_quick_operations_shows() -> None:
    assert Figures.of([*[1.0] * 999, 1_000.0], period_ms=5.0).p99 > 900


@pytest.mark.parametrize(
    ("quiet_mib", "verdict"),
    [
        ([], ""),
        ([500], ""),  # too little for a verdict
        ([100, 130], ""),
        ([100, 131], "memory grew from 100 to 131 MiB, 1.31 times; 1.3 is allowed"),
        ([100, 100, 300, 300, 120, 120], ""),  # the middle does not count
        ([200] * 4 + [100] * 4, ""),
        ([100] * 4 + [150] * 4, "memory grew from 100 to 150 MiB, 1.50 times; 1.3 is allowed"),
    ],
)
def test_memory_of_quiet_phases(quiet_mib: list[int], verdict: str) -> None:
    looks = [(10.0, 40 * MIB), *[(20.0 + n, count * MIB) for n, count in enumerate(quiet_mib)]]
    assert grown(looks, warm_s=20.0) == verdict, "the first is of the warm-up"
