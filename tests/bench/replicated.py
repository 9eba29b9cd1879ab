"""The replicated engine beside files: puts, and how fast a new owner reads what is stored.

    python -m tests.bench.replicated [--seconds 5] [--rounds 3]

Three NATS servers that sync each write, the broker and the generator share this machine. Bodies
have 100 bytes, every request has an id of its own. Rounds go through both brokers in turn; rates
and latencies are medians, and the processor time of the broker for one message, kernel included, is
the least. Then a new owner opens lanes which have 256 KiB behind their newest snapshot each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import cpu_seconds
from tests.process.broker import BrokerProcess
from tests.process.nats import NatsCluster
from zbus.storage.format.batch import SNAPSHOT, Kind
from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.engine import JetStreamJournal
from zbus.storage.jetstream.nats import NatsStream
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.settings import Cluster, make_settings
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError
from zbus.testing.engines import Bench, Writer

BODY_BYTES = 100
BEHIND_BYTES = 256 << 10
APPEND_BYTES = 16 << 10


class Load(NamedTuple):
    """What one client, or many, saw in one round."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


def puts(broker: BrokerProcess, connections: int, seconds: float, topic: str) -> Load:
    pid = broker.process.pid
    before_s = cpu_seconds(pid)
    command = [sys.executable, "-m", "zbus", "bench", "produce", "--json", "-"]
    command += ["-c", str(connections), "-b", str(BODY_BYTES), "--seconds", str(seconds)]
    command += ["-n", "100000000", "--topic", topic, "--url", f"http://127.0.0.1:{broker.port}"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    (run,) = report["phases"]
    assert (set(run["statuses"]), run["failures"]) == ({"200"}, {}), run
    used_s = cpu_seconds(pid) - before_s
    return Load(
        run["messages_per_second"],
        run["latency_us"]["p50"] / 1_000,
        run["latency_us"]["p99"] / 1_000,
        used_s / run["messages"] * 1e6,
    )


def measure_puts(folder: Path, engine: str, seconds: float, rounds: int) -> None:
    with (
        BrokerProcess(folder / "disk", "--durability", "disk") as files,
        BrokerProcess(folder / "replicated", "--engine", engine) as replicated,
    ):
        for connections in (1, 128):
            found: dict[str, list[Load]] = {"disk": [], "replicated": []}
            for number in range(rounds):
                for name, broker in (("disk", files), ("replicated", replicated)):
                    topic = f"t{connections}-{number}"
                    found[name].append(puts(broker, connections, seconds, topic))
            for name, loads in found.items():
                rate, p50_ms, p99_ms, _ = map(statistics.median, zip(*loads, strict=True))
                cpu_us = min(load.cpu_us for load in loads)
                print(
                    f"{connections:4} connections, {name:10}: {rate:8.0f} puts/s, "
                    f"p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms, {cpu_us:.1f} us",
                    flush=True,
                )


class Owners(Bench):
    """Owners of the shard of one cluster, one after the other."""

    def __init__(self, cluster: NatsCluster, name: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._subjects = Subjects(name)
        answer = cluster.ask(
            f"STREAM.CREATE.{self._subjects.stream}", make_settings(Cluster(name), self._subjects)
        )
        assert answer is not None
        assert answer.error is None, answer

    def claim(self) -> JetStreamJournal:
        stream = NatsStream(NatsClient(self._cluster.access(), self.post), self._subjects.stream)
        answers: list[Claimed | Owner | JournalError | None] = []
        Claim(stream, self._subjects, "bench", "", lambda owner: True, answers.append).start()
        self.run_until(lambda: answers)
        assert isinstance(answers[0], Claimed), answers
        return JetStreamJournal(stream, self._subjects, answers[0], self.failures.append)

    def open(self, lanes: int) -> tuple[float, float]:
        """Seconds until all are read, and of the processor."""
        journal = self.claim()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        assert len(self.stored(journal)) == lanes
        took_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        journal.close()
        return took_s


def measure_open(cluster: NatsCluster, lanes: int, rounds: int) -> None:
    owners = Owners(cluster, f"open{lanes}")
    journal = owners.claim()
    for number in range(lanes):
        writer = Writer((f"topic{number}", 0))
        snapshot = partial(writer.seal, Kind.STATE, b"{}", SNAPSHOT)
        data = [partial(writer.data, b"x" * APPEND_BYTES)] * (BEHIND_BYTES // APPEND_BYTES)
        makes: list[Callable[[], bytes]] = [writer.checkpoint, snapshot, *data]
        for make in makes:
            writer.append(journal, make)
        owners.commit(journal, writer.lane)
    journal.close()
    took_s = [owners.open(lanes) for _ in range(rounds)]
    wall_s, cpu_s = map(statistics.median, zip(*took_s, strict=True))
    print(f"{lanes} lanes opened in {wall_s:.2f} s, {cpu_s:.2f} s of the processor", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with NatsCluster(folder / "nats") as cluster:
            measure_puts(folder, cluster.engine("puts"), given.seconds, given.rounds)
        with NatsCluster(folder / "open") as cluster:
            for lanes in (100, 1_000):
                measure_open(cluster, lanes, given.rounds)


if __name__ == "__main__":
    main()
