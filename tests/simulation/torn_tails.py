"""Torn tails: `python -m tests.simulation.torn_tails --cases N --seed S`.

A log whose end is cut off, zeroed, overwritten or flipped in one bit, at any byte: what is
recovered is exactly the batches before the first byte that is not what was written; or it is
refused as damage, with file and byte. Which of the two, `expected` says.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from zbus.storage.format.batch import HEADER_BYTES, iterate
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.lane import OPEN_SEGMENTS_MAX
from zbus.storage.port import JournalDamage, JournalError
from zbus.testing.disk import Disk
from zbus.testing.engines import Writer, split, stored_lanes
from zbus.testing.simulation.machine import Worker

DATA = Path("/data")
LANE = ("orders", 0)
KINDS = ("cut", "zeros", "garbage", "flip")
LARGE = {0: [9_000], 1: [20] * 300, 2: [5_000] + [30] * 100}
"""Bodies of the last three batches, by size."""


class Opened:
    """A journal on a disk; nothing but `run` runs its jobs and what they post."""

    def __init__(self, disk: Disk, open_segments_max: int = OPEN_SEGMENTS_MAX) -> None:
        self.posted: deque[Callable[[], None]] = deque()
        self.worker = Worker("jobs")
        self.failures: list[str] = []
        self.journal = LocalJournal(
            DATA,
            self.posted.append,
            self.failures.append,
            disk,
            reserve_bytes=0,
            open_segments_max=open_segments_max,
            worker=lambda name: self.worker,
        )

    def run(self) -> None:
        while self.worker.jobs or self.posted:
            self.worker.stop()
            while self.posted:
                self.posted.popleft()()
        assert not self.failures, self.failures

    def upkeep(self) -> None:
        upkeep = getattr(self.journal, "upkeep", None)
        if upkeep is not None:
            upkeep(10_000)
            self.run()


class Log(NamedTuple):
    """A log as a run left it."""

    disk: Disk
    path: Path  # its one segment
    data: bytes
    starts: list[int]  # of its batches; and the end
    durable: bool  # the journal knows that all of it is


def make(random: Random, batches: int, durable: bool, large: bool = False) -> Log:
    """A log of so many batches; the last three were synced (and the journal closed) or were not.
    They are `large`: one long message, many short ones, and both."""
    disk = Disk()
    opened = Opened(disk)
    writer = Writer()
    writer.append(opened.journal, writer.checkpoint)
    starts = [0]
    for number in range(batches):
        if number == batches - 3 and not durable:
            opened.journal.commit([LANE], True, lambda _: None)
            opened.run()
            opened.upkeep()
        bodies = [random.randbytes(random.randrange(40)) for _ in range(random.choice((1, 1, 3)))]
        sizes = LARGE.get(number - (batches - 3)) if large else None
        if sizes is not None:
            bodies = [random.randbytes(size) for size in sizes]
        starts.append(path_size(disk))
        if random.random() < 0.3 and sizes is None:
            writer.append(opened.journal, writer.state)
        else:
            writer.append(opened.journal, lambda bodies=bodies: writer.data(*bodies))  # type: ignore[misc]
    if durable:
        opened.journal.commit([LANE], True, lambda _: None)
        opened.run()
        opened.upkeep()
        opened.journal.close()
    left = disk.kill()
    path = segment(left)
    data = left.read_file(path)
    return Log(left, path, data, [*starts, len(data)], durable)


def segment(disk: Disk) -> Path:
    (path,) = [path for path in disk.list_all() if path.suffix == ".log"]
    return path


def path_size(disk: Disk) -> int:
    return len(disk.read_file(segment(disk)))


def damage(data: bytes, kind: str, position: int, random: Random) -> bytes:
    rest = len(data) - position
    if kind == "cut":
        return data[:position]
    if kind == "zeros":
        return data[:position] + bytes(rest)
    if kind == "garbage":
        return data[:position] + random.randbytes(rest)
    flipped = data[position] ^ 1 << random.randrange(8)
    return data[:position] + bytes((flipped,)) + data[position + 1 :]


def try_one(log: Log, kind: str, position: int, random: Random) -> None:
    """Damage a copy of the log, recover, look. Raises AssertionError."""
    data = damage(log.data, kind, position, random)
    changed = range(position, len(data))  # what is before is as it was
    bad = next((at for at in changed if data[at] != log.data[at]), len(data))
    whole = max(number for number, start in enumerate(log.starts) if start <= bad)
    prefix = log.data[: log.starts[whole]]
    disk = log.disk.kill()
    disk.write_file(log.path, data)
    opened = Opened(disk)
    last_batch = whole >= len(log.starts) - 2
    try:
        stored = {lane.lane: b"".join(lane.batches) for lane in stored_lanes(opened.journal)}
    except JournalDamage as error:
        if f"{log.path} at byte {log.starts[whole]}" not in str(error):
            raise
        assert log.durable or (kind == "flip" and not last_batch), "a torn tail was refused"
        return
    assert stored == {LANE: prefix}
    follows = kind == "flip" and not last_batch
    knows = hasattr(opened.journal, "upkeep")
    assert not follows or (knows and not log.durable), "damage was cut off"
    go_on(opened, disk, prefix)


def go_on(opened: Opened, disk: Disk, prefix: bytes) -> None:
    """What is left can be read, and written on, and is there after another start."""
    headers = [batch.header for batch in iterate(prefix)]
    end = max((header.end_offset for header in headers if header.records), default=0)
    answers: list[bytes | JournalError] = []
    opened.journal.read(LANE, 0, 1 << 20, answers.append)
    opened.run()
    data = b"".join(batch.raw for batch in iterate(prefix) if batch.header.records)
    assert answers == [data]
    writer = Writer(LANE, headers[-1].crc, end)
    more = writer.data(b"more")
    opened.journal.append(LANE, headers[-1].crc, split(more))
    opened.journal.commit([LANE], True, lambda _: None)
    opened.run()
    again = Opened(disk.crash(Random(0)))
    assert {lane.lane: b"".join(lane.batches) for lane in stored_lanes(again.journal)} == {
        LANE: prefix + more
    }


def every_byte(log: Log, random: Random) -> Iterator[tuple[str, int, Random]]:
    for position in range(log.starts[-4], len(log.data)):
        for kind in KINDS:
            yield kind, position, random


def some_bytes(log: Log, random: Random) -> Iterator[tuple[str, int, Random]]:
    """Where large batches begin and end, every byte; between, one now and then."""
    for start, stop in pairwise(log.starts[-4:]):
        head, end = range(start, start + HEADER_BYTES + 16), range(stop - 16, stop)
        for position in (*head, *range(head.stop, end.start, 199), *end):
            for kind in KINDS:
                yield kind, position, random


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()
    begun = time.monotonic()
    for seed in range(options.seed, options.seed + -(-options.cases // 100)):
        random = Random(seed)
        log = make(random, random.randint(4, 30), random.random() < 0.5, random.random() < 0.2)
        first = log.starts[1]
        for _ in range(100):
            kind = random.choice(KINDS)
            last_three = kind != "flip" and not log.durable
            position = random.randrange(log.starts[-4] if last_three else first, len(log.data))
            try:
                try_one(log, kind, position, random)
            except Exception:
                print(f"{kind} at byte {position}; again: --cases 1 --seed {seed}", flush=True)
                raise
    seconds = time.monotonic() - begun
    print(f"{options.cases:,} torn logs, {seconds:.1f} s, {options.cases / seconds:,.0f}/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
