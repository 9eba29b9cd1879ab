"""A client that sends a new header name or query parameter in each request, for ever.

    python -m tests.bench.new_names [COMMIT] [--requests 1000000] [--steps 10]

What the broker learns about the form of requests must stay bounded, and must not become dearer for
that client or for others. After each step: requests a second and the broker's processor time for
one, the memory of its process, and what a usual client's put with a key costs then. With a commit
each step is also made with that version, in turn. Durability `memory`, and the topic is made
anew after each step, so that messages do not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random

from tests.bench.lockstep import one_core
from tests.bench.measure import Server, resident_bytes, run_seconds
from tests.bench.templates import Template, get, post
from tests.bench.verb_costs import brokers, cost_us, exchange, verb
from tests.process.pipe import Pipe

TEMPLATES = tuple(
    map(
        Template.of,
        (
            post("/N", "x-{id}: 1"),
            get("/N?body=hello&x{id}=1"),
            post("/N", "key: {user}", "x-{id}: 1"),
        ),
    )
)
USUAL = verb("put, `key` differs", post("/N", "key: {user}"))
DECLARE = get("/N?cmd=declare&durability=memory")
SMALL_CACHE = ("--set", "cache_bytes_max=4 MiB")  # it keeps messages of topics that are gone
MIB = 1 << 20


def requests(number: int) -> list[bytes]:
    random = Random()
    return [TEMPLATES[n % len(TEMPLATES)].fill(n, random) for n in range(number)]


def step(server: Server, name: str, sent: list[bytes]) -> None:
    """Send all of them, and print what it came to."""
    with closing(Pipe(server.port)) as pipe:
        began, ran = time.perf_counter(), run_seconds(server.pid)
        for _ in exchange(pipe, sent):
            pass
        took_s, ran_s = time.perf_counter() - began, run_seconds(server.pid) - ran
        list(exchange(pipe, [get("/N?cmd=remove"), DECLARE]))
    cells = [
        f"{len(sent) / took_s:,.0f}/s",
        f"{ran_s / len(sent) * 1e6:.1f}",
        f"{resident_bytes(server.pid) / MIB:.1f}",
        f"{min(cost_us(server, USUAL) for _ in range(5)):.1f}",
    ]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=10)
    chosen = parser.parse_args()
    each = chosen.requests // chosen.steps
    with (
        tempfile.TemporaryDirectory(prefix="zbus-names-") as folder,
        brokers(Path(folder), chosen.commit, *SMALL_CACHE) as servers,
        one_core(*(server.pid for server in servers)),
    ):
        for server in servers:
            with closing(Pipe(server.port)) as pipe:
                list(exchange(pipe, [DECLARE]))
        print("| new names | rate | µs each | MiB of the process | a usual put, µs |")
        print("|---|---|---|---|---|")
        for number in range(1, chosen.steps + 1):
            sent = requests(each)
            for server, version in zip(servers, ("", f", {chosen.commit}"), strict=False):
                step(server, f"{number * each:,}{version}", sent)


if __name__ == "__main__":
    main()
