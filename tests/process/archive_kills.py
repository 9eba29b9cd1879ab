"""An archive whose driver is killed again and again, and one executor, while messages come in.

    python -m tests.process.archive_kills --kills 6        (make crash-archive)

A producer puts messages, each with a body of its own. A driver archives them, run after run, with
a real cluster of two processes of Spark (`--master local` does without Spark). It is killed with
SIGKILL at random moments, and started again; once, an executor is killed under it.

At the end every offset that there is must be in the archive once, as the log has it, also
after it was compacted, and vacuum must leave no file that the table does not name.
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
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.dataset as ds

from tests.bench.measure import resident_bytes
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.spark.archive import Archive
from zbus.spark.archive.tasks import Threads
from zbus.spark.archive.upkeep import compact, vacuum
from zbus.spark.archive.verify import verify
from zbus.spark.source.location import Where

CLUSTER: Final = "local-cluster[2,1,1024]"
TOPICS: Final = ("orders", "a=b%2Fc")
BATCH: Final = 200
PAD: Final = b"." * 900
FILL: Final = 100_000
"""Of each topic before the first driver: by then the broker has the memory that it wants."""

MEMORY_GROWTH_MAX: Final = 1.3
"""Of the broker: who archives reads its log, and it keeps nothing of that."""

PAUSE_S: Final = 0.1  # of the producer


class Producer(threading.Thread):
    """It puts messages, each with a number."""

    def __init__(self, port: int, over: threading.Event) -> None:
        super().__init__(name="producer", daemon=True)
        self.port = port
        self.over = over
        self.filled = threading.Event()
        self.sent = dict.fromkeys(TOPICS, 0)
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            with connect(f"127.0.0.1:{self.port}") as bus:
                while not self.over.is_set():
                    for topic in TOPICS:
                        first = self.sent[topic]
                        bodies = [b"%d %s" % (first + each, PAD) for each in range(BATCH)]
                        bus.produce_many(topic, bodies)
                        self.sent[topic] += BATCH
                    if self.sent[TOPICS[-1]] >= FILL:
                        self.filled.set()
                        time.sleep(PAUSE_S)
        except Exception as problem:  # the campaign tells of it
            self.problem = problem


class Driver:
    """One that archives, as a process."""

    def __init__(self, campaign: Campaign, once: bool = False) -> None:
        words = [f"127.0.0.1:{campaign.broker.port}", str(campaign.root), campaign.master]
        command = [sys.executable, "-m", "tests.process.archive_driver", *words]
        command += ["once"] if once else []
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.errors = campaign.folder / "driver.log"
        with self.errors.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={
                    **os.environ,
                    **campaign.spark_home(),
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                },
            )

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if not said:
            raise AssertionError(f"the driver ended: {self.errors.read_text()[-2_000:]}")
        return said

    def descendants(self) -> dict[int, str]:
        """Processes below it, with their command lines."""
        parents: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(path.name))
        found: dict[int, str] = {}
        waiting = [self.process.pid]
        while waiting:
            for child in parents.get(waiting.pop(), []):
                waiting.append(child)
                try:
                    found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                except (FileNotFoundError, ProcessLookupError):
                    continue
        return found

    def kill_executor(self) -> bool:
        """One of them, if it has any."""
        for pid, command in self.descendants().items():
            if "CoarseGrainedExecutorBackend" in command:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def kill(self) -> None:
        """The driver dies; what it has started sees that and ends, and is waited for."""
        left = self.descendants()
        self.process.kill()
        self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        deadline = time.monotonic() + WAIT_S
        while any(_is_alive(pid, command) for pid, command in left.items()):
            assert time.monotonic() < deadline, f"still there: {left}"
            time.sleep(0.05)


def _is_alive(pid: int, command: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") == command != ""
    except (FileNotFoundError, ProcessLookupError):
        return False


class Campaign:
    """See the module."""

    def __init__(self, folder: Path, master: str, seed: int) -> None:
        self.folder = folder
        self.master = master
        self.random = Random(seed)
        self.root = folder / "archive"
        self.broker = BrokerProcess(folder / "data")

    def spark_home(self) -> dict[str, str]:
        """A cluster of one machine writes below the home of Spark, whatever it is told: this one
        is of links."""
        if self.master == "local":
            return {}
        import pyspark

        home = self.folder / "spark"
        if not home.exists():
            home.mkdir()
            for path in Path(pyspark.__file__).parent.iterdir():
                if path.name != "work":
                    home.joinpath(path.name).symlink_to(path)
        return {"SPARK_HOME": str(home)}

    def run(self, kills: int, window_s: tuple[float, float]) -> dict[str, Any]:
        """Figures. Raises AssertionError for what must not be."""
        over = threading.Event()
        with self.broker, connect(f"127.0.0.1:{self.broker.port}") as bus:
            for topic in TOPICS:
                bus.declare(topic)
            producer = Producer(self.broker.port, over)
            producer.start()
            assert producer.filled.wait(WAIT_S), producer.problem
            memory = [self._memory_mib()]
            executors = self._kill(kills, window_s)
            memory.append(self._memory_mib())
            assert memory[1] <= MEMORY_GROWTH_MAX * memory[0], f"the broker has grown: {memory} MiB"
            over.set()
            producer.join(WAIT_S)
            assert producer.problem is None, producer.problem
            self._finish()
            figures = self._figures(producer.sent)
        kinds = {"driver kills": kills, "executor kills": executors}
        return {**kinds, **figures, "broker's memory, MiB": memory}

    def _memory_mib(self) -> int:
        return resident_bytes(self.broker.process.pid) >> 20

    def _kill(self, kills: int, window_s: tuple[float, float]) -> int:
        executors = 0
        for number in range(kills):
            driver = Driver(self)
            try:
                while driver.line() != "ready":
                    pass
                if number == kills // 2 and self.master.startswith("local-cluster"):
                    time.sleep(self.random.uniform(*window_s))
                    assert driver.kill_executor()
                    executors += 1
                    for _ in range(2):  # the one that was running, and one more
                        said = json.loads(driver.line())
                        assert "messages" in said, said
                time.sleep(self.random.uniform(*window_s))
                print(f"kill {number + 1} of a driver", flush=True)
            finally:
                driver.kill()
        return executors

    def _finish(self) -> None:
        driver = Driver(self, once=True)
        try:
            assert driver.line() == "ready"
            assert "messages" in json.loads(driver.line())
        finally:
            driver.process.wait(WAIT_S)
            driver.kill()

    def _figures(self, sent: dict[str, int]) -> dict[str, Any]:
        archive = Archive(self.root)
        for topic, count in sent.items():
            wanted = ds.field("topic") == topic
            table = archive.dataset().to_table(columns=["offset", "body"], filter=wanted)
            found = table.sort_by("offset")
            assert found["offset"].to_pylist() == list(range(count)), topic
            numbers = [int(body.split()[0]) for body in found["body"].to_pylist()]
            assert numbers == list(range(count)), topic
        commits = archive.version
        with Where(broker=f"127.0.0.1:{self.broker.port}").open() as log:
            checked = verify(archive, Threads(2), [], log=log)
        assert checked.wrong == []
        assert checked.compared == checked.messages == sum(sent.values())
        orphans = vacuum(archive, 0)
        compact(archive, Threads(2), 1 << 30, [])
        vacuum(Archive(self.root), 0)
        again = verify(Archive(self.root), Threads(2), [])
        assert (again.wrong, again.messages) == ([], checked.messages)
        there = {str(path) for path in self.root.glob("lane=*/*/*")}
        assert there == {file.path for file in Archive(self.root).files()}
        return {
            "messages": checked.messages,
            "commits": commits,
            "files": checked.files,
            "orphans removed": len(orphans),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--master", default=CLUSTER)
    parser.add_argument("--seconds", type=float, nargs=2, default=(0.3, 6.0), metavar="S")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="archive-kills-"))
    print(f"seed {chosen.seed}, in {folder}", flush=True)
    began = time.monotonic()
    figures = Campaign(folder, chosen.master, chosen.seed).run(
        chosen.kills, (chosen.seconds[0], chosen.seconds[1])
    )
    figures["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(figures))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
