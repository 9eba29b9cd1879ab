"""Crash states by the thousand: `python -m tests.simulation.crash_states --states N --seed S`.

A world is a broker at work on a simulated disk, all of it from one seed. At random operations of
the disk, a few of the disks that a power cut (or a kill) may leave at that moment are recovered
and held against what the broker had promised by then; some of those crash again while they are
being recovered, or after it. Now and then the world itself goes on from such a disk.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import NamedTuple

from tests.simulation.stack import Stack, adopt, check
from zbus.storage.local.lane import OPEN_SEGMENTS_MAX
from zbus.storage.port import JournalError
from zbus.testing.disk import Disk, Operation

STATES_PER_WORLD = 250
CHANGING = frozenset(("open", "write", "truncate", "sync", "sync_directory", "rename", "remove"))


class Stop(BaseException):
    """The power is cut within an operation."""


class Broken(BaseException):
    """A promise was. No error, so that the broker at work does not take it for one of its disk."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Figures(NamedTuple):
    """What a campaign looked at."""

    worlds: int
    states: int
    again: int  # of the states: after a second crash
    kills: int
    operations: int


class WorldFailure(AssertionError):
    """A promise was broken; says how to see it again."""

    def __init__(self, seed: int, state: int, error: BaseException) -> None:
        super().__init__(
            f"seed {seed}, state {state}: {type(error).__name__}: {error}\n"
            f"again: python -m tests.simulation.crash_states --states 1 --seed {seed}"
        )
        self.seed = seed

    def __reduce__(self) -> tuple[Callable[..., WorldFailure], tuple[object, ...]]:
        return _failure, (self.seed, str(self))


def _failure(seed: int, text: str) -> WorldFailure:
    """One that comes from another process."""
    failure = WorldFailure.__new__(WorldFailure)
    AssertionError.__init__(failure, text)
    failure.seed = seed
    return failure


class World:
    """See the module. `prepare` may put a saboteur between the broker and the disk."""

    def __init__(self, seed: int, prepare: Callable[[Stack], None] | None = None) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.chance = Random(seed + 1)  # of the crashes, so that they do not change the work
        self.prepare = prepare
        self.looks: Callable[[Operation], None] = lambda operation: None
        self.states = self.again = self.kills = self.operations = 0
        full = random.random() < 0.25
        self.capacity_bytes = random.choice((24_000, 40_000, 80_000)) if full else None
        self.reserve_bytes = random.choice((0, 8_000)) if full else 0
        self.segment_bytes = random.choice((600, 2_000, 6_000, 30_000))
        self.snapshot_bytes = random.choice((200, 1_000, None))
        self.open_segments_max = random.choice((1, 2, OPEN_SEGMENTS_MAX))
        disk = Disk(self.capacity_bytes)
        self.stack = self.start(disk)

    def start(self, disk: Disk, old: Stack | None = None, at_once: bool = False) -> Stack:
        stack = Stack(
            disk,
            self.random,
            books=old.books if old else None,
            serials=old.serials if old else None,
            now_ms=old.now_ms if old else 1_800_000_000_000,
            segment_bytes=self.segment_bytes,
            snapshot_bytes=self.snapshot_bytes,
            open_segments_max=self.open_segments_max,
            reserve_bytes=self.reserve_bytes,
            at_once=at_once,
        )
        if self.prepare is not None:
            self.prepare(stack)
        return stack

    def run(self) -> None:
        """Work until enough states were looked at."""
        try:
            self.stack.disk.faults = self.operation
            for _ in range(3_000):
                if self.states >= STATES_PER_WORLD:
                    break
                self.step()
        except Broken as broken:
            raise WorldFailure(self.seed, self.states, broken.error) from broken.error
        except Exception as error:
            raise WorldFailure(self.seed, self.states, error) from error

    def step(self) -> None:
        stack = self.stack
        full = False
        try:
            stack.step()
        except JournalError:
            if self.capacity_bytes is None:
                raise
            full = True  # not even the reserve was enough: the process ends
        assert not stack.failures, stack.failures
        if full or self.chance.random() < 0.02:
            self.operations += stack.disk.operations
            power_cut = self.chance.random() < 0.5
            disk = stack.disk.crash(self.chance) if power_cut else stack.disk.kill()
            if full:
                disk.capacity_bytes = self.capacity_bytes = (self.capacity_bytes or 0) + 50_000
            self.stack = self.start(disk, stack)
            check(self.stack, self.stack.books, power_cut)
            adopt(self.stack, power_cut)
            disk.faults = self.operation

    def operation(self, operation: Operation) -> None:
        """Called before each operation of the disk at work."""
        self.looks(operation)
        if operation.name in CHANGING and self.chance.random() < 0.2:
            try:
                self.look(self.stack.disk)
            except Exception as error:
                raise Broken(error) from error

    def look(self, disk: Disk) -> None:
        for _ in range(3):
            if self.chance.random() < 0.1:
                self.kills += 1
                self.recovered(disk.kill(), False)
            else:
                self.recovered(disk.crash(self.chance), True)

    def recovered(self, disk: Disk, power_cut: bool, again: bool = True) -> None:
        """A broker comes up on this disk and is held against the books."""
        self.states += 1
        twice = self.chance.random() if again else 1.0
        if twice < 0.15:
            self.interrupt(disk, power_cut)
            return
        stack = self.start(disk, self.stack, at_once=True)
        check(stack, self.stack.books, power_cut)
        if twice < 0.25:
            self.again += 1
            self.recovered(disk.crash(self.chance), True, again=False)
        elif twice < 0.35:
            stack.journal.close()
            self.again += 1
            self.recovered(disk.crash(self.chance), power_cut, again=False)

    def interrupt(self, disk: Disk, power_cut: bool) -> None:
        """Recovery itself is cut short at some operation."""
        last = self.chance.randrange(40)

        def stop(operation: Operation) -> None:
            # A close changes nothing, and a generator that is collected late may make one.
            if operation.index >= last and operation.name != "close":
                raise Stop

        disk.faults = stop
        try:
            self.start(disk, self.stack, at_once=True)
        except Stop:
            pass
        disk.faults = None
        self.again += 1
        cut = self.chance.random() < 0.7
        next_disk = disk.crash(self.chance) if cut else disk.kill()
        self.recovered(next_disk, power_cut or cut, again=False)


def look_at(seed: int, prepare: Callable[[Stack], None] | None = None) -> Figures:
    """Run one world to its end."""
    world = World(seed, prepare)
    world.run()
    operations = world.operations + world.stack.disk.operations
    return Figures(1, world.states, world.again, world.kills, operations)


def campaign(
    states: int,
    seed: int,
    prepare: Callable[[Stack], None] | None = None,
    tell: Callable[[Figures], None] = lambda figures: None,
    jobs: int = 1,
) -> Figures:
    """Worlds from `seed` on until so many states were looked at. Raises WorldFailure."""
    figures = Figures(0, 0, 0, 0, 0)
    with ExitStack() as stack:
        look: Callable[[Iterable[int]], Iterable[Figures]]
        if jobs == 1:
            look = partial(map, partial(look_at, prepare=prepare))
        else:
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(spawn.Pool(jobs, logging.disable))
            look = partial(pool.imap_unordered, look_at)
        while figures.states < states:
            count = (states - figures.states) // STATES_PER_WORLD + 1
            for one in look(range(seed, seed + count)):
                figures = Figures(*map(sum, zip(figures, one, strict=True)))
                tell(figures)
            seed += count
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    logging.disable()
    begun = told = time.monotonic()

    def tell(figures: Figures) -> None:
        nonlocal told
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(figures)

    def say(figures: Figures) -> None:
        seconds = time.monotonic() - begun
        print(
            f"{figures.states:,} states ({figures.again:,} after a second crash, {figures.kills:,}"
            f" kills) in {figures.worlds:,} worlds, {figures.operations:,} operations,"
            f" {seconds:.1f} s, {figures.states / seconds:,.0f} states/s",
            flush=True,
        )

    try:
        say(campaign(options.states, options.seed, tell=tell, jobs=options.jobs))
    except WorldFailure as failure:
        traceback.print_exception(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
