"""Every byte of the last three batches, damaged in every way."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.limits import checked
from tests.simulation.torn_tails import every_byte, make, some_bytes, try_one


@pytest.mark.parametrize("durable", [False, True], ids=["not synced", "durable"])
@pytest.mark.parametrize("seed", [0, *checked([1, 2])])
def test_every_byte_of_the_last_three_batches(seed: int, durable: bool) -> None:
    random = Random(seed)
    log = make(random, 8, durable)
    cases = list(every_byte(log, random))
    assert len(cases) > 800
    for case in cases:
        try_one(log, *case)


@pytest.mark.parametrize("durable", [False, True], ids=["not synced", "durable"])
def test_large_batches(durable: bool) -> None:
    """Of more than 4 KiB, by one message and by many."""
    random = Random(1)
    log = make(random, 8, durable, large=True)
    sizes = [stop - start for start, stop in pairwise(log.starts[-4:])]
    assert min(sizes) > 4_096
    for case in some_bytes(log, random):
        try_one(log, *case)
