"""One client that has one request under way: what a turn of the broker costs that has just that.

    python -m tests.bench.lonely [COMMIT] [--rounds 30] [--only WORD] [--folder DIRECTORY]
                                 [--gap-ms 2]

Processor time of the server for a request, kernel and all threads included, beside that of the
floor (`tests/bench/floor.py`), and the median time until the reply. Generator and servers have one
core in turn (`tests/bench/lockstep.py`): `taskset -c 0` chooses which. Rounds are short; the least
processor time counts, and the median of the medians. Redis with `appendfsync always` stands beside
durability `disk`. With `--gap-ms` the client rests that long after each reply, so that the broker
waits, and the caches forget. With a commit that version is measured in each round, too. `--folder`
is where the data goes: without one that another program syncs, if the disk is to be measured.
Prints a table for docs/explanation/performance.md.
"""

from __future__ import annotations

import argparse
import select
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.bench.ack_rates import command
from tests.bench.lockstep import BLANK, connected, one_core
from tests.bench.measure import Server, checkout, floor, run_seconds
from tests.bench.others import installed, redis_server
from tests.bench.templates import BODY_END, Template, get, post
from tests.process.broker import BrokerProcess

REQUESTS = {"os": 1_000, "disk": 300, "gap": 100}  # of a round
REDIS = "redis"

# A pull takes what the put above it has put.
ROWS = {
    "ping": get("/?cmd=ping"),
    "put, `os`": post("/Os", body="{body}"),
    "pull, `os`": get("/Os?cmd=consume&timeout=0"),
    "put, `id` and `traceparent`, `os`": post(
        "/Ids", "id: {id}", "traceparent: 00-{trace}-{span}-01", body="{body}"
    ),
    "put, `disk`": post("/Disk", body="{body}"),
}


class Cost(NamedTuple):
    """Microseconds of a request."""

    us: float
    reply_us: float


def requests(text: bytes) -> Iterator[bytes]:
    template, random = Template.of(text), Random()
    return (template.fill(n, random) for n in count())


def entries() -> Iterator[bytes]:
    """The same puts for Redis."""
    for filled in requests(b"{body}"):
        yield command(b"XADD", b"A", b"*", b"body", filled)


def cost(server: Server, sent: Iterator[bytes], number: int, gap_s: float) -> Cost:
    """Of one round."""
    took_s = []
    with connected(server.port, 1) as (sock,):
        send, receive, clock = sock.sendall, sock.recv, time.perf_counter
        for at in range(number + 2):  # a head is new, and a connection waits for a turn, only once
            if at == 2:
                before_s = run_seconds(server.pid)
            request = next(sent)
            began_s = clock()
            send(request)
            reply = receive(1 << 16)
            took_s.append(clock() - began_s)
            assert reply.startswith((b"HTTP/1.1 200 ", b"$")), reply
            if gap_s:
                select.select([], [], [], gap_s)
        spent_s = run_seconds(server.pid) - before_s
    return Cost(spent_s / number * 1e6, statistics.median(took_s) * 1e6)


def started(stack: ExitStack, folder: Path, commit: str) -> dict[str, Server]:
    """This version, and the other one if there is one."""
    found = {}
    for name in ("zbus", *(["before"] if commit else [])):
        files = stack.enter_context(checkout(commit)) if name == "before" else None
        broker = stack.enter_context(BrokerProcess(folder / name, checkout=files))
        for topic, level in {"Os": "os", "Ids": "os", "Disk": "disk"}.items():
            assert broker.get(f"/{topic}?cmd=declare&durability={level}").status == 200
        found[name] = Server.of(broker)
    return found


def measure(
    rounds: int, row: str, text: bytes, servers: dict[str, Server], gap_s: float
) -> dict[str, Cost]:
    """By server, what stands for all rounds."""
    number = REQUESTS["gap" if gap_s else "disk" if "disk" in row else "os"]
    sent = {name: entries() if name == REDIS else requests(text) for name in servers}
    taken: dict[str, list[Cost]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            taken[name].append(cost(server, sent[name], number, gap_s))
    return {
        name: Cost(min(costs).us, statistics.median(one.reply_us for one in costs))
        for name, costs in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="rows with this in their names")
    parser.add_argument("--folder", help="where the data goes")
    parser.add_argument("--gap-ms", type=float, default=0, help="between a reply and a request")
    chosen = parser.parse_args()
    print("| | µs | beside the floor | reply after, µs |")
    print("|---|---|---|---|")
    with ExitStack() as stack:
        data = tempfile.TemporaryDirectory(prefix="zbus-lonely-", dir=chosen.folder)
        folder = Path(stack.enter_context(data))
        brokers = started(stack, folder, chosen.commit)
        floors = {end: stack.enter_context(floor(end)) for end in (BODY_END, BLANK)}
        others = {}
        if installed("redis-server"):
            others = {REDIS: stack.enter_context(redis_server(folder / REDIS, "always"))}
        everybody = [*brokers.values(), *floors.values(), *others.values()]
        stack.enter_context(one_core(*(server.pid for server in everybody)))
        for row, text in ROWS.items():
            if chosen.only not in row:
                continue
            bare = floors[BODY_END if b"{body}" in text else BLANK]
            servers = {"floor": bare, **brokers, **(others if "disk" in row else {})}
            found = measure(chosen.rounds, row, text, servers, chosen.gap_ms / 1000)
            for name, (us, reply_us) in found.items():
                ratio = us / found["floor"].us
                print(f"| {name}: {row} | {us:.1f} | {ratio:.2f} | {reply_us:.0f} |", flush=True)


if __name__ == "__main__":
    main()
