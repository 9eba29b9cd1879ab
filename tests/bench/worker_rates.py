"""What several processes of a server give, and what they cost, in one run.

    python -m tests.bench.worker_rates [--workers 2] [--rounds 3] [--seconds 6]

Durability `os`, bodies of 100 bytes, 32 connections. Pairs are a pull of 16 messages and their
acknowledgement over eight topics, half of them in each process, made by wrk with a thread for each
process, so that the generator takes little of the cores; servers of one process and of several take
turns. Then what a put costs all processes together, kernel included: to a topic of the process that
has the connection, and to topics of others; and what a client that takes nothing costs others. At
the end the start of a server that has 1,000 topics, and the memory of a process that has nothing to
do.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from contextlib import ExitStack, closing
from itertools import count, islice
from pathlib import Path
from statistics import median

from tests.bench.dialect_rates import BODY, Kind, always, is_http, run
from tests.bench.large import folder, timed_start
from tests.bench.measure import HERE, need, run_seconds, show
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe, ask
from zbus.protocol.places import shard_of

CONNECTIONS = 32
TOPICS = 8
MANY = 1_000
PIPELINED = 16


def topics_of(shard: int, shards: int, most: int) -> list[str]:
    names = (f"T{number}" for number in count())
    return list(islice((name for name in names if shard_of(name, shards) == shard), most))


def processes(broker: BrokerProcess) -> list[int]:
    """Parent and workers."""
    parent = broker.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *(int(pid) for pid in children)]


def all_seconds(broker: BrokerProcess) -> float:
    return sum(run_seconds(pid) for pid in processes(broker))


def tell_all(broker: BrokerProcess, targets: list[str], body: bytes = b"") -> None:
    """Each must be a success."""
    pipe = Pipe(broker.port)
    with closing(pipe.sock):
        for begin in range(0, len(targets), 200):
            some = targets[begin : begin + 200]
            pipe.send(b"".join([ask(target, body) for target in some]))
            for target in some:
                reply = pipe.read()
                assert reply.status == 200, (target, reply)


def pairs(broker: BrokerProcess, topics: list[list[str]], seconds: int) -> tuple[float, float]:
    """How many a second, and the microseconds of all processes for one."""
    need("wrk")
    words = [",".join(some) for some in topics]
    url = f"http://127.0.0.1:{broker.port}"
    command = ["wrk", f"-t{len(words)}", f"-c{CONNECTIONS}", f"-d{seconds}s"]
    command += ["-s", str(HERE / "pairs.lua"), url, "--", *words]
    before = all_seconds(broker)
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu_s = all_seconds(broker) - before
    assert "Non-2xx" not in printed, printed
    found = re.search(r"(\d+) requests in ", printed)
    assert found is not None, printed
    done = int(found[1]) / 2
    return done / seconds, cpu_s / done * 1e6


def throughput(workers: int, rounds: int, seconds: int) -> None:
    topics = [topics_of(shard, workers, TOPICS // workers) for shard in range(workers)]
    names = [name for some in topics for name in some]
    each = 160_000 * seconds // len(names)
    taken: dict[int, list[tuple[float, float]]] = {1: [], workers: []}
    for _ in range(rounds):
        for processes_ in taken:
            with folder() as data_dir:
                broker, _ = timed_start(
                    data_dir, "--durability", "os", "--workers", str(processes_)
                )
                with broker:
                    tell_all(broker, [f"/{name}?cmd=declare&ack=true" for name in names])
                    for name in names:
                        tell_all(broker, [f"/{name}?cmd=produce"] * each, BODY)
                    taken[processes_].append(pairs(broker, topics, seconds))
                    broker.stop()  # a parent that is killed leaves its processes for a moment
    rates = {n: median([rate for rate, _ in some]) for n, some in taken.items()}
    costs = {n: min([cost for _, cost in some]) for n, some in taken.items()}
    for n in taken:
        show(what="pull and ack", workers=n, a_second=rates[n], cpu_us=costs[n])
    show(what="pull and ack", workers=workers, of_one=rates[workers] / rates[1])


def cost(broker: BrokerProcess, first: str, topics: list[str], seconds: float) -> float:
    """Microseconds of all processes for a put to these topics in turn, over connections to the
    process that has the topic `first`."""
    put = [always(ask(f"/{topic}?cmd=produce", BODY)) for topic in topics]
    kind = Kind("put", ask(f"/{first}?cmd=query"), put, is_http)
    before = all_seconds(broker)
    done, _, _ = run(broker.port, broker.process.pid, kind, CONNECTIONS, seconds, 1 << 60)
    return (all_seconds(broker) - before) / (done * len(put)) * 1e6


def pipelined(broker: BrokerProcess, first: str, topics: list[str], seconds: float) -> float:
    """The same if each connection sends several before it reads."""
    some = [topics[number % len(topics)] for number in range(PIPELINED)]
    data = b"".join([ask(f"/{topic}?cmd=produce", BODY) for topic in some])
    with ExitStack() as stack:
        pipes = [Pipe(broker.port) for _ in range(CONNECTIONS)]
        for pipe in pipes:
            stack.enter_context(closing(pipe.sock))
            pipe.send(ask(f"/{first}?cmd=query"))
            assert pipe.read().status == 200
        before, began_s, done = all_seconds(broker), time.monotonic(), 0
        while time.monotonic() - began_s < seconds:
            for pipe in pipes:
                pipe.send(data)
            for pipe in pipes:
                for _ in some:
                    assert pipe.read().status == 200
            done += CONNECTIONS * PIPELINED
        return (all_seconds(broker) - before) / done * 1e6


def costs(rounds: int, seconds: float) -> None:
    shards = 4
    names = [topics_of(shard, shards, 1)[0] for shard in range(shards)]
    with folder() as one_dir, folder() as four_dir:
        one, _ = timed_start(one_dir, "--durability", "os")
        four, _ = timed_start(four_dir, "--durability", "os", "--workers", str(shards))
        with one, four:
            for broker in (one, four):
                tell_all(broker, [f"/{name}?cmd=declare" for name in names])
            ways = {"one at a time": cost, f"{PIPELINED} at a time": pipelined}
            kinds = {
                "one process": (one, names[0], names[:1]),
                "of four, direct": (four, names[0], names[:1]),
                "of four, passed on": (four, names[0], names[1:]),
            }
            for way, measure in ways.items():
                taken: dict[str, list[float]] = {kind: [] for kind in kinds}
                for _ in range(rounds):
                    for kind, asked in kinds.items():
                        taken[kind].append(measure(*asked, seconds))
                for kind, some in taken.items():
                    of_one = min(some) / min(taken["one process"])
                    show(what=f"put, {way}, {kind}", cpu_us=min(some), of_one=of_one)


def latencies(pipes: list[Pipe], request: bytes, rounds: int) -> list[float]:
    """Milliseconds of each of them, one after another."""
    took_ms = []
    for _ in range(rounds):
        for pipe in pipes:
            began_s = time.perf_counter()
            pipe.send(request)
            assert pipe.read().status == 200
            took_ms.append((time.perf_counter() - began_s) * 1e3)
    return took_ms


def beside_one_that_takes_nothing(rounds: int) -> None:
    """Puts of 1,000 clients to a topic of the other process, without and with a client that asks
    that process for 64 MiB and reads none of it."""
    own, other = (topics_of(shard, 2, 1)[0] for shard in range(2))
    stay = ask(f"/{own}?cmd=query")  # so they are clients of the process that has this topic
    put = ask(f"/{other}?cmd=produce", BODY)
    taken: dict[str, list[float]] = {"nobody": [], "one": []}
    with folder() as data_dir, ExitStack() as stack:
        broker, _ = timed_start(
            data_dir, "--durability=os", "--workers=2", "--set", "connections_per_address_max=0"
        )
        with broker:
            tell_all(broker, [f"/{name}?cmd=declare" for name in (own, other)])
            tell_all(broker, [f"/{other}?cmd=produce"], b"x" * (1 << 20))
            pipes = [Pipe(broker.port) for _ in range(MANY + 1)]
            for pipe in pipes:
                stack.enter_context(closing(pipe.sock))
                pipe.send(stay)
                assert pipe.read().status == 200
            stalled = pipes.pop()
            latencies(pipes, put, 1)
            taken["nobody"] += latencies(pipes, put, rounds)
            stalled.send(ask(f"/{other}?cmd=consume&offset=0") * 64)
            taken["one"] += latencies(pipes, put, rounds)
            broker.stop()
    for stalls, some in taken.items():
        p50_ms, p99_ms = (sorted(some)[int(len(some) * share)] for share in (0.5, 0.99))
        show(what=f"a put of 1,000 clients, {stalls} takes nothing", p50_ms=p50_ms, p99_ms=p99_ms)


def start_and_memory() -> None:
    for workers in (1, 4):
        with folder() as data_dir:
            options = ("--durability", "os", "--workers", str(workers))
            broker, empty_s = timed_start(data_dir, *options)
            with broker:
                memory = [private_bytes(pid) / 2**20 for pid in processes(broker)]
                tell_all(broker, [f"/N{number}?cmd=declare" for number in range(MANY)])
                broker.stop()
            broker, took_s = timed_start(data_dir, *options)
            with broker:
                show(
                    what="start",
                    workers=workers,
                    empty_s=empty_s,
                    topics=MANY,
                    took_s=took_s,
                    mib_of_each_idle=", ".join(f"{one:.1f}" for one in memory),
                )


def private_bytes(pid: int) -> int:
    """Of a process, with its share of what it has in common with others."""
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=6)
    chosen = parser.parse_args()
    throughput(chosen.workers, chosen.rounds, chosen.seconds)
    costs(chosen.rounds, 1)
    beside_one_that_takes_nothing(10 * chosen.rounds)
    start_and_memory()


if __name__ == "__main__":
    main()
