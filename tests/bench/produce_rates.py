"""Produces a second as wrk sees them: requests that are alike or differ, beside zbus 0.11.5.

    python -m tests.bench.produce_rates [COMMIT] [--original FOLDER] [--seconds 4] [--rounds 3]

32 connections, durability `os` (the original never waits for its disk). In the last row 32 clients
have the header lines of 21 programs, each in an order of its own, and send three kinds of messages
in turn. The original and the commit, if there is one, are measured in turn with this version, and
each mode is run once before it counts. Rates are medians; beside them stands the least
processor time of the broker for a request. Prints a table for docs/explanation/performance.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import Server, checkout, run_seconds, wrk
from tests.bench.others import ORIGINAL_FOLDER, original
from tests.bench.templates import MODES, produces
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe

NAMES = {
    "fixed": "always the same request",
    "crowd": "32 clients of 21 kinds, three kinds of messages each",
}


class Rate(NamedTuple):
    """What one run found."""

    requests_s: float
    us: float  # of the server's processor time for a request


def run(server: Server, mode: str, seconds: int) -> Rate:
    clients = produces(mode, "A", server.port)
    before = run_seconds(server.pid)
    rate = wrk(server.port, clients, seconds)
    return Rate(rate, (run_seconds(server.pid) - before) / (rate * seconds) * 1e6)


def measured(servers: list[Server], mode: str, seconds: int, rounds: int) -> list[Rate]:
    """Of each server the medians of rounds in turn."""
    for one in servers:
        run(one, mode, seconds)
    found = [[run(one, mode, seconds) for one in servers] for _ in range(rounds)]
    return [
        Rate(statistics.median(one.requests_s for one in column), min(one.us for one in column))
        for column in zip(*found, strict=True)
    ]


def servers(stack: ExitStack, folder: Path, commit: str, archives: Path) -> dict[str, Server]:
    """By name, each with its topic."""
    checkouts = {"zbus": None} | ({commit: stack.enter_context(checkout(commit))} if commit else {})
    found = {}
    for number, (name, files) in enumerate(checkouts.items()):
        data = folder / f"data-{number}"
        broker = BrokerProcess(data, "--durability", "os", checkout=files)
        found[name] = Server.of(stack.enter_context(broker))
    if any(archives.glob("zbus-*.jar")):
        found["zbus 0.11.5"] = stack.enter_context(original(folder / "original", archives))
    else:
        print(f"the original is not in {archives} (make stock-clients): it is left out")
    for server in found.values():
        with Pipe(server.port) as pipe:
            assert pipe.get("/A?cmd=declare").status == 200
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="")
    parser.add_argument("--original", type=Path, default=ORIGINAL_FOLDER, help="its archives")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zbus-rates-")))
        found = servers(stack, folder, chosen.commit, chosen.original)
        first, *others = found
        print(f"| what differs | {first} |" + "".join(f" {name} | ratio |" for name in others))
        print("|---|---|" + "---|---|" * len(others))
        for mode in MODES:
            ours, *theirs = measured(list(found.values()), mode, chosen.seconds, chosen.rounds)
            cells = [f"{ours.requests_s:,.0f}/s, {ours.us:.0f} µs"]
            for one in theirs:
                ratio = ours.requests_s / one.requests_s
                cells += [f"{one.requests_s:,.0f}/s, {one.us:.0f} µs", f"{ratio:.2f}"]
            print(f"| {NAMES.get(mode, f'`{mode}`')} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
