"""How fast topics are archived, and what those who produce meanwhile see of it.

    python -m tests.bench.archive_rates [--messages 200000] [--bytes 1024] [--rounds 3]
        [--engines spark,local] [--rate 20MiB] [--produce 100] [--seconds 8]

Each body is another one, of JSON that compresses to about a third. First all is archived, of the
broker and of its directory, by tasks of Spark (`local[2]`) and by two threads, each time to a new
directory; of the rounds the best and the median are shown. Then somebody produces single messages
at a fixed rate for some seconds, without and with an archiver of the other topic beside him, which
is a process of its own and reads no faster than `--rate`. A produce that begins late because the
one before took long counts from when it should have begun. Ratios of one run count; all share this
machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from tests.bench.measure import resident_bytes, run_seconds, show
from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.spark.archive import Archive
from zbus.spark.archive.commit import Committer
from zbus.spark.archive.job import Job
from zbus.spark.archive.tasks import Engine, Threads
from zbus.spark.source.location import Where
from zbus.units import parse_bytes

BATCH = 1_000
WORKERS = 2
SYNCED_S = 2.0
"""After so long the landmarks say that all is synced, and a directory is read to its end."""


def wait(seconds: float) -> None:
    threading.Event().wait(max(0.0, seconds))


def bodies(random: Random, first: int, count: int, size: int) -> list[bytes]:
    """Orders, as JSON."""
    words = [random.randbytes(random.randrange(2, 6)).hex() for _ in range(3_000)]
    made = []
    for number in range(first, first + count):
        head = {
            "order": number,
            "customer": random.randrange(10**9),
            "trace": random.getrandbits(99),
        }
        items = ",".join(random.choices(words, k=size // 6))
        made.append((json.dumps(head) + items)[:size].encode())
    return made


def fill(port: int, count: int, size: int) -> None:
    with connect(f"127.0.0.1:{port}") as bus:
        bus.declare("orders")
        bus.declare("live")
        with bus.pipeline(4) as pipeline:
            random = Random(1)
            for first in range(0, count, BATCH):
                pipeline.produce_many("orders", bodies(random, first, BATCH, size))
    wait(SYNCED_S)


def engine_of(name: str) -> Engine:
    if name == "local":
        return Threads(WORKERS)
    from zbus.spark.archive.spark import SparkEngine
    from zbus.spark.session import start

    session = start("archive rates", master=f"local[{WORKERS}]")
    return SparkEngine(lambda: session)


def archive(where: Where, root: Path, engine: Engine, count: int) -> float:
    """Seconds."""
    job = Job(
        opener=where.open,
        root=str(root),
        target=Committer(str(root)),
        engine=engine,
        topics=("orders",),
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    began_s = time.perf_counter()
    done = job.run()
    seconds = time.perf_counter() - began_s
    assert done.messages == count, done
    return seconds


class Rates:
    """The first part."""

    def __init__(self, folder: Path, broker: BrokerProcess, chosen: argparse.Namespace) -> None:
        self.root = folder / "archive"
        self.broker = broker
        self.chosen = chosen
        self.places = {
            "broker": Where(broker=f"127.0.0.1:{broker.port}"),
            "directory": Where(path=str(broker.data_dir)),
        }

    def run(self) -> None:
        for name in self.chosen.engines.split(","):
            engine = engine_of(name)
            for place, where in self.places.items():
                self.measure(name, engine, place, where)

    def measure(self, name: str, engine: Engine, place: str, where: Where) -> None:
        count = self.chosen.messages
        pid = self.broker.process.pid
        before = resident_bytes(pid)
        cpu_s, own_s = run_seconds(pid), time.process_time()
        seconds = []
        bytes_written = 0
        for number in range(self.chosen.rounds + 1):
            taken = archive(where, self.root, engine, count)
            bytes_written = sum(file.bytes for file in Archive(self.root).files())
            shutil.rmtree(self.root)
            if number:  # the first one starts workers
                seconds.append(taken)
        best, median = min(seconds), statistics.median(seconds)
        show(
            what=f"archive of the {place}, engine {name}",
            best_messages_s=round(count / best),
            best_mb_s=round(count * self.chosen.bytes / best / 1e6),
            median_messages_s=round(count / median),
            bytes_per_message=round(bytes_written / count),
            broker_mib=resident_bytes(pid) >> 20,
            broker_mib_before=before >> 20,
            broker_cpu_s=round((run_seconds(pid) - cpu_s) / (self.chosen.rounds + 1), 2),
            own_cpu_s=round((time.process_time() - own_s) / (self.chosen.rounds + 1), 2),
        )


# -- beside those who produce ---------------------------------------------------------------------


def produce(port: int, size: int, rate: int, seconds: float) -> list[float]:
    """How long each took, in milliseconds, in order of length."""
    body = os.urandom(size // 2).hex().encode()
    taken = []
    with connect(f"127.0.0.1:{port}") as bus:
        began_s = time.perf_counter()
        for number in range(int(rate * seconds)):
            due_s = began_s + number / rate
            wait(due_s - time.perf_counter())
            bus.produce("live", body)
            taken.append(1_000 * (time.perf_counter() - due_s))
    return sorted(taken)


def beside(folder: Path, broker: BrokerProcess, chosen: argparse.Namespace) -> None:
    """Without and with an archiver, in turn."""
    pid = broker.process.pid
    taken: dict[str, list[list[float]]] = {"alone": [], "beside an archiver": []}
    memory = [resident_bytes(pid) >> 20]
    for _ in range(chosen.rounds):
        for name, all_of_it in taken.items():
            if name == "alone":
                found = produce(broker.port, chosen.bytes, chosen.produce, chosen.seconds)
            else:
                found = _beside(folder / "beside", broker, chosen)
            all_of_it.append(found)
            memory.append(resident_bytes(pid) >> 20)
    p99 = {}
    for name, rounds in taken.items():
        p50 = statistics.median(each[len(each) // 2] for each in rounds)
        p99[name] = statistics.median(each[len(each) * 99 // 100] for each in rounds)
        show(what=f"produce, {name}", p50_ms=round(p50, 2), p99_ms=round(p99[name], 2))
    ratio = p99["beside an archiver"] / p99["alone"]
    show(what="p99 beside an archiver to alone", rate=chosen.rate, ratio=round(ratio, 2))
    show(what="broker's memory in the rounds, MiB", memory=str(memory))


def _beside(root: Path, broker: BrokerProcess, chosen: argparse.Namespace) -> list[float]:
    where = ["--broker", f"127.0.0.1:{broker.port}", "--topics", "orders", "--to", str(root)]
    words = ["archive", *where, "--engine", "local", "--threads", "1", "--rate", chosen.rate]
    command = [sys.executable, "-m", "zbus.spark", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as archiver:
        try:
            while not root.exists():  # it has planned
                assert archiver.poll() is None
                wait(0.01)
            found = produce(broker.port, chosen.bytes, chosen.produce, chosen.seconds)
            if archiver.poll() is not None:
                show(what="the archiver ended early: take more messages, or a lower rate")
        finally:
            archiver.kill()
    shutil.rmtree(root)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="spark,local")
    parser.add_argument("--rate", default="20MiB")
    parser.add_argument("--produce", type=int, default=100, help="messages a second")
    parser.add_argument("--seconds", type=float, default=8.0)
    chosen = parser.parse_args()
    if parse_bytes(chosen.rate) is None:
        parser.error(f"--rate {chosen.rate} is no size")
    folder = Path(tempfile.mkdtemp(prefix="zbus-archive-rates-"))
    try:
        with BrokerProcess(folder / "data") as broker:
            fill(broker.port, chosen.messages, chosen.bytes)
            Rates(folder, broker, chosen).run()
            beside(folder, broker, chosen)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
