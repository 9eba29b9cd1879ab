"""This version against another one: the key lines of `test_speed.py`, in turn, as ratios.

    python -m tests.bench.against <commit> [--rounds 5]      (make bench-against COMMIT=...)

Both brokers run beside each other, each from its own files; the load generator is this one. A
ratio above 1 means that this version is faster. Two runs of one version against itself tell what
the machine's own noise is.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.measure import HERE, ab, show, wrk_unique_ids
from tests.bench.test_speed import load
from tests.process.broker import BrokerProcess

ROOT = HERE.parent.parent
QUICK = 3  # so many times fewer requests than `make bench`: there are many lines and two brokers

LINES: dict[str, Callable[[BrokerProcess], float]] = {
    "ab produce, os": lambda broker: ab(broker.port, "/Os?cmd=produce", 200_000 // QUICK),
    "ab consume, os": lambda broker: ab(broker.port, "/Os?cmd=consume", 200_000 // QUICK),
    "unique ids, os": lambda broker: wrk_unique_ids(broker.port, "Os", seconds=2),
    "produce, disk, 128 connections": lambda broker: load(
        broker, topic="Disk", connections=128, messages=200_000 // QUICK
    ),
    "batches of 100 KiB, disk": lambda broker: load(
        broker, topic="Disk", connections=8, messages=200_000 // QUICK, body_bytes=1024, batch=100
    ),
}


def start(data_dir: Path, checkout: Path) -> BrokerProcess:
    broker = BrokerProcess(data_dir, checkout=checkout)
    for durability in ("os", "disk"):
        broker.get(f"/{durability.title()}?cmd=declare&durability={durability}")
    return broker


def compare(here: BrokerProcess, there: BrokerProcess, rounds: int) -> None:
    for name, line in LINES.items():
        ratios, speeds = [], []
        for turn in range(rounds):
            order = (here, there) if turn % 2 else (there, here)
            speed = {broker.port: line(broker) for broker in order}
            speeds.append(speed[here.port])
            ratios.append(speed[here.port] / speed[there.port])
        show(
            line=name,
            ratio=statistics.median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            here=round(statistics.median(speeds)),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zbus-against-") as folder:
        other = Path(folder) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", other, chosen.commit], check=True)
        try:
            with (
                start(Path(folder) / "here", ROOT) as here,
                start(Path(folder) / "there", other) as there,
            ):
                compare(here, there, chosen.rounds)
        finally:
            subprocess.run([*git, "remove", "--force", other], check=True)


if __name__ == "__main__":
    main()
