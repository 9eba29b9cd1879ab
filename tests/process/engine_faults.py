"""The replicated engine on three NATS servers that are killed, stopped and cut off under load.

    python -m tests.process.engine_faults servers --leader-kills 30 --majority-losses 10
    python -m tests.process.engine_faults owners --seconds 600

`servers`: an owner and a standby as processes, and clients that keep books. `owners`: two owners in
this process that take the stream from each other all the time. Reports what was lost or stored
twice, and how long puts and deliveries paused.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.process.client_books import Books, longest_gap, read_topic
from tests.process.nats_faults import (
    FAULTS,
    LEADER_KILLED,
    MAJORITY_FAULTS,
    OTHER_FAULTS,
    FaultyCluster,
    differences,
)
from tests.process.rival_owners import Rival, read_lanes, watch
from tests.process.test_standby import Node
from zbus.storage.jetstream.settings import Cluster, make_settings
from zbus.storage.jetstream.stream import Stored
from zbus.storage.jetstream.subjects import Subjects

BROKERS: Final = ("a", "b")
CLUSTER: Final = "faults"
TAKEN_OVER: Final = 75
"""The exit code of a broker that lost its ownership."""

PAUSE_S: Final = 1.0
"""Longer ones without anything confirmed are counted."""


# -- processes and their clients --------------------------------------------------------------


def servers(given: argparse.Namespace, folder: Path) -> int:
    """The exit code: 1 if a law is broken."""
    chance = Random(given.seed)
    kinds = [LEADER_KILLED] * given.leader_kills
    kinds += itertools.islice(itertools.cycle(MAJORITY_FAULTS), given.majority_losses)
    kinds += itertools.islice(itertools.cycle(OTHER_FAULTS), given.others)
    chance.shuffle(kinds)
    pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
    nodes: list[Node] = []
    with FaultyCluster(folder / "nats", BROKERS, CLUSTER, chance) as cluster:
        try:
            for name in BROKERS:
                addresses = ",".join([f"127.0.0.1:{port}" for port in cluster.ports_for(name)])
                nodes.append(Node(folder, f"nats://{addresses}/{CLUSTER}", name))
                nodes[-1].wait_for("/_health", 503 if len(nodes) > 1 else 200)
            books = Books("zbus://" + ",".join([node.address for node in nodes]))
            books.declare()
            books.start()
            for number, kind in enumerate(kinds, 1):
                pauses[kind].append(_make(kind, cluster, nodes, books))
                put_s, delivery_s = pauses[kind][-1]
                print(
                    f"{number}: {kind}: put {put_s:.2f} s, delivery {delivery_s:.2f} s", flush=True
                )
            books.stop()
            owner = next(node for node in nodes if _serves(node))
            log = read_topic(owner.address)
        finally:
            for node in nodes:
                node.kill()
        books.wrong += differences(cluster.replicas())
    text, is_well = books.totals(log)
    _show(pauses)
    print(f"{len(kinds)} faults, {text}")
    return 0 if is_well else 1


def _make(
    kind: str, cluster: FaultyCluster, nodes: Sequence[Node], books: Books
) -> tuple[float, float]:
    """Make a fault, and wait until all is well; the longest pause of puts and of deliveries."""
    cluster.wait_until_healthy()
    begun_s = time.monotonic()
    cluster.make(kind)
    cluster.wait_until_healthy()
    for node in nodes:
        code = node.process.poll()
        if code is not None:
            print(f"  the broker {node.name} ended with {code}", flush=True)
            if code != TAKEN_OVER:
                books.wrong.append(f"{node.name} ended with {code}: {node.log_path.read_text()}")
            node.start()
    books.wait_for_both(time.monotonic())
    return books.pauses_since(begun_s)


def _serves(node: Node) -> bool:
    reply = node.ask("/_health")
    return reply is not None and reply.status == 200


def _show(pauses: dict[str, list[tuple[float, float]]]) -> None:
    for kind, pairs in sorted(pauses.items()):
        words = []
        for name, times in zip(("put", "delivery"), zip(*pairs, strict=True), strict=True):
            middle, longest = statistics.median(times), max(times)
            words.append(f"{name} median {middle:.2f} s, longest {longest:.2f} s")
        print(f"{kind}: {len(pairs)} times, {'; '.join(words)}")


# -- two owners -------------------------------------------------------------------------------


class Fault(NamedTuple):
    """One that was made, until the stream was healthy again and a little longer."""

    kind: str
    begun_s: float
    ended_s: float


def owners(given: argparse.Namespace, folder: Path) -> int:
    """The exit code: 1 if a law is broken."""
    chance, made = Random(given.seed), list[Fault]()
    with FaultyCluster(folder / "nats", BROKERS, CLUSTER, chance) as cluster:
        question = make_settings(Cluster(CLUSTER), cluster.subjects)
        cluster.ask(f"STREAM.CREATE.{cluster.subjects.stream}", question)
        rivals = [Rival(name, cluster, given.seed + n) for n, name in enumerate(BROKERS)]
        for rival in rivals:
            rival.thread.start()
        watcher = threading.Thread(target=watch, args=rivals, daemon=True)
        watcher.start()
        until_s = time.monotonic() + given.seconds
        kinds = itertools.chain.from_iterable(chance.sample([*FAULTS], 9) for _ in iter(int, 1))
        while time.monotonic() < until_s and not any(rival.wrong for rival in rivals):
            kind, begun_s = next(kinds), time.monotonic()
            cluster.make(kind)
            cluster.wait_until_healthy()
            time.sleep(chance.uniform(0.5, 3.0))
            made.append(Fault(kind, begun_s, time.monotonic()))
            # A pause that goes on counts as well, as far as it has come.
            times = [*[at for at in _times(rivals) if at > begun_s], made[-1].ended_s]
            pause_s = longest_gap(begun_s, times)
            print(f"{len(made)}: {kind}: {pause_s:.2f} s nothing confirmed", flush=True)
        for rival in rivals:
            rival.stopped.set()
        for thread in [watcher, *[rival.thread for rival in rivals]]:
            thread.join()
        replicas = cluster.replicas()
    return _judge(rivals, made, replicas)


def _times(rivals: Sequence[Rival]) -> list[float]:
    """When anything was confirmed."""
    return sorted(itertools.chain.from_iterable([list(rival.confirmed_s) for rival in rivals]))


def _judge(rivals: Sequence[Rival], made: Sequence[Fault], replicas: Sequence[list[Stored]]) -> int:
    wrong = [text for rival in rivals for text in rival.wrong] + differences(replicas)
    there, strays = read_lanes(replicas[0], Subjects(CLUSTER), wrong)
    confirmed = [one for rival in rivals for one in rival.confirmed]
    lost = set(confirmed) - there.keys()
    doubled = [one for one, count in there.items() if count > 1]
    counts: Counter[str] = sum([rival.counts for rival in rivals], Counter())
    pauses = [(b - a, a, b) for a, b in itertools.pairwise(_times(rivals))]
    longest_s, begun_s, ended_s = max(pauses, default=(0.0, 0.0, 0.0))
    within = [one.kind for one in made if one.begun_s < ended_s and begun_s < one.ended_s]
    kinds = Counter([one.kind for one in made])
    for text in wrong:
        print(f"BROKEN: {text}")
    print(", ".join([f"{kind} {count}" for kind, count in sorted(kinds.items())]))
    print(", ".join([f"{what} {count}" for what, count in sorted(counts.items())]))
    print(
        f"{len(made)} faults, {counts['claims']} claims, {counts['doubts']} doubts,"
        f" {len(confirmed)} confirmed, {len(lost)} lost, {len(doubled)} twice, {strays} strays,"
        f" {len([one for one in pauses if one[0] > PAUSE_S])} pauses over {PAUSE_S:.0f} s, longest"
        f" {longest_s:.2f} s ({', '.join(within)})"
    )
    return 1 if wrong or lost or doubled or strays else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("servers")
    part.add_argument("--leader-kills", type=int, default=30)
    part.add_argument("--majority-losses", type=int, default=10)
    part.add_argument("--others", type=int, default=15, help="other faults than those")
    part.add_argument("--seed", type=int, default=1)
    part.set_defaults(run=servers)
    part = parts.add_parser("owners")
    part.add_argument("--seconds", type=int, default=600)
    part.add_argument("--seed", type=int, default=1)
    part.set_defaults(run=owners)
    given = parser.parse_args()
    run: Callable[[argparse.Namespace, Path], int] = given.run
    folder = Path(tempfile.mkdtemp(prefix="engine-faults-"))
    code = run(given, folder)
    if code:
        print(f"logs and files of all servers are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
