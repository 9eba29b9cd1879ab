"""Faults of nodes and NATS servers, one after another, while clients that know nothing of each
other put, take and acknowledge through any node:

    python -m tests.process.node_kills --rounds 100     (make crash-nodes)

Each message is put under an idempotency key, and again until that is confirmed. The books say at
the end: what was confirmed is there once, and in order; what was acknowledged did not come again;
no message was in two hands within its lease. After each fault it is measured how long it takes
until all topics take a message through each node.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs
import trustme

from tests.process import worker_kills
from tests.process.nats import NatsCluster
from tests.process.test_nodes import SHARDS, TOPICS, Member, start_node
from tests.process.worker_kills import Client

NODES: Final = ("a", "b", "c")
PRODUCERS, CONSUMERS = 4, 4
LEASE_S: Final = 20
GROUP: Final = f"group=g&ack=true&group_lease={LEASE_S}s&group_keep_attempts=true"
"""A delivery is sent when its lease is written; else a message may come again after a failure."""


class Book(worker_kills.Book):
    """What clients know."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, float] = {}  # when it was delivered last
        self.twice: list[tuple[str, float]] = []  # delivered while another client had it


class Cluster:
    """Nodes and servers, and what is done to them."""

    def __init__(self, folder: Path, servers: NatsCluster, rnd: random.Random) -> None:
        self._servers = servers
        self._rnd = rnd
        authority = trustme.CA()
        engine = servers.engine("kills")
        self.nodes = [start_node(folder, engine, name, authority) for name in NODES]
        self._up = set(self.nodes)

    @property
    def port(self) -> int:
        """Of any node that is up."""
        return self._rnd.choice(sorted(node.port for node in self._up))

    def wait(self) -> float:
        """Until all is well through each node; how long that took."""
        begun_s = time.monotonic()
        for node in self._up:
            for topic in TOPICS:
                node.wait_for(f"/{topic}?cmd=produce", 200, b"probe")
        return time.monotonic() - begun_s

    def kill_process(self) -> None:
        node = self._rnd.choice(self.nodes)
        os.kill(self._rnd.choice(node.children()), signal.SIGKILL)

    def kill_node(self) -> None:
        self._without(self._rnd.choice(self.nodes), Member.kill)

    def stop_node(self) -> None:
        def stop(node: Member) -> None:
            node.process.send_signal(signal.SIGTERM)
            assert node.ended() == 0, node.log

        self._without(self._rnd.choice(self.nodes), stop)

    def _without(self, node: Member, end: Callable[[Member], None]) -> None:
        self._up.discard(node)
        end(node)
        time.sleep(self._rnd.uniform(1, 10))
        node.start()
        node.wait_for("/_health/live", 200)
        self._up.add(node)

    def suspend_node(self) -> None:
        node = self._rnd.choice(self.nodes)
        self._up.discard(node)
        pids = [node.process.pid, *node.children()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self._rnd.uniform(1, 10))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self._up.add(node)

    def kill_server(self) -> None:
        number = self._rnd.randrange(len(self._servers.ports))
        self._servers.kill(number)
        time.sleep(self._rnd.uniform(1, 5))
        self._servers.start(number)

    def end(self) -> list[str]:
        """The logs."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.ended()
        return [node.log for node in self.nodes]


FAULTS: Final = {
    "process killed": Cluster.kill_process,
    "node killed": Cluster.kill_node,
    "node stopped": Cluster.stop_node,
    "node suspended": Cluster.suspend_node,
    "NATS server killed": Cluster.kill_server,
}


def produce(name: int, client: Client, book: Book, over: threading.Event) -> None:
    rnd, number = random.Random(name), 0
    while not over.is_set():
        topic, number = rnd.choice(TOPICS), number + 1
        body = f"{topic} {name} {number}"
        target = f"/{topic}?cmd=produce&idempotency_key={name}-{number}"
        while client.ask(target, body)[0] != 200:
            time.sleep(0.05)
        with book.lock:
            book.put.add(body)
        time.sleep(0.01)


def consume(name: int, client: Client, book: Book, over: threading.Event) -> None:
    rnd = random.Random(name)
    while not over.is_set():
        topic = rnd.choice(TOPICS)
        status, headers, body = client.ask(f"/{topic}/g?cmd=consume&timeout=200")
        if status != 200:
            continue
        now_s = time.monotonic()
        with book.lock:
            if body in book.acked:
                book.late.append(body)
            before_s = book.taken.get(body)
            if before_s is not None and now_s - before_s < LEASE_S - 2 and body != "probe":
                book.twice.append((body, now_s - before_s))
                print(f"again after {now_s - before_s:.2f} s: {body}", file=sys.stderr)
            book.taken[body] = now_s
        if client.ask(f"/{topic}/g?cmd=ack&offset={headers['offset']}")[0] == 200:
            with book.lock:
                if body != "probe":
                    book.acked[body] = now_s


def judge(cluster: Cluster, book: Book) -> dict[str, object]:
    """Read all logs, and what is left for the group."""
    client, stored = Client(cluster, book), list[str]()
    for topic in TOPICS:
        while (answer := client.ask(f"/{topic}/all?cmd=consume&timeout=0"))[0] != 204:
            stored += [answer[2]] if answer[0] == 200 and answer[2] != "probe" else []
    lines: dict[tuple[str, str], list[int]] = defaultdict(list)
    for body in stored:
        topic, name, number = body.split()
        lines[topic, name].append(int(number))
    time.sleep(LEASE_S + 1)
    again = set(book.late)
    for topic in TOPICS:
        while (answer := client.ask(f"/{topic}/g?cmd=consume&timeout=0"))[0] != 204:
            again |= {answer[2]} & book.acked.keys()
    slow = sorted(book.slow_s)
    return {
        "put": len(book.put),
        "acknowledged": len(book.acked),
        "lost": len(book.put - set(stored)),
        "twice": len(stored) - len(set(stored)),
        "out of order": sum(a >= b for line in lines.values() for a, b in pairwise(line)),
        "again after a confirmed ack": len(again),
        "in two hands": len(book.twice),
        "refused or unknown": dict(book.refused),
        "p99_s": round(slow[len(slow) * 99 // 100], 3),
        "longest_s": round(slow[-1], 3),
    }


WRONG: Final = ("lost", "twice", "out of order", "again after a confirmed ack", "in two hands")


@attrs.frozen
class Campaign:
    """How many faults, and from which seed."""

    rounds: int
    seed: int

    def run(self, folder: Path) -> dict[str, object]:
        rnd, book, over = random.Random(self.seed), Book(), threading.Event()
        times: dict[str, list[float]] = defaultdict(list)
        with NatsCluster(folder / "nats") as servers:
            cluster = Cluster(folder, servers, rnd)
            for topic in TOPICS:
                for words in (
                    "group=all",
                    f"group=g&ack=true&group_lease={LEASE_S}s&group_keep_attempts=true",
                ):
                    cluster.nodes[0].wait_for(f"/{topic}?cmd=declare&{words}", 200)
            for node in cluster.nodes:
                node.wait_for("/?cmd=server", 200)
            jobs = [(produce, n) for n in range(PRODUCERS)]
            jobs += [(consume, n) for n in range(CONSUMERS)]
            threads = [
                threading.Thread(target=job, args=(name, Client(cluster, book), book, over))
                for job, name in jobs
            ]
            for thread in threads:
                thread.start()
            for number in range(self.rounds):
                time.sleep(rnd.uniform(0.5, 3))
                name = rnd.choice(list(FAULTS))
                FAULTS[name](cluster)
                times[name].append(cluster.wait())
                at = time.strftime("%H:%M:%S")
                print(f"{number + 1}: {name}, {times[name][-1]:.2f} s, {at}", file=sys.stderr)
            over.set()
            for thread in threads:
                thread.join()
            found = judge(cluster, book)
            logs = "".join(cluster.end())
            if book.refused["TimeoutError"]:
                print(logs, file=sys.stderr)
        found["tracebacks"] = logs.count("Traceback")
        if found["tracebacks"]:
            print(logs[logs.index("Traceback") :][:10_000], file=sys.stderr)
        all_s = sorted(second for seconds in times.values() for second in seconds)
        found["well again, s"] = {
            **{name: [round(each, 1) for each in sorted(some)] for name, some in times.items()},
            "95 %": round(all_s[len(all_s) * 95 // 100], 1),
        }
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zbus-nodes-") as folder:
        found = Campaign(options.rounds, options.seed).run(Path(folder))
    print(json.dumps({"seed": options.seed, "shards": SHARDS, **found}))
    return int(any(found[name] for name in (*WRONG, "tracebacks")))


if __name__ == "__main__":
    sys.exit(main())
