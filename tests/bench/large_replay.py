"""Latency of live messages while another group replays gigabytes of cold history.

    python -m tests.bench.large_replay [--quick] [--gb 5] [--rounds 5] [--seconds 6]

Messages are put at a steady rate and received by waiting consumers: without a replay, beside one,
and beside a program that merely reads as much of the same files; in turn, for several rounds, and
the medians count. The replay takes batches of 1,000 as fast as they come, from the beginning of a
topic whose pages the system was told to forget, and never comes to its end. History is the same
topic for `disk`, and another one for `os`.

The third kind of phase tells what is the disk's doing: a sync waits for whatever else the disk has
to do. Generator, reader and broker share the machine; `slip_ms` is how late the generator itself
was with a message (p99), and where that is not small, it was the machine that was measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from tests.bench.drain import MESSAGES, Answers
from tests.bench.large import fill, folder, timed_start
from tests.bench.measure import Server, run_seconds, show
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe, ask

PIECE_BYTES = 128 << 10
RATE = 2_000  # live messages a second
CONSUMERS = 4
LATE_S_MAX = 60.0  # of the last message
HISTORY = "LiveDisk"
TOPICS = {"disk": HISTORY, "os": "LiveOs"}


class Phase(NamedTuple):
    """Some seconds of live messages; milliseconds."""

    p50_ms: float
    p99_ms: float
    slip_ms: float
    cpu: float  # of a core, in the broker


class Read(NamedTuple):
    """What was read beside them."""

    read_mb_s: float  # by the client
    disk_mb_s: float  # from the disk, because it was not in the system's cache


def forget(data_dir: Path) -> None:
    """Nothing of these files stays in the system's cache."""
    for path in data_dir.rglob("*.log"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(file)  # what is not on the disk yet cannot be dropped
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def fetched_bytes(pid: int) -> int:
    """What a process has had read from the disk."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise AssertionError("the system does not count what is read")


def replay(server: Server, group: str, going: Event, stop: Event, told: Connection) -> None:
    """Read history from its beginning until told to stop."""
    answers = Answers()
    request = ask(f"/{HISTORY}/{group}?cmd=consume&batch=1000&timeout=0", b"", MESSAGES)
    with Pipe(server.port) as pipe:
        pipe.get(f"/{HISTORY}/{group}?cmd=declare&group_start_offset=0")
        began, fetched = time.monotonic(), fetched_bytes(server.pid)
        while not stop.is_set():
            pipe.send(request)
            assert answers.read(pipe.sock), "all history was read: make it longer (--gb)"
            going.set()
        seconds = time.monotonic() - began
        fetched = fetched_bytes(server.pid) - fetched
        pipe.get(f"/{HISTORY}/{group}?cmd=remove")
    told.send(Read(answers.received / 1e6 / seconds, fetched / 1e6 / seconds))


def read_files(
    paths: Sequence[Path], mb_s: float, going: Event, stop: Event, told: Connection
) -> None:
    """Read these files at a pace, from the beginning, until told to stop."""
    began, total = time.monotonic(), 0
    going.set()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while not stop.is_set() and (data := file.read(PIECE_BYTES)):
                total += len(data)
                stop.wait(max(0.0, began + total / 1e6 / mb_s - time.monotonic()))
    assert stop.is_set(), "all history was read: make it longer (--gb)"
    read = total / 1e6 / (time.monotonic() - began)
    told.send(Read(read, read))


def percentile(values: list[float], part: int) -> float:
    return sorted(values)[len(values) * part // 100]


def live(server: Server, topic: str, seconds: float) -> Phase:
    """Put at a steady rate, receive as it comes."""
    producer = Pipe(server.port)
    consumers = [Pipe(server.port) for _ in range(CONSUMERS)]
    take = ask(f"/{topic}/live?cmd=consume")
    pipes = {pipe.sock: pipe for pipe in [producer, *consumers]}
    for pipe in consumers:
        pipe.send(take)
    latencies: list[float] = []
    slips: list[float] = []
    began, ran = time.perf_counter(), run_seconds(server.pid)
    count = int(seconds * RATE)
    while len(latencies) < count:
        now = time.perf_counter()
        assert now < began + seconds + LATE_S_MAX, f"{len(latencies)} of {count} came"
        while len(slips) < count and (due := began + len(slips) / RATE) <= now:
            now = time.perf_counter()
            producer.send(ask(f"/{topic}?cmd=produce", b"%.6f" % now))
            slips.append((now - due) * 1e3)
        wait = began + len(slips) / RATE - now if len(slips) < count else 1.0
        for sock in select.select(pipes, (), (), max(0.0, wait))[0]:
            if sock is producer.sock:
                sock.recv(1 << 16)  # its answers are not looked at
                continue
            body = pipes[sock].read().body
            latencies.append((time.perf_counter() - float(body)) * 1e3)
            pipes[sock].send(take)
    ran = (run_seconds(server.pid) - ran) / (time.perf_counter() - began)
    for pipe in pipes.values():
        pipe.close()
    return Phase(percentile(latencies, 50), percentile(latencies, 99), percentile(slips, 99), ran)


def live_beside(
    reader: Callable[..., None],
    arguments: tuple[object, ...],
    server: Server,
    topic: str,
    seconds: float,
) -> tuple[Phase, Read]:
    """The same while another process reads."""
    going, stop = multiprocessing.Event(), multiprocessing.Event()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=reader, args=(*arguments, going, stop, theirs))
    process.start()
    theirs.close()
    try:
        assert going.wait(30)
        phase = live(server, topic, seconds)
    finally:
        stop.set()
    read = ours.recv()
    process.join()
    return phase, read


def compare(server: Server, durability: str, chosen: argparse.Namespace, data_dir: Path) -> None:
    """Some rounds of the three kinds of phases."""
    topic = TOPICS[durability]
    paths = sorted(data_dir.joinpath(HISTORY).rglob("*.log"))
    alone: list[Phase] = []
    beside: list[Phase] = []
    control: list[Phase] = []
    for turn in range(chosen.rounds):
        alone.append(live(server, topic, chosen.seconds))
        show(phase=f"{durability} alone", **alone[-1]._asdict())
        forget(data_dir)
        group = f"replay-{durability}-{turn}"
        found, read = live_beside(replay, (server, group), server, topic, chosen.seconds)
        beside.append(found)
        show(phase=f"{durability} beside a replay", **found._asdict(), **read._asdict())
        forget(data_dir)
        found, read = live_beside(
            read_files, (paths, max(1.0, read.disk_mb_s)), server, topic, chosen.seconds
        )
        control.append(found)
        show(phase=f"{durability} beside a reader of files", **found._asdict(), **read._asdict())
    one, other, files = median(alone), median(beside), median(control)
    show(
        durability=durability,
        p50_ms=one.p50_ms,
        p99_ms=one.p99_ms,
        replay_p50_ms=other.p50_ms,
        replay_p99_ms=other.p99_ms,
        files_p99_ms=files.p99_ms,
        p50_ratio=other.p50_ms / one.p50_ms,
        p99_ratio=other.p99_ms / one.p99_ms,
        files_p99_ratio=files.p99_ms / one.p99_ms,
    )


def median(phases: Sequence[Phase]) -> Phase:
    return Phase(*(statistics.median(column) for column in zip(*phases, strict=True)))


def prepare(broker: BrokerProcess, gb: float) -> None:
    """The history, and groups at its end."""
    for durability, topic in TOPICS.items():
        broker.get(f"/{topic}?cmd=declare&durability={durability}")
    fill(broker, [HISTORY], int(gb * 1e9))
    for topic in TOPICS.values():  # at the end of the log, unlike the first group
        broker.get(f"/{topic}?cmd=empty&group={topic}")
        broker.get(f"/{topic}/live?cmd=declare")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--durability", choices=list(TOPICS), action="append")
    parser.add_argument("--quick", action="store_true", help="about two minutes")
    chosen = parser.parse_args()
    usual = (
        {"gb": 3.0, "rounds": 3, "seconds": 4.0}
        if chosen.quick
        else {"gb": 5.0, "rounds": 5, "seconds": 6.0}
    )
    for name, value in usual.items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    with folder() as data_dir:
        broker, _ = timed_start(data_dir)
        with broker:
            prepare(broker, chosen.gb)
            try:
                for durability in chosen.durability or TOPICS:
                    compare(Server.of(broker), durability, chosen, data_dir)
            except OSError:
                print(f"the broker's exit code: {broker.process.poll()}, its log:\n{broker.log()}")
                raise
            broker.stop()


if __name__ == "__main__":
    main()
