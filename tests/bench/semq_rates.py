"""How fast two endpoints of SEMQ exchange messages, and how fast one catches up.

    python -m tests.bench.semq_rates [--messages 6000] [--ways direct,platform,stored,offline]
    python -m tests.bench.semq_rates --online 10000

Every message has level 3: it is synced at its sender, at the platform if that stores it, and at its
destination. Many senders and takers of one process wait for their answers. `offline`: all is sent
while the other endpoint is away, and what is measured is how it catches up. Processor time is that
of each process for one message, kernel included. `--online`: what so many endpoints cost the
platform that have said hello and say nothing else but heartbeats.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import trio

import zbus.semq
from tests.bench.measure import resident_bytes, run_seconds, show
from tests.process.broker import BrokerProcess, request
from tests.process.endpoint import EndpointProcess

NODES = ("1:1", "1:2")
CONNECTIONS = 4
SENDERS = 128
TAKERS = 64
AT_ONCE = 200
IDLE_S = 20
WAYS = ("direct", "platform", "stored", "offline")


class Pair:
    """The platform and two endpoints."""

    def __init__(self, folder: Path, way: str, stack: ExitStack) -> None:
        self.folder = folder
        self.direct = way == "direct"
        self._stack = stack
        settings = f"semq_nodes={','.join(NODES)}", f"semq_store_always={way == 'stored'}".lower()
        options = [word for setting in settings for word in ("--set", setting)]
        self.broker = stack.enter_context(BrokerProcess(folder / "data", *options))
        self.endpoints = {NODES[0]: self.begin(NODES[0])}
        if way != "offline":
            self.endpoints[NODES[1]] = self.begin(NODES[1])

    def begin(self, node: str) -> EndpointProcess:
        folder = self.folder / node.replace(":", "-")
        options = "--log-level", "error"
        endpoint = EndpointProcess(folder, node, self.broker.port, *options, direct=self.direct)
        return self._stack.enter_context(endpoint)

    def cpu(self) -> dict[str, float]:
        ids = {"broker": self.broker.process.pid}
        ids |= {node: endpoint.process.pid for node, endpoint in self.endpoints.items()}
        return {name: run_seconds(pid) for name, pid in ids.items()}


async def send(path: Path, count: int, body: bytes) -> None:
    """So many messages, by many who wait for their answers."""
    numbers = iter(range(count))

    async def one(semq: zbus.semq.Semq) -> None:
        for _ in numbers:
            await semq.send(NODES[1], body)

    async with trio.open_nursery() as connections:
        for _ in range(CONNECTIONS):
            connections.start_soon(_share, path, SENDERS // CONNECTIONS, one)


async def take(path: Path, count: int) -> None:
    """So many messages; each is done before its taker asks for the next one."""
    left = count

    async def one(semq: zbus.semq.Semq) -> None:
        nonlocal left
        while left > 0:
            message = await semq.take_one(wait_s=1)
            if message is not None:
                left -= 1
                await message.done()

    async with trio.open_nursery() as connections:
        for _ in range(CONNECTIONS):
            connections.start_soon(_share, path, TAKERS // CONNECTIONS, one)


async def _share(path: Path, count: int, one: object) -> None:
    async with zbus.semq.connect(path) as semq, trio.open_nursery() as tasks:
        for _ in range(count):
            tasks.start_soon(one, semq)  # type: ignore[arg-type]


def measure(way: str, count: int, body: bytes) -> None:
    folder = Path(tempfile.mkdtemp(prefix="zbus-semq-rates-"))
    try:
        with ExitStack() as stack:
            pair = Pair(folder, way, stack)
            if way == "offline":
                trio.run(_catch_up, pair, count, body)
            else:
                trio.run(_exchange, pair, way, count, body)
    finally:
        shutil.rmtree(folder)


async def _exchange(pair: Pair, way: str, count: int, body: bytes) -> None:
    one, other = (endpoint.socket for endpoint in pair.endpoints.values())
    await send(one, 20, body)  # so that they have found each other
    await take(other, 20)
    before, began_s = pair.cpu(), time.monotonic()
    async with trio.open_nursery() as tasks:
        tasks.start_soon(take, other, count)
        tasks.start_soon(send, one, count, body)
    _show(way, pair, before, began_s, count, body)


async def _catch_up(pair: Pair, count: int, body: bytes) -> None:
    before, began_s = pair.cpu(), time.monotonic()
    await send(pair.endpoints[NODES[0]].socket, count, body)
    _show("accepted while the other is away", pair, before, began_s, count, body)
    async with zbus.semq.connect(pair.endpoints[NODES[0]].socket) as semq:
        pause = threading.Event()
        while (await semq.stat())["outbox"]:
            pause.wait(0.2)  # nothing else is done in this process
    _show("and stored by the platform", pair, before, began_s, count, body)
    pair.endpoints[NODES[1]] = endpoint = pair.begin(NODES[1])
    before, began_s = {**pair.cpu(), NODES[1]: 0.0}, time.monotonic()
    await take(endpoint.socket, count)
    _show("caught up", pair, before, began_s, count, body)


def measure_online(count: int) -> None:
    """Memory of the platform for each."""
    folder = Path(tempfile.mkdtemp(prefix="zbus-semq-rates-"))
    try:
        with BrokerProcess(folder / "data", "--set", "connections_per_address_max=0") as broker:
            pid = broker.process.pid
            before = resident_bytes(pid)
            links = [broker.connect() for _ in range(count)]
            connected = resident_bytes(pid)
            began_s = time.monotonic()
            for begin in range(0, count, AT_ONCE):
                some = links[begin : begin + AT_ONCE]
                for number, link in enumerate(some, begin):
                    fields = "cmd: semq_hello", f"node: 1:{number}", f"epoch: {number:016x}"
                    link.send(request("/semq", *fields))
                for link in some:
                    answer = link.read()
                    assert answer.status == 200, answer
            seconds = time.monotonic() - began_s
            cpu_s = run_seconds(pid)
            threading.Event().wait(IDLE_S)
            figures = {"per_hello_ms": 1e3 * seconds / count}
            figures |= {"connection_bytes": (connected - before) / count}
            figures |= {"endpoint_bytes": (resident_bytes(pid) - connected) / count}
            figures |= {"broker_mib": resident_bytes(pid) >> 20}
            figures |= {"idle_cpu": (run_seconds(pid) - cpu_s) / IDLE_S}
            for link in links:
                link.close()
        show(what=f"{count} endpoints online", **figures)
    finally:
        shutil.rmtree(folder)


def _show(
    what: str, pair: Pair, before: dict[str, float], began_s: float, count: int, body: bytes
) -> None:
    seconds = time.monotonic() - began_s
    each = {name: round(1e6 * (s - before[name]) / count) for name, s in pair.cpu().items()}
    figures: dict[str, float | str] = {"messages": count, "bytes": len(body)}
    figures |= {"seconds": round(seconds, 1), "per_s": round(count / seconds)}
    figures |= {f"us_{name}": us for name, us in each.items()}
    figures["broker_mib"] = resident_bytes(pair.broker.process.pid) >> 20
    show(what=what, **figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=6_000)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--online", type=int, help="so many endpoints that say hello")
    chosen = parser.parse_args()
    if chosen.online:
        measure_online(chosen.online)
        return
    for way in chosen.ways.split(","):
        measure(way, chosen.messages, b"x" * chosen.bytes)


if __name__ == "__main__":
    main()
