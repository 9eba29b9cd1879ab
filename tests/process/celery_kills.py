"""Celery's workers that are killed again and again amid tasks, and now and then their broker.

    python -m tests.process.celery_kills --tasks 10000 --workers 4 --kills 40   (make crash-celery)

Every task notes its number in a file and is acknowledged late. A third has a countdown, so that the
broker delays it. Meanwhile a worker with all its processes, one process of its pool alone, or the
broker is killed with SIGKILL, and started again. In the end every number must be there; what was
done twice is counted, and nothing may be left in the queue.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

from kombu.exceptions import OperationalError

import zbus.client
from tests.examples.broker_process import ROOT, lasting_port
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, descendants, kill_all
from tests.process.kill_ledger import Violation

LEASE_S: Final = 2.0
TASK_S: Final = 0.002
APP: Final = "tests.process.celery_app"


class Worker:
    """A worker of Celery with two processes in its pool, and a log of its own."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        words = f"-A {APP} worker -n {name}@%h -c 2 -l WARNING".split()
        with (folder / f"{name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", *words],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=environment,
            )

    def kill(self) -> None:
        """All of it, at about the same moment."""
        others = descendants(self.process.pid)
        self.process.kill()
        self.process.wait(WAIT_S)
        kill_all(others)

    def kill_child(self, random: Random) -> None:
        """One process of its pool; the worker makes another."""
        pool = descendants(self.process.pid)
        if pool:
            os.kill(random.choice(pool), signal.SIGKILL)

    def stop(self) -> None:
        """As a deployment does."""
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Violation("a worker does not end") from None


class Campaign:
    """See the module."""

    def __init__(self, folder: Path, seed: int, tasks: int, workers: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.tasks = tasks
        self.workers = workers
        self.kills: Counter[str] = Counter()
        self.sent = 0
        self.port = lasting_port()
        self.environment = {
            **os.environ,
            "BROKER_URL": f"zbus://127.0.0.1:{self.port}",
            "NOTES": str(folder / "notes"),
            "LEASE_S": str(LEASE_S),
        }

    def run(self, kills: int, every_s: tuple[float, float]) -> dict[str, int]:
        """Returns the figures. Raises Violation if a task was not done, or is left."""
        broker = BrokerProcess(self.folder / "data", port=self.port)
        workers = [self._worker(number) for number in range(self.workers)]
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        try:
            while self.kills.total() < kills:
                time.sleep(self.random.uniform(*every_s))
                number = self.random.randrange(self.workers)
                what = self.random.choice(["worker", "worker", "worker", "process", "broker"])
                self.kills[what] += 1
                if what == "broker":
                    broker.kill()
                    broker = BrokerProcess(self.folder / "data", port=self.port)
                elif what == "process":
                    workers[number].kill_child(self.random)
                else:
                    workers[number].kill()
                self._revive(workers)
            sender.join(WAIT_S * 10)
            self._wait_for_all(workers)
            for worker in workers:
                worker.stop()
            return self._figures()
        finally:
            for worker in workers:
                if worker.process.poll() is None:
                    worker.kill()
            broker.kill()

    def _revive(self, workers: list[Worker]) -> None:
        """As whoever supervises them does. A worker whose pool is killed at its start ends, too."""
        for number, worker in enumerate(workers):
            if worker.process.poll() is not None:
                workers[number] = self._worker(number)

    def _worker(self, number: int) -> Worker:
        return Worker(f"worker{number}", self.folder, self.environment)

    def _send(self) -> None:
        from tests.process.celery_app import app, note

        app.conf.broker_url = self.environment["BROKER_URL"]
        for number in range(self.tasks):
            later = self.random.uniform(0.1, 3.0) if number % 3 == 0 else None
            while True:
                try:
                    note.apply_async((number, TASK_S), countdown=later)
                except (OSError, OperationalError):
                    time.sleep(0.1)  # the broker is away for longer than Celery tries
                else:
                    break
            self.sent += 1

    def done(self) -> Counter[int]:
        """How often each task was."""
        notes = self.folder / "notes"
        return Counter(map(int, notes.read_text().split())) if notes.exists() else Counter()

    def _wait_for_all(self, workers: list[Worker]) -> None:
        """As long as there is something new within some leases."""
        with zbus.client.connect(f"http://127.0.0.1:{self.port}") as bus:
            count, deadline = -1, 0.0
            while True:
                self._revive(workers)
                group = bus.query("celery", "celery")
                now = self.done()
                if len(now) == self.tasks and not group.message_count + group.leased_count:
                    return
                if now.total() != count:
                    count, deadline = now.total(), time.monotonic() + 5 * LEASE_S + WAIT_S / 2
                if time.monotonic() > deadline:
                    missing = sorted(set(range(self.tasks)) - set(now))
                    raise Violation(
                        f"{len(missing)} of {self.sent} tasks were not done: {missing[:5]}; left:"
                        f" {group.message_count}, leased {group.leased_count}"
                    )
                time.sleep(0.1)

    def _figures(self) -> dict[str, int]:
        done = self.done()
        again = done.total() - len(done)
        kills = {f"kills of a {what}": count for what, count in sorted(self.kills.items())}
        return {"tasks": self.sent, "done": len(done), "done again": again, **kills}


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 workers of Celery amid their tasks")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-celery-"))
    print(f"seed {chosen.seed}, {chosen.tasks} tasks in {folder}", flush=True)
    campaign = Campaign(folder, chosen.seed, chosen.tasks, chosen.workers)
    begun_s = time.monotonic()
    try:
        figures = campaign.run(chosen.kills, (0.5, 2.0))
    except BaseException as problem:
        print(f"after {campaign.kills}: {problem}", file=sys.stderr)
        print(f"logs and data are kept: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(json.dumps({**figures, "seconds": round(time.monotonic() - begun_s)}))


if __name__ == "__main__":
    main()
