"""One run of a broker without faces and loop: verbs go in, and the disk under it is simulated."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from tests.storage.damage import AtOnce
from zbus.core.persistence.replay import recover
from zbus.server.assembly import make_broker, restore
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.lane import OPEN_SEGMENTS_MAX
from zbus.storage.local.worker import Worker as AnyWorker
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import DATA_DIR, EPOCH_MS, Worker


class Desk:
    """See the module. The journal's jobs wait for somebody to run them, unless they are done
    `at_once`."""

    def __init__(
        self,
        disk: Disk,
        now_ms: int = EPOCH_MS,
        *,
        segment_bytes: int = 4096,
        snapshot_bytes: int | None = None,
        reserve_bytes: int = 0,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        at_once: bool = False,
    ) -> None:
        self.disk = disk
        self.posted: deque[Callable[[], None]] = deque()
        self.failures: list[str] = []
        self.workers: list[Worker] = []
        self.journal = LocalJournal(
            DATA_DIR,
            self.posted.append,
            self.failures.append,
            disk,
            reserve_bytes=reserve_bytes,
            open_segments_max=open_segments_max,
            worker=AtOnce if at_once else self._worker,
        )
        self.broker = make_broker(
            self.journal,
            (b"i%d" % n for n in itertools.count()),
            segment_bytes=segment_bytes,
            snapshot_bytes=snapshot_bytes,
        )
        topics, time_ms = recover(self.journal)
        self.now_ms = max(now_ms, time_ms)
        restore(self.broker, topics, self.now_ms)
        self.broker.check()

    def _worker(self, name: str) -> AnyWorker:
        worker = Worker(name)
        self.workers.append(worker)
        return worker

    def work(self) -> None:
        """All that was asked of the disk is done."""
        for worker in self.workers:
            worker.run()

    def run_posted(self) -> None:
        while self.posted:
            self.posted.popleft()()

    def turn(self, *verbs: Callable[[], None]) -> None:
        """One turn of the loop."""
        self.broker.begin(self.now_ms)
        self.run_posted()
        for verb in verbs:
            verb()
        self.broker.finish()
