"""Kill the owner of a replicated cluster under load, again and again, and keep books.

    python -m tests.process.owner_kills --kills 50

Clients have the addresses of both brokers. Reports what was lost, stored twice or delivered after
its acknowledgement was confirmed, and how long puts and deliveries paused.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import zbus
import zbus.client
from tests.process.test_standby import Node
from zbus.testing.nats import NatsCluster

TOPIC, GROUP = "Orders", "billing"
PRODUCERS = 3
SETTLED_S = 4.0
"""This long after an owner is healthy, deliveries have begun as well."""


class Books:
    """What clients saw, each for itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()
        self.stored: dict[str, float] = {}
        self.delivered: dict[str, list[float]] = {}
        self.acknowledged: dict[str, float] = {}
        self.wrong: list[str] = []
        self.stopped = False

    def produce(self, name: str) -> None:
        number = 0
        with zbus.connect(self.url, retries=100, timeout_s=60) as client:
            while not self.stopped:
                body = f"{name} {number}"
                client.produce(TOPIC, body)
                with self.lock:
                    self.stored[body] = time.monotonic()
                number += 1
                time.sleep(0.005)

    def is_done(self) -> bool:
        with self.lock:
            return self.stopped and self.stored.keys() <= self.acknowledged.keys()

    def consume(self) -> None:
        with zbus.connect(self.url, retries=100, timeout_s=60) as client:
            while not self.is_done():
                try:
                    self._consume(client)
                except zbus.client.ZbusError as error:
                    print(f"  the consumer goes on after: {error}", flush=True)

    def _consume(self, client: zbus.BlockingClient) -> None:
        with client.consume(TOPIC, GROUP, timeout_ms=1_000, auto_ack=False) as messages:
            for message in messages:
                body = message.text
                with self.lock:
                    self.delivered.setdefault(body, []).append(time.monotonic())
                    if body in self.acknowledged:
                        self.wrong.append(f"{body} came after its acknowledgement")
                messages.ack(message)
                with self.lock:
                    self.acknowledged[body] = time.monotonic()

    def pauses_since(self, when_s: float) -> tuple[float, float]:
        """The longest time without anything stored, and delivered; 0 if there was nothing yet."""
        with self.lock:
            stored = [at for at in self.stored.values() if at > when_s]
            delivered = [at for times in self.delivered.values() for at in times if at > when_s]
        return _longest_gap(when_s, stored), _longest_gap(when_s, delivered)


def _longest_gap(begin_s: float, times: list[float]) -> float:
    places = [begin_s, *sorted(times)]
    return max([after - before for before, after in itertools.pairwise(places)], default=0.0)


def run(kills: int, seed: int, folder: Path) -> int:
    """The exit code: 1 if a law is broken."""
    chance = random.Random(seed)
    pauses: list[tuple[float, float]] = []
    with NatsCluster(folder / "nats") as cluster:
        nodes = [Node(folder, cluster.engine("kills"), "a")]
        owner = 0
        nodes[0].wait_for("/_health", 200)
        nodes.append(Node(folder, cluster.engine("kills"), "b"))
        with zbus.connect(f"zbus://{nodes[0].address}", retries=100) as client:
            client.declare(TOPIC, GROUP, ack=True, lease_ms=5_000)
        books = Books("zbus://" + ",".join([node.address for node in nodes]))
        threads = [
            threading.Thread(target=books.produce, args=(f"p{number}",))
            for number in range(PRODUCERS)
        ]
        threads.append(threading.Thread(target=books.consume))
        for thread in threads:
            thread.start()
        for number in range(kills):
            nodes[1 - owner].wait_for("/_health", 503)
            time.sleep(chance.uniform(0.5, 2.0))
            killed_s = time.monotonic()
            nodes[owner].kill()
            owner = 1 - owner
            nodes[owner].wait_for("/_health", 200)
            time.sleep(SETTLED_S)
            pauses.append(books.pauses_since(killed_s))
            print(
                f"{number + 1}: put {pauses[-1][0]:.2f} s, delivery {pauses[-1][1]:.2f} s",
                flush=True,
            )
            nodes[1 - owner].start()
        books.stopped = True
        for thread in threads:
            thread.join()
        log = [message.text for message in _read(nodes[owner].address)]
        for node in nodes:
            node.kill()
    return report(books, log, pauses)


def _read(address: str) -> list[zbus.Message]:
    """All that the topic holds."""
    with zbus.connect(f"zbus://{address}", retries=100) as client:
        client.declare(TOPIC, "audit", ack=False, start="earliest")
        with client.consume(TOPIC, "audit", timeout_ms=2_000) as messages:
            return list(messages)


def report(books: Books, log: list[str], pauses: list[tuple[float, float]]) -> int:
    lost = books.stored.keys() - set(log)
    twice = len(log) - len(set(log))
    for name, times in zip(("put", "delivery"), zip(*pauses, strict=True), strict=True):
        ranked = sorted(times)
        at_95 = ranked[int(len(ranked) * 0.95) - 1]
        middle, longest = statistics.median(ranked), ranked[-1]
        print(f"{name}: median {middle:.2f} s, 95 % {at_95:.2f} s, longest {longest:.2f} s")
    print(
        f"{len(pauses)} kills, {len(books.stored)} stored, {len(lost)} lost, {twice} twice in the"
        f" log, {len(books.wrong)} delivered after a confirmed acknowledgement"
    )
    return 1 if lost or twice or books.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(given.kills, given.seed, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
