"""A real cluster of Spark, a master and two workers, of which parts are killed in the middle.

    python -m tests.process.cluster_kills --messages 100000        (make crash-cluster)

`examples/spark/cluster.sh` starts the cluster. Then, each with what is killed in the middle:

- a topic is read as a table: an executor. All messages are read, each once;
- it is archived: drivers, and the broker, which is started again. Each offset is there once, as
  `archive verify --live` sees it;
- it is written as a stream into another topic: an executor, a driver, the broker. Each message is
  in it once.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

import pyarrow.dataset as ds

from tests.limits import WAIT_S
from tests.process.archive_kills import Driver as Archiver
from tests.process.broker import BrokerProcess
from tests.process.sink_kills import end_session, show
from zbus.client import connect
from zbus.spark.archive import Archive
from zbus.spark.source.location import Where

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "examples" / "spark" / "cluster.sh"
PAD: Final = b"." * 900
PRODUCED: Final = 1_000  # messages of a request
RUN_S_MAX: Final = 600.0
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


def environment() -> dict[str, str]:
    """Of the cluster and its drivers: this program, on this machine alone."""
    return {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Cluster:
    """What `cluster.sh` starts. It is in a session of its own, with its executors."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "cluster.log").open("ab")
        self.process = subprocess.Popen(
            [str(SCRIPT)], stderr=subprocess.PIPE, stdout=self._log, env=environment(),
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        said = self.process.stderr.readline().decode()
        if " run: spark://" not in said:
            raise AssertionError(f"the cluster has not started: {said}")
        self.master = said.rsplit(" ", 1)[1].strip()

    def executors(self) -> list[int]:
        """Their process ids."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(entry.name)) == self.process.pid:
                    command = (entry / "cmdline").read_bytes()
                    found += [int(entry.name)] * (EXECUTOR.encode() in command)
            except (ProcessLookupError, FileNotFoundError):
                continue
        return found

    def kill_executor(self) -> int:
        deadline = time.monotonic() + WAIT_S
        while not (there := self.executors()):
            assert time.monotonic() < deadline, "there is no executor"
            time.sleep(0.1)
        os.kill(there[0], signal.SIGKILL)
        return there[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        finally:
            end_session(self.process.pid)
            assert self.process.stderr is not None
            self.process.stderr.close()
            self._log.close()


class Driver:
    """A `cluster_driver`, with all that it has started."""

    def __init__(self, campaign: Campaign, *words: str) -> None:
        with (campaign.folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.process.cluster_driver", *words],
                stdout=subprocess.PIPE, stderr=log, start_new_session=True, bufsize=0, cwd=ROOT,
                env={**environment(), "SPARK_MASTER": campaign.master},
            )  # fmt: skip
        assert self.line() == "running", f"the driver does not run: {campaign.folder}/driver.log"

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], RUN_S_MAX)[0], "it says nothing"
        return self.process.stdout.readline().decode().strip()

    def is_busy(self) -> bool:
        """It has not said how it has ended."""
        assert self.process.stdout is not None
        return not select.select([self.process.stdout], [], [], 0)[0]

    def end(self) -> None:
        end_session(self.process.pid)
        self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Campaign:
    """See the module."""

    def __init__(self, folder: Path, master: str, cluster: Cluster, seed: int) -> None:
        self.folder = folder
        self.master = master
        self.cluster = cluster
        self.root = folder / "archive"
        self.random = Random(seed)
        self.broker = BrokerProcess(folder / "data")
        self.address = f"127.0.0.1:{self.broker.port}"

    def spark_home(self) -> dict[str, str]:
        """For `archive_kills.Driver`."""
        return {"SPARK_LOCAL_IP": "127.0.0.1"}

    def fill(self, count: int) -> None:
        with connect(self.address) as bus:
            bus.declare("in")
            bus.declare("out")
            for first in range(0, count, PRODUCED):
                numbers = range(first, min(count, first + PRODUCED))
                bus.produce_many("in", [b"%d %s" % (number, PAD) for number in numbers])

    def restart_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.random.uniform(0.2, 2))
        self.broker = BrokerProcess(self.folder / "data", port=self.broker.port)

    @contextmanager
    def driver(self, *words: str) -> Iterator[Driver]:
        driver = Driver(self, *words)
        try:
            yield driver
        finally:
            driver.end()

    def _wait_for_more(self, done: Callable[[], int]) -> None:
        """Something more is done, and the next thing is under way."""
        before, deadline = done(), time.monotonic() + RUN_S_MAX
        while done() == before:
            assert time.monotonic() < deadline, "nothing is done"
            time.sleep(0.1)
        time.sleep(self.random.uniform(0, 1))

    # -- a read -------------------------------------------------------------------------------

    def read(self, count: int) -> None:
        began = time.monotonic()
        with self.driver("read", self.address) as driver:
            time.sleep(self.random.uniform(2, 4))
            killed = self.cluster.kill_executor()
            assert driver.is_busy(), "it was over before the kill"
            said = json.loads(driver.line())
        assert killed not in self.cluster.executors()
        show(what="read, an executor was killed", **said, **_since(began))
        assert said == {"rows": count, "exact": True, "ids": count}, said

    # -- an archive ---------------------------------------------------------------------------

    def archive(self, count: int, kills: int) -> None:
        began = time.monotonic()
        for _ in range(kills):
            driver = Archiver(self, once=True)  # type: ignore[arg-type]  # what it asks for is here
            try:
                assert driver.line() == "ready"
                self._wait_for_more(self._archived)
                ended = driver.process.poll() is not None
            finally:
                driver.kill()
            show(what="archive, its driver was killed", too_late=ended, archived=self._archived())
        driver = Archiver(self)  # type: ignore[arg-type]  # see above
        try:
            assert driver.line() == "ready"
            time.sleep(self.random.uniform(0.1, 0.6))
            self.restart_broker()
            before = self._archived()
            assert before < count, "it was over before the kill: take more messages"
            while self._archived() < count:
                said = json.loads(driver.line())
                assert "messages" in said or said["code"] == 1, said  # a broker that is away
        finally:
            driver.kill()
        words = ["archive", "verify", str(self.root), "--live", "--broker", self.address, "--json"]
        checked = subprocess.run(
            [sys.executable, "-m", "zbus.spark", *words],
            env=environment(), stdout=subprocess.PIPE, check=True, timeout=RUN_S_MAX,
        )  # fmt: skip
        verified = json.loads(checked.stdout)
        show(
            what="archive, the broker was killed and started again",
            archived_before=before,
            **{name: verified[name] for name in ("messages", "compared", "files", "wrong")},
            **_since(began),
        )
        assert verified["messages"] == verified["compared"] == count, verified
        archive = Archive(self.root)
        table = archive.dataset().to_table(columns=["offset"], filter=ds.field("topic") == "in")
        assert table.sort_by("offset")["offset"].to_pylist() == list(range(count))

    def _archived(self) -> int:
        if not (self.root / "_delta_log").exists():
            return 0
        return sum(lane.end for lane in Archive(self.root).lanes(["in"]))

    # -- a stream -----------------------------------------------------------------------------

    def stream(self, count: int) -> None:
        began = time.monotonic()
        words = ("stream", self.address, str(self.folder / "checkpoint"))
        for what in ("a driver", "an executor", "the broker"):
            with self.driver(*words) as driver:
                self._wait_for_more(self._written)
                busy = driver.is_busy()
                if what == "an executor":
                    self.cluster.kill_executor()
                elif what == "the broker":
                    self.restart_broker()
                if what != "a driver":
                    self._wait_for_more(self._written)
            show(what=f"stream, {what} was killed", in_the_middle=busy, written=self._written())
        with self.driver(*words) as driver:
            said = driver.line()
            assert said, f"the driver failed: {self.folder / 'driver.log'}"
        counts = Counter(self._numbers())
        lost = [number for number in range(count) if number not in counts]
        doubled = [number for number, times in counts.items() if times > 1]
        figures = {"messages": sum(counts.values()), "lost": len(lost), "doubled": len(doubled)}
        show(what="stream", **figures, **_since(began))
        assert (sum(counts.values()), lost, doubled) == (count, [], []), (lost[:5], doubled[:5])

    def _numbers(self) -> list[int]:
        found: list[int] = []
        with connect(self.address, timeout_s=120) as bus:
            while some := bus.read("out", offset=len(found), count=1_000):
                found += [int(each.body.split()[0]) for each in some]
        return found

    def _written(self) -> int:
        with Where(broker=self.address).open() as log:
            return log.spans("out")[0].end


def _since(began: float) -> dict[str, float]:
    return {"seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=2, help="of drivers that archive")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-cluster-kills-"))
    print(f"seed {chosen.seed}, in {folder}", flush=True)
    began = time.monotonic()
    with Cluster(folder) as cluster:
        show(what="cluster", master=cluster.master, **_since(began))
        campaign = Campaign(folder, cluster.master, cluster, chosen.seed)
        try:
            campaign.fill(chosen.messages)
            campaign.read(chosen.messages)
            campaign.archive(chosen.messages, chosen.kills)
            campaign.stream(chosen.messages)
        finally:
            campaign.broker.kill()
    show(what="all", **_since(began))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
