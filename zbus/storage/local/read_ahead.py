"""Reading ahead of a start: on a cold disk a thousand logs are a thousand waits, one after another.

Some threads read what opening is about to read and throw it away; opening then finds it in the
system's cache. They decide nothing, so whatever goes wrong in them does not matter here. They begin
when opening was seen to wait: if all is in the cache already, they would only be in its way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened
from zbus.storage.local.high_water_marks import HighWaterMark
from zbus.storage.local.worker import Worker
from zbus.storage.port import JournalError

LOOKED_AT: Final = 32  # lanes, before it is decided
WARM_BYTES: Final = 1 << 20


class ReadAhead:
    """See above. Runs until its topics are read or it is stopped. `clocks` tell what passed, and
    how much of it this thread has worked, in seconds."""

    def __init__(
        self,
        files: Files,
        data_dir: Path,
        marks: Mapping[str, HighWaterMark],
        workers: Sequence[Worker],
        clocks: Callable[[], tuple[float, float]] = lambda: (time.monotonic(), time.thread_time()),
    ) -> None:
        self._files = files
        self._data_dir = data_dir
        self._marks = marks
        self._stopped = False
        self._workers = workers
        self._clocks = clocks
        self._opened = 0
        self._begun = clocks() if workers else (0.0, 0.0)

    def opened(self) -> None:
        """Another lane is open."""
        self._opened += 1
        if self._opened != LOOKED_AT or not self._workers:
            return
        (passed, worked), (passed_before, worked_before) = self._clocks(), self._begun
        if worked - worked_before > (passed - passed_before) / 2:
            return
        marks = sorted(self._marks.values(), key=lambda mark: mark.lane)  # as opening goes
        for number, worker in enumerate(self._workers):
            worker.submit(partial(self._read_all, marks[number :: len(self._workers)]))

    def stop(self) -> None:
        """Return when all threads have ended."""
        self._stopped = True
        for worker in self._workers:
            worker.stop()

    def _read_all(self, marks: Sequence[HighWaterMark]) -> None:
        for mark in marks:
            if self._stopped:
                return
            # To open it by its name reads the directories above, too.
            path = self._data_dir / mark.lane / naming.segment_name(mark.base)
            with suppress(OSError, JournalError), opened(self._files, path, "read") as file:
                self._files.read(file, WARM_BYTES, mark.begin)
