"""Reading ahead of a start: on a cold disk a thousand logs are a thousand waits, one after another.

Some threads read what opening is about to read and throw it away; opening then finds it in the
system's cache. They decide nothing, so whatever goes wrong in them does not matter here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from zbus.journal.local import naming
from zbus.journal.local.files import Files
from zbus.journal.local.landmarks import Landmark
from zbus.journal.local.worker import Worker
from zbus.journal.port import JournalError

WORTH_TOPICS: Final = 32  # fewer are opened before threads have begun
WARM_BYTES: Final = 1 << 20


class Warming:
    """See above. Runs until its topics are read or it is stopped."""

    def __init__(
        self, files: Files, data_dir: Path, marks: Mapping[str, Landmark], workers: Sequence[Worker]
    ) -> None:
        self._files = files
        self._data_dir = data_dir
        self._marks = marks
        self._stopped = False
        self._workers = workers
        topics = sorted(files.list(data_dir)) if workers else []
        if len(topics) >= WORTH_TOPICS:
            for number, worker in enumerate(workers):
                worker.submit(partial(self._read_all, topics[number :: len(workers)]))

    def stop(self) -> None:
        """Return when all threads have ended."""
        self._stopped = True
        for worker in self._workers:
            worker.stop()

    def _read_all(self, topics: Sequence[str]) -> None:
        for topic in filter(naming.is_topic_directory, topics):
            if self._stopped:
                return
            with suppress(OSError, JournalError):
                directory = self._data_dir / topic
                for partition in self._files.list(directory):
                    self._read_lane(directory / partition)

    def _read_lane(self, directory: Path) -> None:
        names = [
            name for name in self._files.list(directory) if naming.segment_base(name) is not None
        ]
        mark = self._marks.get(naming.lane_key(directory))
        if mark is None or not names:
            return
        file = self._files.open(directory / max(names), "read")
        try:
            self._files.read(file, WARM_BYTES, mark.begin)
        finally:
            self._files.close(file)
