"""A stream that is written into a topic while its driver, and its broker, are killed.

    python -m tests.process.sink_kills --rounds 1      (make crash-sink)

Each run of the driver writes some batches, and everything of it is killed with SIGKILL: in the
middle of a task's rows, when a task has staged all, before the commit is sent, while it is on its
way, after it is answered and before Spark notes it, and at random moments. The broker is killed and
started again, too. Then a driver may finish.

At the end each message of the source must be in the target once: its number is its body.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.process.broker import BrokerProcess
from tests.process.sink_driver import PHASES, ROWS
from zbus.client import BlockingClient, connect

RANDOM: Final = "any moment"
BROKER: Final = "broker"
FINISH: Final = "nothing"
RUN_S_MAX: Final = 240


class Campaign:
    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.put = 0
        self.broker = BrokerProcess(folder / "data")
        self.port = self.broker.port
        with self.client() as bus:
            for topic in ("in", "out"):
                bus.declare(topic)

    def client(self) -> BlockingClient:
        return connect(f"127.0.0.1:{self.port}", timeout_s=120)

    def produce(self, count: int) -> None:
        with self.client() as bus:
            for first in range(self.put, self.put + count, ROWS):
                numbers = range(first, min(first + ROWS, self.put + count))
                bus.produce_many("in", [b"%d" % number for number in numbers])
        self.put += count

    def run(self, what: str) -> None:
        """A driver that is killed there. Some batches are done before."""
        self.produce(self.random.randint(2, 4) * ROWS)
        orders = self.folder / "orders"
        words = [f"127.0.0.1:{self.port}", str(self.folder / "checkpoint"), str(orders)]
        command = [sys.executable, "-m", "tests.process.sink_driver", *words]
        root = str(Path(__file__).parents[2])
        with (self.folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": root},
                cwd=root,
            )
        began = time.monotonic()
        assert driver.stdout is not None
        said = driver.stdout.readline()
        if said != b"running\n":
            raise AssertionError(f"the driver does not run: {self.folder / 'driver.log'}")
        if what in PHASES:
            time.sleep(self.random.uniform(0, 2))
            orders.write_text(what)
        elif what == RANDOM:
            time.sleep(self.random.uniform(0.5, 5))
            end_session(driver.pid)
        elif what == BROKER:
            time.sleep(self.random.uniform(0.5, 3))
            self.broker.kill()
            self.broker = BrokerProcess(self.folder / "data", port=self.port)
        driver.wait(RUN_S_MAX)
        driver.stdout.close()
        end_session(driver.pid)
        reached = what not in PHASES or not orders.exists()
        orders.unlink(missing_ok=True)
        show(
            what=what,
            reached=reached,
            exit=driver.returncode,
            seconds=round(time.monotonic() - began, 1),
            written=self.written(),
            put=self.put,
        )
        if what in (FINISH, BROKER) and driver.returncode != 0:
            raise AssertionError(f"the driver failed: {self.folder / 'driver.log'}")

    def written(self) -> int:
        return len(self.numbers())

    def numbers(self) -> list[int]:
        found: list[int] = []
        with self.client() as bus:
            while some := bus.read("out", offset=len(found), count=10_000):
                found += [int(each.body) for each in some]
        return found

    def check(self) -> None:
        counts = Counter(self.numbers())
        lost = [number for number in range(self.put) if number not in counts]
        doubled = [number for number, count in counts.items() if count > 1]
        show(messages=self.put, lost=len(lost), doubled=len(doubled))
        if lost or doubled:
            raise AssertionError(f"lost {lost[:5]}, doubled {doubled[:5]}: {self.folder}")
        with self.client() as bus:
            topics = [each for each in bus.server().topics if each.startswith("txn.")]
            show(transactions=sorted(topics))


def end_session(leader: int) -> None:
    """What is left of a driver: its JVM and workers are in its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), 9)
            except ProcessLookupError:
                continue


def show(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-sink-kills-"))
    random = Random(chosen.seed)
    campaign = Campaign(folder, random)
    try:
        for _ in range(chosen.rounds):
            order = [*PHASES, RANDOM, RANDOM, BROKER]
            random.shuffle(order)
            for what in order:
                campaign.run(what)
        campaign.run(FINISH)
        campaign.check()
    finally:
        campaign.broker.kill()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
