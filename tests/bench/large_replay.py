"""Latency of live messages while another group replays gigabytes of history.

    python -m tests.bench.large_replay [--gb 5] [--rounds 3] [--seconds 6]

Messages are put at a steady rate and received by waiting consumers of a topic; in every second
phase another process reads history in batches, from the beginning of a topic whose pages were
dropped from the system's cache. History is the same topic for `disk`, and another one for `os`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import select
import statistics
import time
from multiprocessing.synchronize import Event

from tests.bench.large import fill, folder, forget_caches, timed_start
from tests.bench.measure import show
from tests.process.pipe import Pipe, ask

RATE = 1_500  # live messages a second
CONSUMERS = 4
LATE_S_MAX = 60.0  # of the last message
HISTORY = "LiveDisk"
TOPICS = {"disk": HISTORY, "os": "LiveOs"}


def replay(port: int, stop: Event, read: multiprocessing.Queue[float]) -> None:
    """Read history with a group of its own, again and again, until told to stop; MB a second."""
    total, began = 0, time.monotonic()
    with Pipe(port) as pipe:
        while not stop.is_set():
            reply = pipe.get(f"/{HISTORY}/replay?cmd=consume&batch=1000&timeout=0")
            total += len(reply.body)
            if reply.status == 204:
                pipe.get(f"/{HISTORY}/replay?cmd=declare&group_start_offset=0")
    read.put(total / 1e6 / (time.monotonic() - began))


def live(port: int, topic: str, seconds: float) -> list[float]:
    """Put at a steady rate, receive as it comes; the latencies in milliseconds, sorted."""
    producer = Pipe(port)
    consumers = [Pipe(port) for _ in range(CONSUMERS)]
    take = ask(f"/{topic}/live?cmd=consume")
    pipes = {pipe.sock.fileno(): pipe for pipe in [producer, *consumers]}
    poll = select.epoll()
    for number in pipes:
        poll.register(number, select.EPOLLIN)
    for pipe in consumers:
        pipe.send(take)
    latencies: list[float] = []
    began = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) < began + seconds or len(latencies) < sent:
        assert now < began + seconds + LATE_S_MAX, f"{len(latencies)} of {sent} came"
        while sent < (min(now, began + seconds) - began) * RATE:
            producer.send(ask(f"/{topic}?cmd=produce", b"%.6f" % time.perf_counter()))
            sent += 1
        for number, _ in poll.poll(0.0003):
            if number == producer.sock.fileno():
                producer.sock.recv(1 << 16)  # its answers are not looked at
                continue
            body = pipes[number].read().body
            latencies.append((time.perf_counter() - float(body)) * 1e3)
            pipes[number].send(take)
    poll.close()
    for pipe in pipes.values():
        pipe.close()
    return sorted(latencies)


def with_replay(port: int, topic: str, seconds: float) -> tuple[list[float], float]:
    """The same while history is read; and how fast it was."""
    with Pipe(port) as pipe:
        pipe.get(f"/{HISTORY}/replay?cmd=declare&group_start_offset=0")
    forget_caches()
    stop = multiprocessing.Event()
    read: multiprocessing.Queue[float] = multiprocessing.Queue()
    reader = multiprocessing.Process(target=replay, args=(port, stop, read))
    reader.start()
    latencies = live(port, topic, seconds)
    stop.set()
    speed = read.get(timeout=60)
    reader.join()
    return latencies, speed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    chosen = parser.parse_args()
    with folder() as data_dir:
        broker, _ = timed_start(data_dir)
        for durability, topic in TOPICS.items():
            broker.get(f"/{topic}?cmd=declare&durability={durability}")
        fill(broker, [HISTORY], int(chosen.gb * 1e9))
        for topic in TOPICS.values():  # at the end of the log, unlike the first group
            broker.get(f"/{topic}?cmd=empty&group={topic}")
            broker.get(f"/{topic}/live?cmd=declare")
        for durability, topic in TOPICS.items():
            alone: list[float] = []
            beside: list[float] = []
            speeds = []
            for _ in range(chosen.rounds):
                latencies = live(broker.port, topic, chosen.seconds)
                alone.append(latencies[len(latencies) * 99 // 100])
                latencies, speed = with_replay(broker.port, topic, chosen.seconds)
                beside.append(latencies[len(latencies) * 99 // 100])
                speeds.append(speed)
            show(
                durability=durability,
                p99_ms=statistics.median(alone),
                p99_with_replay_ms=statistics.median(beside),
                ratio=statistics.median(beside) / statistics.median(alone),
                replay_mb_s=statistics.median(speeds),
            )
        broker.stop()


if __name__ == "__main__":
    main()
