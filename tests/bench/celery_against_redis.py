"""Tasks a second of Celery through this broker and through Redis, in turn, in one run.

    python -m tests.bench.celery_against_redis [--tasks 4000] [--rounds 2]     (make bench-celery)

One process sends tasks that do nothing, then one worker with two processes does them, each with
`acks_late` or without. Redis with `appendfsync always` stands beside durability `disk`,
`appendfsync everysec` beside `os`. Quote ratios, never absolute times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.client_against_redis import broker
from tests.bench.others import installed, redis_server

SEND = """
import time
from tests.process.celery_app import app, note
app.conf.task_acks_late = {late}
note.delay(0)
begun = time.perf_counter()
for number in range(1, {tasks}):
    note.delay(number)
print(time.perf_counter() - begun)
"""


@contextmanager
def url_of(name: str, folder: Path) -> Iterator[str]:
    """The URL for Celery of a fresh broker."""
    kind, durability = name.split()
    if kind == "redis":
        with redis_server(folder, "always" if durability == "disk" else "everysec") as server:
            yield f"redis://127.0.0.1:{server.port}"
    else:
        with broker(folder, "--durability", durability) as url:
            yield url.replace("http", "zbus", 1)


def measure(name: str, tasks: int, late: bool) -> tuple[float, float]:
    """Tasks a second that are sent, and that are done."""
    with tempfile.TemporaryDirectory() as folder, url_of(name, Path(folder) / "data") as url:
        notes = Path(folder) / "notes"
        os.mkfifo(notes)
        pipe = os.open(notes, os.O_RDWR)
        environment = {**os.environ, "BROKER_URL": url, "NOTES": str(notes)}
        program = SEND.format(tasks=tasks, late=late)
        sent = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        )
        command = [sys.executable, "-m", "celery", "-A", "tests.process.celery_app", "worker"]
        worker = subprocess.Popen(
            [*command, "-c", "2", "-l", "ERROR"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            done = os.read(pipe, 1 << 16).count(b"\n")  # the worker has started
            begun, first = time.perf_counter(), done
            while done < tasks:
                done += os.read(pipe, 1 << 16).count(b"\n")
            rate = (tasks - first) / (time.perf_counter() - begun)
        finally:
            worker.terminate()
            worker.wait(60)
            os.close(pipe)
        return (tasks - 1) / float(sent.stdout), rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    installed("redis-server")
    names = ["zbus disk", "redis disk", "zbus os", "redis os"]
    print("| broker | round | sent a second | done a second |\n|---|--:|--:|--:|")
    for number in range(chosen.rounds):
        for name in names:
            sent, done = measure(name, chosen.tasks, late=True)
            print(f"| {name} | {number + 1} | {sent:,.0f} | {done:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
