"""kill -9 workers of a server, and now and then their parent, while clients put, take and
acknowledge over all topics:

    python -m tests.process.worker_kills --seconds 600     (make crash-workers)

Each message is put once. The book says at the end: what was confirmed is there once, and what was
confirmed to be acknowledged did not come again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.process.broker import BrokerProcess

TOPICS = [f"k{number}" for number in range(9)]
PRODUCERS, CONSUMERS = 6, 4
FAILED = (OSError, http.client.HTTPException)
TIMEOUT_S = 30


class Book:
    """What clients know."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.put: set[str] = set()  # confirmed
        self.acked: dict[str, float] = {}  # confirmed, and when
        self.late: list[str] = []  # delivered after that
        self.refused: Counter[str] = Counter()
        self.slow_s: list[float] = []


class Reached(Protocol):
    """What clients connect to."""

    @property
    def address(self) -> str: ...


class Client:
    """One connection, made anew when it fails."""

    def __init__(self, server: Reached, book: Book) -> None:
        self._server = server
        self._book = book
        self._wire: http.client.HTTPConnection | None = None

    def ask(self, target: str, body: str | None = None) -> tuple[int, http.client.HTTPMessage, str]:
        """Status 0: it is not known what became of it."""
        began = time.monotonic()
        try:
            if self._wire is None:
                self._wire = http.client.HTTPConnection(self._server.address, timeout=TIMEOUT_S)
            self._wire.request("POST" if body is not None else "GET", target, body)
            answer = self._wire.getresponse()
            found = answer.status, answer.headers, answer.read().decode()
        except FAILED as error:
            found = 0, http.client.HTTPMessage(), self._name(error, target, began)
            self._wire = None
            time.sleep(0.02)
        with self._book.lock:
            if found[0] not in (200, 204):
                self._book.refused[str(found[0] or found[2])] += 1
            self._book.slow_s.append(time.monotonic() - began)
        return found

    def _name(self, error: Exception, target: str, began_s: float) -> str:
        """What the book calls it."""
        if isinstance(error, TimeoutError) and self._wire is not None:
            at = f"{self._wire.host}:{self._wire.port}"
            now = time.strftime("%H:%M:%S")
            told = f"{now} no answer at {at} after {time.monotonic() - began_s:.0f} s: {target}"
            print(told, file=sys.stderr)
        return type(error).__name__


class Server:
    """The server, and its end."""

    def __init__(self, data_dir: Path, workers: int) -> None:
        self._options = ("--workers", str(workers), "--set", "connections_per_address_max=0")
        self._data_dir = data_dir
        self._broker = BrokerProcess(data_dir, *self._options)
        self.port = self._broker.port
        self.address = f"127.0.0.1:{self.port}"
        self.kills = Counter[str]()

    def workers(self) -> list[int]:
        pid = str(self._broker.process.pid)
        found = subprocess.run(["pgrep", "-P", pid], capture_output=True)
        return [int(each) for each in found.stdout.split()]

    def kill_one(self, rnd: random.Random) -> None:
        pids = self.workers()
        if pids:
            os.kill(rnd.choice(pids), signal.SIGKILL)
            self.kills["worker"] += 1

    def kill_parent(self) -> None:
        """Its workers end by themselves; what they hold until then is waited for."""
        pids = self.workers()
        self._broker.kill()
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.05)
        self._broker = BrokerProcess(self._data_dir, *self._options, port=self.port)
        self.kills["parent"] += 1

    def stop(self) -> int:
        return self._broker.stop()

    def log(self) -> str:
        return self._broker.log()


def produce(name: int, client: Client, book: Book, over: threading.Event) -> None:
    rnd, number = random.Random(name), 0
    while not over.is_set():
        number += 1
        body = f"{name}-{number}"
        if client.ask(f"/{rnd.choice(TOPICS)}", body)[0] == 200:
            with book.lock:
                book.put.add(body)


def consume(name: int, client: Client, book: Book, over: threading.Event) -> None:
    rnd = random.Random(name)
    while not over.is_set():
        topic = rnd.choice(TOPICS)
        status, headers, body = client.ask(f"/{topic}/g?cmd=consume&timeout=200")
        if status != 200:
            continue
        with book.lock:
            if body in book.acked:
                book.late.append(body)
        if client.ask(f"/{topic}/g?cmd=ack&offset={headers['offset']}")[0] == 200:
            with book.lock:
                book.acked[body] = time.monotonic()


def left_for_group(client: Client, topic: str) -> Iterator[str]:
    """Each is acknowledged: it would come again when its lease is over, perhaps for ever."""
    while (answer := client.ask(f"/{topic}/g?cmd=consume&timeout=0"))[0] != 204:
        if answer[0] == 200:
            client.ask(f"/{topic}/g?cmd=ack&offset={answer[1]['offset']}")
            yield answer[2]


def judge(server: Server, book: Book) -> dict[str, object]:
    """Read all logs, and what is left for the group."""
    client, stored = Client(server, book), Counter[str]()
    for topic in TOPICS:
        while (answer := client.ask(f"/{topic}/all?cmd=consume&timeout=0"))[0] != 204:
            stored[answer[2]] += answer[0] == 200
    time.sleep(3)  # leases end
    again: list[str] = []
    for topic in TOPICS:
        again += [body for body in left_for_group(client, topic) if body in book.acked]
    slow = sorted(book.slow_s)
    return {
        "kills": dict(server.kills),
        "put": len(book.put),
        "acknowledged": len(book.acked),
        "lost": len(book.put - stored.keys()),
        "twice": sum(count > 1 for count in stored.values()),
        "again after a confirmed ack": len({*book.late, *again}),
        "refused or unknown": dict(book.refused),
        "p99_s": round(slow[len(slow) * 99 // 100], 3),
        "longest_s": round(slow[-1], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    rnd, book, over = random.Random(options.seed), Book(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="zbus-workers-") as directory:
        server = Server(Path(directory) / "data", options.workers)
        setup = Client(server, book)
        for topic in TOPICS:
            for words in ("group=all", "group=g&ack=true&group_lease=2s"):
                assert setup.ask(f"/{topic}?cmd=declare&{words}")[0] == 200
        jobs = [(produce, n) for n in range(PRODUCERS)] + [(consume, n) for n in range(CONSUMERS)]
        threads = [
            threading.Thread(target=job, args=(name, Client(server, book), book, over))
            for job, name in jobs
        ]
        for thread in threads:
            thread.start()
        end_s = time.monotonic() + options.seconds
        while time.monotonic() < end_s:
            time.sleep(rnd.uniform(0.5, 3))
            if rnd.random() < 0.1:
                server.kill_parent()
            else:
                server.kill_one(rnd)
        time.sleep(6)  # the last one is there again
        over.set()
        for thread in threads:
            thread.join()
        found = judge(server, book)
        found["exit code"] = server.stop()
        log = server.log()
        found["tracebacks"] = log.count("Traceback")
    if found["tracebacks"]:
        print(log[log.index("Traceback") :][:10_000], file=sys.stderr)
    print(json.dumps({"seed": options.seed, **found}))
    wrong = ("lost", "twice", "again after a confirmed ack", "exit code", "tracebacks")
    return int(any(found[name] for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
