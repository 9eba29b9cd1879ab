"""Kill the owner of a replicated cluster under load, again and again, and keep books.

    python -m tests.process.owner_kills --kills 50

Clients have the addresses of both brokers. Reports what was lost, stored twice or delivered after
its acknowledgement was confirmed, and how long puts and deliveries paused.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.process.client_books import Books, read_topic
from tests.process.nats import NatsCluster
from tests.process.test_standby import Node

SETTLED_S = 4.0
"""This long after an owner is healthy, deliveries have begun as well."""


def run(kills: int, seed: int, folder: Path) -> int:
    """The exit code: 1 if a law is broken."""
    chance = random.Random(seed)
    pauses: list[tuple[float, float]] = []
    with NatsCluster(folder / "nats") as cluster:
        nodes = [Node(folder, cluster.engine("kills"), "a")]
        owner = 0
        nodes[0].wait_for("/_health", 200)
        nodes.append(Node(folder, cluster.engine("kills"), "b"))
        books = Books("zbus://" + ",".join([node.address for node in nodes]))
        books.declare()
        books.start()
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
        books.stop()
        log = read_topic(nodes[owner].address)
        for node in nodes:
            node.kill()
    return report(books, log, pauses)


def report(books: Books, log: list[str], pauses: list[tuple[float, float]]) -> int:
    text, is_well = books.totals(log)
    for name, times in zip(("put", "delivery"), zip(*pauses, strict=True), strict=True):
        ranked = sorted(times)
        at_95 = ranked[int(len(ranked) * 0.95) - 1]
        middle, longest = statistics.median(ranked), ranked[-1]
        print(f"{name}: median {middle:.2f} s, 95 % {at_95:.2f} s, longest {longest:.2f} s")
    print(f"{len(pauses)} kills, {text}")
    return 0 if is_well else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(given.kills, given.seed, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
