"""Bodies of 1 and of 8 MiB over one connection: MB a second, and the broker's processor time.

    python -m tests.bench.large_bodies [COMMIT] [--rounds 9] [--durability os]

In a round 64 MiB are put, one message after another, and pulled. Each body is random bytes of its
own. With a commit, that version has the same rounds in turn. Rates are medians; the processor time
for 64 MiB, kernel included, is the least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.measure import Server, checkout, run_seconds
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe, ask

SIZES = (1 << 20, 8 << 20)
ROUND_BYTES = 64 << 20
NOISE = os.urandom((8 << 20) + 4096)


class Figures:
    """Of one broker, one size, and put or pull."""

    def __init__(self) -> None:
        self.mb_s: list[float] = []
        self.cpu_ms: list[float] = []  # for 64 MiB

    def add(self, server: Server, work: Callable[[], None], counts: bool) -> None:
        cpu_s, began = run_seconds(server.pid), time.perf_counter()
        work()
        seconds, cpu_s = time.perf_counter() - began, run_seconds(server.pid) - cpu_s
        if counts:
            self.mb_s.append(ROUND_BYTES / 1e6 / seconds)
            self.cpu_ms.append(cpu_s * 1e3)

    def __str__(self) -> str:
        return f"{statistics.median(self.mb_s):8.0f} MB/s {min(self.cpu_ms):7.1f} ms"


def put(pipe: Pipe, size: int) -> None:
    for number in range(ROUND_BYTES // size):
        body = NOISE[number : number + size]
        pipe.send(ask("/Large?cmd=produce", lines=b"content-length: %d\r\n" % size))
        pipe.send(body)
        assert pipe.read().status == 200


def pull(pipe: Pipe, size: int, buffer: bytearray) -> None:
    """The bodies are read over and over into the same memory: the broker is measured."""
    view = memoryview(buffer)
    for _ in range(ROUND_BYTES // size):
        pipe.send(ask("/Large?cmd=consume"))
        head = b""
        while b"\r\n\r\n" not in head:
            head += pipe.sock.recv(1 << 10)
        left = size - len(head.partition(b"\r\n\r\n")[2])
        assert head.startswith(b"HTTP/1.1 200"), head
        assert b"content-length: %d\r\n" % size in head, head
        while left:
            left -= pipe.sock.recv_into(view[: min(left, len(view))])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--durability", default="os")
    chosen = parser.parse_args()
    declare = f"/Large?cmd=declare&durability={chosen.durability}"
    buffer = bytearray(1 << 20)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        homes = [stack.enter_context(checkout(chosen.commit))] if chosen.commit else []
        brokers = [
            stack.enter_context(BrokerProcess(folder / str(number), checkout=home))
            for number, home in enumerate([None, *homes])
        ]
        found = {size: [(Figures(), Figures()) for _ in brokers] for size in SIZES}
        for number in range(-1, chosen.rounds):  # the first is to warm up
            for size, column in found.items():
                for broker, (puts, pulls) in zip(brokers, column, strict=True):
                    with Pipe(broker.port) as pipe:
                        assert pipe.get(declare).status == 200
                        server = Server.of(broker)
                        puts.add(server, partial(put, pipe, size), number >= 0)
                        pulls.add(server, partial(pull, pipe, size, buffer), number >= 0)
                        assert pipe.get("/Large?cmd=remove").status == 200
        for at, name in enumerate(("put", "pull")):
            for size, column in found.items():
                print(f"{name:4} {size >> 20} MiB{''.join(str(each[at]) for each in column)}")


if __name__ == "__main__":
    main()
