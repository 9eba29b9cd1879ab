"""Messages a second through this client and broker, next to redis-py and Redis Streams.

    python -m tests.bench.client_against_redis [--seconds 2] [--size 100 --size 1024]

One producer, then one consumer, one process each side, the same bodies, in turn, in one run: quote
ratios, never absolute times. Redis with `appendfsync always` stands beside durability `disk`,
`appendfsync everysec` beside `os`.

| | zbus | redis |
|---|---|---|
| produce one by one | `produce` | `xadd` |
| produce, pipelined | `pipeline`, 256 in flight | pipelines of 256 `xadd` |
| the same, each with a key and a trace | header `traceparent` | two fields more |
| produce, batches of 100 | `produce_many` | transactions of 100 `xadd` |
| consume one by one | `pull`, `ack` | `xreadgroup` of 1, `xack` |
| consume | `consume` (batches of 100) | `xreadgroup` of 100, one `xack` for all |
"""

from __future__ import annotations

import argparse
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import zbus
from tests.bench.others import installed, redis_server
from zbus.client import BlockingClient

ROWS = ("one by one", "pipelined", "keys, traces", "batches", "consume one by one", "consume")
BATCH = 100
IN_FLIGHT = 256

Work = Callable[[float], int]
"""Works until a time (seconds of `perf_counter`), and returns how many messages."""


@contextmanager
def broker(folder: Path, *options: str) -> Iterator[str]:
    """A broker of this checkout; its URL."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ZBUS_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "zbus", "serve", "--port", "0", "--data-dir", str(folder), *options],
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        assert process.stdout is not None
        select.select([process.stdout], [], [], 30)
        line = process.stdout.readline().decode()
        yield next(word for word in line.split() if word.startswith("http://"))
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def redis_client(folder: Path, fsync: str) -> Iterator[Any]:
    """A client of a Redis with an append-only file."""
    import redis

    with redis_server(folder, fsync) as server, redis.Redis(port=server.port) as client:
        yield client


def values(count: int) -> Iterator[tuple[str, str]]:
    """Keys and traces of messages: each another."""
    for _ in range(count):
        trace = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-01"
        yield f"user-{random.randrange(100_000)}", trace


def zbus_works(bus: BlockingClient, topic: str, body: bytes) -> Iterator[Work]:
    def one_by_one(until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            bus.produce(topic, body)
            count += 1
        return count

    def pipelined(until: float) -> int:
        count = 0
        with bus.pipeline(IN_FLIGHT) as pipe:
            while time.perf_counter() < until:
                for _ in range(50):
                    pipe.produce(topic, body)
                count += 50
        return count

    def with_traces(until: float) -> int:
        count = 0
        with bus.pipeline(IN_FLIGHT) as pipe:
            while time.perf_counter() < until:
                for key, trace in values(50):
                    pipe.produce(topic, body, key=key, headers={"traceparent": trace})
                count += 50
        return count

    def batches(until: float) -> int:
        count = 0
        bodies = [body] * BATCH
        while time.perf_counter() < until:
            bus.produce_many(topic, bodies)
            count += BATCH
        return count

    def consume_one_by_one(until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            found = bus.pull(topic, "g")
            if not found:
                break
            bus.ack(topic, "g", found[0].offset)
            count += 1
        return count

    def consume(until: float) -> int:
        count = 0
        with bus.consume(topic, "g", batch=BATCH, timeout_ms=0) as messages:
            for message in messages:
                count += len(message.body) > 0
                if time.perf_counter() > until:
                    break
        return count

    yield from (one_by_one, pipelined, with_traces, batches, consume_one_by_one, consume)


def redis_works(client: Any, topic: str, body: bytes) -> Iterator[Work]:
    fields = {"body": body}

    def one_by_one(until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            client.xadd(topic, fields)
            count += 1
        return count

    def with_traces(until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            pipe = client.pipeline(transaction=False)
            for key, trace in values(IN_FLIGHT):
                pipe.xadd(topic, {"body": body, "key": key, "traceparent": trace})
            pipe.execute()
            count += IN_FLIGHT
        return count

    def in_pipes(until: float, size: int, transaction: bool) -> int:
        count = 0
        while time.perf_counter() < until:
            pipe = client.pipeline(transaction=transaction)
            for _ in range(size):
                pipe.xadd(topic, fields)
            pipe.execute()
            count += size
        return count

    def consume(until: float, size: int) -> int:
        count = 0
        while time.perf_counter() < until:
            found = client.xreadgroup("g", "me", {topic: ">"}, count=size)
            if not found:
                break
            messages = found[0][1]
            client.xack(topic, "g", *[id for id, _ in messages])
            count += len(messages)
        return count

    yield one_by_one
    yield lambda until: in_pipes(until, IN_FLIGHT, False)
    yield with_traces
    yield lambda until: in_pipes(until, BATCH, True)
    yield lambda until: consume(until, 1)
    yield lambda until: consume(until, BATCH)


def rate(work: Work, seconds: float) -> float:
    began = time.perf_counter()
    count = work(began + seconds)
    return count / (time.perf_counter() - began)


def compare(url: str, level: Any, client: Any, size: int, seconds: float) -> None:
    body = b"x" * size
    topic = f"T{size}-{level}"
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, window=999, lease_ms=60_000, durability=level)
        ours = zbus_works(bus, topic, body)
        theirs: Iterator[Work] | None = None
        if client is not None:
            client.xgroup_create(topic, "g", id="0", mkstream=True)
            theirs = redis_works(client, topic, body)
        for row in ROWS:
            mine = rate(next(ours), seconds)
            other = rate(next(theirs), seconds) if theirs is not None else 0.0
            ratio = f"{mine / other:6.2f}" if other else "     -"
            print(f"| {size:5} | {level:4} | {row:18} | {mine:9,.0f} | {other:9,.0f} | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="This client next to redis-py.")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--folder", help="where the data goes: a directory on the disk to measure")
    arguments = parser.parse_args()
    missing = not installed("redis-server")
    print("| bytes | sync | what               | zbus /s   | redis /s  | ratio  |")
    print("|---|---|---|---|---|---|")
    for level, fsync in (("disk", "always"), ("os", "everysec")):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder)))
            (folder / "zbus").mkdir()
            url = stack.enter_context(broker(folder / "zbus"))
            client = None if missing else stack.enter_context(redis_client(folder, fsync))
            for size in arguments.size or (100, 1024):
                compare(url, level, client, size, arguments.seconds)


if __name__ == "__main__":
    main()
