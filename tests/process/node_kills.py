"""Faults of nodes and NATS servers, one after another, while clients that know nothing of each
other put, take and acknowledge through any node:

    python -m tests.process.node_kills --rounds 100     (make crash-nodes)

Each message is put under an idempotency key, and again until that is confirmed. The books say at
the end: what was confirmed is there once, and in order; what was acknowledged did not come again;
no message was in two hands within its lease. While a fault lasts and when it is over, it is
measured how long it takes until all topics take a message through each node that is to serve them.

As root the nodes have network namespaces, and links that are cut (`tests.process.networks`). Else
faults that need them are left out, and the campaign says which.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trustme

from tests.process import worker_kills
from tests.process.nats_faults import SERVERS, FaultyCluster
from tests.process.networks import Link, ThisMachine, find_network
from tests.process.test_nodes import SHARDS, TOPICS, Member, start_node

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


class Client(worker_kills.Client):
    """One that knows which machines could not answer."""

    def __init__(self, cluster: Cluster, book: Book) -> None:
        super().__init__(cluster, book)
        self._cluster = cluster

    def _name(self, error: Exception, target: str, began_s: float) -> str:
        at = "" if self._wire is None else f"{self._wire.host}:{self._wire.port}"
        if isinstance(error, TimeoutError) and self._cluster.was_lost(at, began_s):
            return "no answer of a machine that was lost"
        return super()._name(error, target, began_s)


class Cluster:
    """Nodes and servers, and what is done to them."""

    def __init__(
        self, folder: Path, network: ThisMachine, servers: FaultyCluster, rnd: random.Random
    ) -> None:
        self._network = network
        self._servers = servers
        self._rnd = rnd
        authority = trustme.CA()
        self.nodes: list[Member] = []
        for name in NODES:
            ports = servers.ports_for(name)
            engine = f"nats://{','.join([f'{network.host}:{port}' for port in ports])}/kills"
            machine = network.machines[name]
            node = start_node(folder, engine, name, authority, "--insecure", machine=machine)
            self.nodes.append(node)
        self._up = set(self.nodes)
        self._lost: list[tuple[str, float]] = []  # machines by address, and when they came back

    @property
    def address(self) -> str:
        """Of any node that is up."""
        return self._rnd.choice(sorted(node.address for node in self._up))

    def was_lost(self, address: str, since_s: float) -> bool:
        """Whether the machine of this node was lost at some time since then."""
        return any(at == address and until_s > since_s for at, until_s in self._lost)

    def wait(self, nodes: Collection[Member]) -> float:
        """Until all topics take a message through each of these nodes; how long that took."""
        begun_s = time.monotonic()

        def probe(way: tuple[Member, str]) -> None:
            node, topic = way
            node.wait_for(f"/{topic}?cmd=produce", 200, b"probe")

        ways = list(itertools.product(nodes, TOPICS))
        with ThreadPoolExecutor(len(ways)) as pool:
            list(pool.map(probe, ways))
        return time.monotonic() - begun_s

    def _one(self) -> tuple[Member, set[Member]]:
        """Any node, and the others."""
        node = self._rnd.choice(self.nodes)
        return node, {*self.nodes} - {node}

    # -- faults: each gives the nodes through which all topics must be served while it lasts ----

    @contextmanager
    def kill_process(self) -> Iterator[set[Member]]:
        node, _ = self._one()
        os.kill(self._rnd.choice(node.children()), signal.SIGKILL)
        yield {*self.nodes}

    @contextmanager
    def kill_node(self) -> Iterator[set[Member]]:
        node, others = self._one()
        self._up.discard(node)
        node.kill()
        yield others
        self._start(node)

    @contextmanager
    def stop_node(self) -> Iterator[set[Member]]:
        node, others = self._one()
        self._up.discard(node)
        node.process.send_signal(signal.SIGTERM)
        yield others
        assert node.ended() == 0, node.log
        self._start(node)

    def _start(self, node: Member) -> None:
        node.start()
        node.wait_for("/_health/live", 200)
        self._up.add(node)

    @contextmanager
    def suspend_node(self) -> Iterator[set[Member]]:
        node, others = self._one()
        self._up.discard(node)
        with _suspended([node.process.pid, *node.children()]):
            yield others
        self._up.add(node)

    @contextmanager
    def suspend_process(self) -> Iterator[set[Member]]:
        node, others = self._one()
        self._up.discard(node)  # it may be the one that accepts
        with _suspended([self._rnd.choice(node.children())]):
            yield others
        self._up.add(node)

    @contextmanager
    def lose_machine(self) -> Iterator[set[Member]]:
        """Nothing of it says that it is gone, and it comes back with an empty memory."""
        node, others = self._one()
        self._up.discard(node)
        self._lost.append((node.address, math.inf))
        self._network.cut(node.name, *Link)
        node.kill()
        self._network.lose(node.name)
        yield others
        self._network.bring_back(node.name)
        self._lost[-1] = node.address, time.monotonic()
        self._start(node)

    @contextmanager
    def cut_from_servers(self) -> Iterator[set[Member]]:
        """Clients and other nodes still reach it."""
        node, others = self._one()
        if Link.SERVERS in self._network.links:
            self._network.cut(node.name, Link.SERVERS)
            yield others
            self._network.mend(node.name, Link.SERVERS)
        else:
            names = [f"{node.name}{number}" for number in SERVERS]
            self._servers.proxies.set("silent", names)
            yield others
            self._servers.proxies.set("pass", names)

    @contextmanager
    def cut_from_nodes(self) -> Iterator[set[Member]]:
        """All shards have their owners, which not every node reaches."""
        node, _ = self._one()
        self._network.cut(node.name, Link.NODES)
        yield set()
        self._network.mend(node.name, Link.NODES)

    @contextmanager
    def kill_servers(self, count: int) -> Iterator[set[Member]]:
        numbers = self._rnd.sample(SERVERS, count)
        for number in numbers:
            self._servers.kill(number)
        yield {*self.nodes} if count == 1 else set()
        for number in numbers:
            self._servers.start(number)

    @contextmanager
    def slow_server(self) -> Iterator[set[Member]]:
        """What a server says and hears comes late (`tcp_proxies.DELAY_S`)."""
        number = str(self._rnd.choice(SERVERS))
        proxies = self._servers.proxies
        names = [name for name in proxies.ports if number in name]
        proxies.set("delay", names)
        yield {*self.nodes}
        proxies.set("pass", names)

    @property
    def possible(self) -> dict[str, Fault]:
        """Faults that the network permits."""
        return {
            name: fault
            for name, fault in FAULTS.items()
            if self._network.links or name not in NEED_LINKS
        }

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def end(self) -> list[str]:
        """Stop all; the logs."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.ended()
        return [node.log for node in self.nodes]


@contextmanager
def _suspended(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        with suppress(ProcessLookupError):  # its parent has killed it
            os.kill(pid, signal.SIGCONT)


Fault = Callable[[Cluster], AbstractContextManager[set[Member]]]

CUT_FROM_NODES, MACHINE_LOST = "node cut off from other nodes", "machine lost"
FAULTS: Final[dict[str, Fault]] = {
    "process killed": Cluster.kill_process,
    "process suspended": Cluster.suspend_process,
    "node killed": Cluster.kill_node,
    "node stopped": Cluster.stop_node,
    "node suspended": Cluster.suspend_node,
    MACHINE_LOST: Cluster.lose_machine,
    "node cut off from NATS servers": Cluster.cut_from_servers,
    CUT_FROM_NODES: Cluster.cut_from_nodes,
    "NATS server killed": partial(Cluster.kill_servers, count=1),
    "two of three NATS servers killed": partial(Cluster.kill_servers, count=2),
    "NATS server behind a slow link": Cluster.slow_server,
}
NEED_LINKS: Final = {MACHINE_LOST, CUT_FROM_NODES}
LASTS_S: Final = 1.0, 20.0, 2.0
"""How long a fault lasts: at least, at most, mostly; and longer if topics are not served before."""


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
        again |= book.acked.keys() & worker_kills.left_for_group(client, topic)
    slow = sorted(book.slow_s)
    return {
        "put": len(book.put),
        "acknowledged": len(book.acked),
        "lost": len(book.put - set(stored)),
        "twice": len(stored) - len(set(stored)),
        "out of order": sum(a >= b for line in lines.values() for a, b in itertools.pairwise(line)),
        "again after a confirmed ack": len(again),
        "in two hands": len(book.twice),
        "refused or unknown": dict(book.refused),
        "p99_s": round(slow[len(slow) * 99 // 100], 3),
        "longest_s": round(slow[-1], 3),
    }


WRONG: Final = ("lost", "twice", "out of order", "again after a confirmed ack", "in two hands")


BOUNDS_S: Final = (1, 2.5, 5, 10, 15, 20)


def histogram(times_s: Sequence[float]) -> list[int]:
    """How many are up to each of `BOUNDS_S` and above the one before, and how many above all."""
    places = Counter(bisect_left(BOUNDS_S, time_s) for time_s in times_s)
    return [places[place] for place in range(len(BOUNDS_S) + 1)]


@attrs.frozen
class Campaign:
    """How many faults, of which kinds, and from which seed."""

    rounds: int
    seed: int
    only: str

    def run(self, folder: Path, network: ThisMachine) -> dict[str, object]:
        rnd, book = random.Random(self.seed), Book()
        times: dict[str, list[float]] = defaultdict(list)
        with FaultyCluster(folder / "nats", NODES, "kills", rnd, network.host) as servers:
            cluster = Cluster(folder, network, servers, rnd)
            try:
                self._load(cluster, book, times)
                found = judge(cluster, book)
                logs = "".join(cluster.end())
            finally:
                cluster.kill()
            if book.refused["TimeoutError"]:
                print(logs, file=sys.stderr)
        found["tracebacks"] = logs.count("Traceback")
        if found["tracebacks"]:
            print(logs[logs.index("Traceback") :][:10_000], file=sys.stderr)
        found["network"] = network.name
        found["left out"] = sorted(FAULTS.keys() - cluster.possible)
        found["all topics served, up to s"] = [*BOUNDS_S, "more"]
        found["times"] = {name: histogram(some) for name, some in sorted(times.items())}
        return found

    def _load(self, cluster: Cluster, book: Book, times: dict[str, list[float]]) -> None:
        """Faults under the load of clients; how long topics were not served after each kind."""
        rnd, over = random.Random(self.seed), threading.Event()
        for topic in TOPICS:
            for words in ("group=all", GROUP):
                cluster.nodes[0].wait_for(f"/{topic}?cmd=declare&{words}", 200)
        for node in cluster.nodes:
            node.wait_for("/_health/all", 200)
        faults = [name for name in cluster.possible if self.only in name]
        with ThreadPoolExecutor(PRODUCERS + CONSUMERS) as pool:
            clients = [
                pool.submit(job, client, Client(cluster, book), book, over)
                for job, count in ((produce, PRODUCERS), (consume, CONSUMERS))
                for client in range(count)
            ]
            try:
                for number in range(self.rounds):
                    time.sleep(rnd.uniform(0.5, 3))
                    name = rnd.choice(faults)
                    found_s = self._round(cluster, FAULTS[name], rnd)
                    for when, time_s in found_s.items():
                        times[f"{name}, {when}"].append(time_s)
                    told = ", ".join([f"{when} {time_s:.2f} s" for when, time_s in found_s.items()])
                    at = time.strftime("%H:%M:%S")
                    print(f"{number + 1}: {name}: {told}, {at}", file=sys.stderr)
            finally:
                over.set()
            for client in clients:
                client.result()

    def _round(self, cluster: Cluster, fault: Fault, rnd: random.Random) -> dict[str, float]:
        """Make a fault, and end it. Returns how long it took until all topics were served while it
        lasted, and from its end on."""
        lasts_s, began_s = rnd.triangular(*LASTS_S), time.monotonic()
        if fault is Cluster.kill_process:
            lasts_s = 0.0
        found_s: dict[str, float] = {}
        with fault(cluster) as serving:
            if serving:
                cluster.wait(serving)
                found_s["while it lasts"] = time.monotonic() - began_s
            time.sleep(max(0.0, began_s + lasts_s - time.monotonic()))
            ended_s = time.monotonic()
        cluster.wait(cluster.nodes)
        return {**found_s, "from its end": time.monotonic() - ended_s}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", default="", help="Faults with this in their names.")
    options = parser.parse_args()
    campaign = Campaign(options.rounds, options.seed, options.only)
    with (
        tempfile.TemporaryDirectory(prefix="zbus-nodes-") as folder,
        find_network(NODES) as network,
    ):
        print(f"network: {network.name}", file=sys.stderr)
        found = campaign.run(Path(folder), network)
    print(json.dumps({"seed": options.seed, "shards": SHARDS, **found}))
    return int(any(found[name] for name in (*WRONG, "tracebacks")))


if __name__ == "__main__":
    sys.exit(main())
