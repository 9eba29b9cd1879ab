"""Where the microseconds of a put and a pull go, step by step, without sockets and disks.

Each step has a budget in units of a reference step that is measured beside it (making one slotted
object), so that a slow machine does not fail it and a slow change does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import pytest

from tests.bench.measure import show
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.storage.format.batch import encode_chunk
from zbus.testing.world import World

pytestmark = pytest.mark.bench

CONNECTIONS = 32
TURNS = 300
PRODUCE = (
    b"GET /MyTopic?cmd=produce HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:15555\r\n"
    b"User-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n"
)
CONSUME = PRODUCE.replace(b"produce", b"consume")


@pytest.fixture(autouse=True)
def rare_collections() -> Iterator[None]:
    """The collector's settings of `zbus serve`."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    yield
    gc.set_threshold(*before)


def best_us(step: Callable[[], object], each: int, rounds: int = 40) -> float:
    """Microseconds for one of the `each` things that a call does; the best of several calls."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - started)
    return best / each * 1e6


class Bench:
    """A broker with 32 connections; the stages of its turns, timed apart."""

    def __init__(self) -> None:
        self.world = World(settings=ZbusSettings(durability="os"))
        clients = [self.world.connect() for _ in range(CONNECTIONS)]
        clients[0].request(PRODUCE.replace(b"produce", b"declare"))
        self.peers = [client.peer for client in clients]

    def turns(self, data: bytes, ids: bool = False) -> dict[str, float]:
        """Microseconds a request of applying, writing and answering, dispatching."""
        broker, world = self.world.broker, self.world
        spent = [0.0, 0.0, 0.0]
        serial = 0
        for _ in range(TURNS):
            world.now_ms += 1
            requests = [data] * CONNECTIONS
            if ids:
                requests = [
                    data[:-2] + b"id: %d\r\n\r\n" % (serial + n) for n in range(CONNECTIONS)
                ]
                serial += CONNECTIONS
            marks = [time.perf_counter()]
            broker.begin(world.now_ms)
            for peer, request in zip(self.peers, requests, strict=True):
                peer.receive(request)
            marks.append(time.perf_counter())
            broker._tick.commit()
            marks.append(time.perf_counter())
            broker._dispatch.run()
            marks.append(time.perf_counter())
            for peer in self.peers:
                peer.out.clear()
                peer.out_bytes = 0
            for stage in range(3):
                spent[stage] += marks[stage + 1] - marks[stage]
        each = [seconds / TURNS / CONNECTIONS * 1e6 for seconds in spent]
        return dict(zip(("apply", "commit", "dispatch"), each, strict=True))


def reference_us() -> float:
    def step() -> None:
        for _ in range(10_000):
            Message(b"x", b"", b"", b"h", b"", 5)

    return best_us(step, 10_000)


def best_turns(bench: Bench, data: bytes, ids: bool = False) -> dict[str, float]:
    return min((bench.turns(data, ids) for _ in range(20)), key=lambda stages: sum(stages.values()))


def test_put_and_pull() -> None:
    bench = Bench()
    unit = reference_us()
    steps = {
        "produce": best_turns(bench, PRODUCE),
        "produce, unique ids": best_turns(bench, PRODUCE, ids=True),
        "consume": best_turns(bench, CONSUME),
    }
    show(reference_us=unit)
    for name, stages in steps.items():
        show(step=name, total_us=sum(stages.values()), **stages)
    budgets = {"produce": 40, "produce, unique ids": 50, "consume": 55}
    for name, budget in budgets.items():
        assert sum(steps[name].values()) <= budget * unit, name


def test_reading_heads() -> None:
    bench = Bench()
    reader = bench.peers[0].reader
    unit = reference_us()
    tail = b"id: 0123456789\r\ncontent-length: 0\r\n\r\n"
    lines = [PRODUCE[:-2] + b"tag: a.%d\r\n" % n + tail for n in range(10_000)]

    def repeated() -> None:
        for _ in range(10_000):
            reader.receive(PRODUCE)

    def with_ids() -> None:
        for n in range(10_000):
            reader.receive(PRODUCE[:-2] + b"id: %d\r\n\r\n" % n)

    def with_new_lines() -> None:
        for data in lines:
            reader.receive(data)

    steps = {
        "whole head known": (best_us(repeated, 10_000), 8),
        "known but for its id": (best_us(with_ids, 10_000), 12),
        "lines known, one new": (best_us(with_new_lines, 10_000), 60),
    }
    for name, (microseconds, budget) in steps.items():
        show(step=name, us=microseconds)
        assert microseconds <= budget * unit, name


@pytest.mark.parametrize(("count", "budget"), [(1, 40), (64, 6)])
def test_encoding_a_batch(count: int, budget: int) -> None:
    unit = reference_us()
    chunk = Chunk(0, 1)
    for n in range(count):
        chunk.add(b"id-%d" % n, b"x: y\r\n" * 8, bytes(100), b"a.b")
    each = best_us(lambda: [encode_chunk(chunk, 0) for _ in range(1_000)], 1_000 * count)
    show(step=f"encode, {count} in a batch", us=each)
    assert each <= budget * unit
