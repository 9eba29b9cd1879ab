"""A place where slow things are done, one after another: a thread, or in a simulation none.

The engine never waits for a disk on the broker's thread where it can be helped; it hands a job to
a worker, and the job posts its result. A simulation passes a worker of its own that runs the jobs
whenever its seed says so.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

Job = Callable[[], None]


class Worker(Protocol):
    """Runs jobs in the order of their coming."""

    def submit(self, job: Job) -> None:
        """Run `job` some time; it must not raise."""

    def stop(self) -> None:
        """Return when all jobs submitted so far have run; none may come after."""


class ThreadWorker:
    """One daemon thread, started with the first job."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = False

    def submit(self, job: Job) -> None:
        self._jobs.put(job)
        if not self._started:
            self._started = True
            self._thread.start()

    def stop(self) -> None:
        if self._started:
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
