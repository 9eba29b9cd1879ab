"""What the process does with memory that is not used any more: objects in cycles, freed buffers.

Connections, requests and messages leave no cycles (tests see to it), so a broker makes little. But
a full collection looks at every object there is and stops everything meanwhile: with 10,000 topics
for a tenth of a second and more. So what was there at the start is set aside, full collections
come rarely, and what a slow one has found to be in use is set aside, too: none of it is looked at
again until memory is short, or many partitions were removed that may be among it.

A full collection also empties Python's lists of small objects to be used again. After a crowd of
connections these lie all over the memory that it used, and keep that from going back to the system:
so one is made when much was freed. So do messages that were put and cached meanwhile: a megabyte of
them kept 24 of the 30 that 100,000 waiting pulls had left. They can be read again, so they go, too.

By itself glibc gives a buffer of 128 KiB or more back to the system at once, and the end of the
heap likewise. A broker asks for as much again a moment later, and the system has to clear each page
anew: for batches of 100 KiB that was a third of the whole work.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 60.0
SLOW_S: Final = 0.02
SHARE: Final = 1_000
"""Full collections take one part in that many of the time,"""

TIDY_SHARE: Final = 100
"""and no more than one in that many while there is something to be freed."""

REMOVED_MAX: Final = 256
"""Removed partitions that wait for a collection: that many are no more than a few megabytes."""

FREED_MIN: Final = 100_000
"""Blocks of memory, a few megabytes and more, that make a crowd,"""

FREED_SHARE: Final = 0.25
"""if they were this share of all."""

BLOCK_BYTES: Final = 80
"""What one of them has, about."""

QUIET_LOOKS: Final = 3
"""Then all of a crowd has gone."""

PRESSED_EVERY_S: Final = 5.0
"""How often to collect while memory is short."""

THRESHOLDS: Final = (5_000, 5, 400)
"""New objects more than freed ones before the young are collected: less than a millisecond. The
older are every 5 times of that, a few milliseconds, and all others nearly never by themselves."""

log = logging.getLogger("zbus")


class GcControl:
    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        """`spent` tells processor time: that others had the processor makes no collection slow.
        `blocks` are those of memory that Python uses."""
        self._clock = clock
        self._spent = spent
        self._blocks = blocks
        self._most = 0  # blocks, since it was done for those that were freed
        self._left = 0  # blocks, when it was done last
        self._freed = 0  # blocks, of a crowd of which others may be leaving still
        self._before = 0  # blocks, at the last look
        self._quiet = 0  # looks in a row that found hardly any freed
        self._next_s = clock() + EVERY_S
        self._pressed_s = 0.0
        self._pressed = 0  # collections since memory became short
        self._tidy_s = 0.0  # when it may do so again
        self._removed = 0  # partitions, ever
        self._tidied = 0  # of those, when it was done for them last
        self._looked = 0  # of those, when it looked at everything last

    def settle(self) -> None:
        """The broker has opened: what is there stays. Imports have left less than a megabyte in
        cycles, and to look for that is a tenth of a start."""
        gc.enable()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)

    def look(self) -> int:
        """To be called about once a second: collect if it is time. Returns how many bytes a crowd
        left free, about, as soon as all of it has gone; else 0."""
        if self._clock() >= self._next_s:
            self._pressed = 0
            if self._removed >= self._looked + REMOVED_MAX:
                self._unfreeze()
            pause_s = self._collect()
            if pause_s > SLOW_S:
                gc.freeze()
            self._next_s = self._clock() + max(EVERY_S, pause_s * SHARE)
        blocks = self._blocks()
        self._look_at_freed(blocks)
        before, self._before = self._before, blocks
        self._quiet = 0 if before - blocks > FREED_MIN // 10 else self._quiet + 1
        if self._quiet < QUIET_LOOKS:
            return 0
        freed, self._freed = self._freed, 0
        return freed * BLOCK_BYTES

    def _look_at_freed(self, blocks: int) -> None:
        """Where there is half of what there was when it looked last, it may do so at once: that is
        half the work, and cannot come often."""
        self._most = max(self._most, blocks)
        freed = self._most - blocks
        if freed >= FREED_MIN and freed >= self._most * FREED_SHARE:
            if blocks <= self._left // 2:
                self._tidy_s = 0.0
            if self.tidy():
                self._most = blocks
                self._freed += freed

    def removed(self, count: int) -> None:
        """This many partitions were removed, ever. Each leaves some 40 objects in cycles."""
        self._removed = count
        if count >= self._tidied + REMOVED_MAX and self.tidy():
            self._tidied = count

    def tidy(self) -> bool:
        """A crowd has gone: collect, unless it did a moment ago, for what that took. Says whether
        it did."""
        if self._clock() < self._tidy_s:
            return False
        self._collect()
        return True

    def press(self) -> None:
        """Memory is short: collect now, and if that did not help, everything."""
        now_s = self._clock()
        if now_s < self._pressed_s:
            return
        if self._pressed == 1:
            self._unfreeze()
        self._pressed += 1
        pause_s = self._collect()
        if self._pressed == 2:
            gc.freeze()
        self._pressed_s = self._clock() + max(PRESSED_EVERY_S, pause_s * TIDY_SHARE)

    def _unfreeze(self) -> None:
        gc.unfreeze()
        self._looked = self._removed

    def _collect(self) -> float:
        begun_s = self._spent()
        found = gc.collect()
        pause_s = self._spent() - begun_s
        self._tidy_s = self._clock() + pause_s * TIDY_SHARE
        self._left = self._blocks()
        log.debug("collected", extra={"objects": found, "ms": round(pause_s * 1000)})
        return pause_s


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h

MAPPED_BYTES_MIN: Final = 32 << 20
"""Buffers of that much are mapped by themselves, and given back at once: more than the largest
message has by default, and as much as glibc allows."""

KEPT_BYTES_MAX: Final = 32 << 20
"""This much may lie unused at the end of the heap."""


def keep_freed_memory() -> bool:
    """Have the allocator keep what is freed, within these bounds. False if it is not glibc's: then
    nothing is changed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    )
