"""Reading ahead of a start: only where opening waits for the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zbus.storage.local.read_ahead import LOOKED_AT, ReadAhead
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import Worker


@pytest.mark.parametrize(
    ("lanes", "passed_s", "worked_s", "begins"),
    [
        (LOOKED_AT, 1.0, 0.1, True),
        (LOOKED_AT + 100, 1.0, 0.1, True),
        (LOOKED_AT, 1.0, 0.9, False),  # all was in the cache
        (LOOKED_AT - 1, 1.0, 0.1, False),  # it is not worth it
    ],
)
def test_it_begins_where_opening_waits(
    lanes: int, passed_s: float, worked_s: float, begins: bool
) -> None:
    disk = Disk()
    disk.make_directory(Path("/data"))
    times = iter([(5.0, 2.0), (5.0 + passed_s, 2.0 + worked_s)])
    clocks: Callable[[], tuple[float, float]] = times.__next__
    workers = [Worker("1"), Worker("2")]
    warming = ReadAhead(disk, Path("/data"), {}, workers, clocks)
    for _ in range(lanes):
        warming.opened()
    assert [len(worker.jobs) for worker in workers] == ([1, 1] if begins else [0, 0])
    warming.stop()


def test_without_workers_no_clock_is_asked() -> None:
    warming = ReadAhead(Disk(), Path("/data"), {}, [], lambda: pytest.fail("a clock was asked"))
    for _ in range(LOOKED_AT):
        warming.opened()
