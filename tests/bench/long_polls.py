"""Many clients wait, each at a topic of its own, and messages come one by one.

    python -m tests.bench.long_polls [COMMIT] [--topics 1000] [--rounds 10] [--level disk]
                                     [--folder DIRECTORY]

One connection puts a message and waits for the reply; the client that waited at that topic gets it
and waits again. Processor time of the broker for both, kernel and all threads included, in rounds
in turn; the least counts. Broker and clients have one core in turn (`tests/bench/lockstep.py`).
"""

from __future__ import annotations

import argparse
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from random import Random

from tests.bench.lockstep import connected, one_core
from tests.bench.measure import Server, checkout, run_seconds, show
from tests.bench.templates import Template, post
from tests.process.broker import BrokerProcess
from tests.process.pipe import ask

PUTS = 500  # of a round


def turn(
    server: Server, putter: socket.socket, waiting: list[socket.socket], random: Random
) -> float:
    """Microseconds for a put and what it wakes, in one round."""
    before_s = run_seconds(server.pid)
    for n in range(PUTS):
        number = random.randrange(len(waiting))
        putter.sendall(Template.of(post(f"/T{number}", body="{body}")).fill(n, random))
        assert putter.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        consumer = waiting[number]
        assert consumer.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        consumer.sendall(ask(f"/T{number}?cmd=consume"))
    return (run_seconds(server.pid) - before_s) / PUTS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="")
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--level", default="disk")
    parser.add_argument("--folder", help="where the data goes")
    chosen = parser.parse_args()
    random = Random()
    options = ["--durability", chosen.level, "--set", "connections_per_address_max=0"]
    with ExitStack() as stack:
        data = tempfile.TemporaryDirectory(prefix="zbus-polls-", dir=chosen.folder)
        folder = Path(stack.enter_context(data))
        sides = {}
        for name in ("here", *(["before"] if chosen.commit else [])):
            files = stack.enter_context(checkout(chosen.commit)) if name == "before" else None
            broker = stack.enter_context(BrokerProcess(folder / name, *options, checkout=files))
            (putter,) = stack.enter_context(connected(broker.port, 1))
            waiting = stack.enter_context(connected(broker.port, chosen.topics))
            for number, consumer in enumerate(waiting):
                consumer.sendall(ask(f"/T{number}?cmd=declare"))
                reply = consumer.recv(1 << 16)
                assert reply.startswith(b"HTTP/1.1 200 "), reply
                consumer.sendall(ask(f"/T{number}?cmd=consume"))
            sides[name] = Server.of(broker), putter, waiting
        with one_core(*(server.pid for server, _, _ in sides.values())):
            taken: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(chosen.rounds):
                for name, side in sides.items():
                    taken[name].append(turn(*side, random))
        show(topics=chosen.topics, **{f"{name}_us": min(found) for name, found in taken.items()})


if __name__ == "__main__":
    main()
