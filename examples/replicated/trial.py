"""Replicated messages on one machine: three NATS servers, an owner and a standby, and failures.

    make trial

It starts them in a folder of its own, produces and consumes all the time, kills a NATS server, then
the owner, and says what a client saw. Nothing is left behind.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import zbus
import zbus.client
from tests.process.nats import NatsCluster, free_ports

TOPIC = "Orders"
FAILURES_S = (4, 16)
"""When the NATS server is killed, and when the owner."""
END_S = 28
PAUSE_S = 0.01


class Book:
    """What clients saw."""

    def __init__(self) -> None:
        self.begun_s = time.monotonic()
        self.stored: list[str] = []
        self.taken: list[str] = []
        self.longest_put_s = self.longest_gap_s = 0.0
        self.stopped = False

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begun_s:5.1f} s  {text}", flush=True)


def produce(url: str, book: Book) -> None:
    """Until it is stopped. Each message has an idempotency key, so it may be sent again."""
    with zbus.connect(url, retries=30) as client:
        number = 0
        while not book.stopped:
            body, begun_s = f"order {number}", time.monotonic()
            client.produce(TOPIC, body)
            book.longest_put_s = max(book.longest_put_s, time.monotonic() - begun_s)
            book.stored.append(body)
            number += 1
            time.sleep(PAUSE_S)


def consume(url: str, book: Book) -> None:
    """Until it has all that was produced."""
    last_s = time.monotonic()
    with zbus.connect(url, retries=30) as client:
        while not (book.stopped and len(set(book.taken)) >= len(book.stored)):
            try:
                with client.consume(TOPIC, "billing", timeout_ms=1_000) as messages:
                    for message in messages:
                        book.taken.append(message.text)
                        now_s = time.monotonic()
                        book.longest_gap_s = max(book.longest_gap_s, now_s - last_s)
                        last_s = now_s
            except zbus.client.ZbusError as error:
                book.say(f"the consumer goes on after: {error}")


def serve(cluster: NatsCluster, folder: Path, name: str) -> tuple[subprocess.Popen[bytes], str]:
    """A broker on a port that the system picks, and its address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "zbus", "serve", "--port", str(port), "--set", f"node={name}"]
    command += ["--engine", cluster.engine("trial"), "--data-dir", str(folder / name)]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    return process, f"127.0.0.1:{port}"


def run(folder: Path) -> int:
    """The exit code: 0 if nothing was lost."""
    book = Book()
    with NatsCluster(folder) as cluster:
        book.say("three NATS servers run")
        owner, first = serve(cluster, folder, "first")
        url = f"zbus://{first}"
        with zbus.connect(url, retries=30) as client:
            client.declare(TOPIC, "billing", ack=True)
            book.say(f"the owner serves at {first}")
        standby, second = serve(cluster, folder, "second")
        url += f",{second}"
        book.say(f"a standby waits; clients have the address {url}")
        threads = [threading.Thread(target=role, args=(url, book)) for role in (produce, consume)]
        for thread in threads:
            thread.start()
        begun_s = time.monotonic()
        time.sleep(FAILURES_S[0])
        leader = cluster.leader("zbus-trial-0") or 0
        cluster.kill(leader)
        book.say(f"killed NATS server {leader}, which led the stream; {len(book.stored)} stored")
        time.sleep(max(0.0, begun_s + FAILURES_S[1] - time.monotonic()))
        book.say(f"longest produce so far {book.longest_put_s:.1f} s")
        book.longest_put_s = book.longest_gap_s = 0.0
        owner.kill()
        owner.wait()
        book.say(f"killed the owner; {len(book.stored)} stored, {len(set(book.taken))} consumed")
        time.sleep(max(0.0, begun_s + END_S - time.monotonic()))
        book.stopped = True
        for thread in threads:
            thread.join()
        gap_s = book.longest_gap_s
        book.say(
            f"longest produce {book.longest_put_s:.1f} s, longest without a message {gap_s:.1f} s"
        )
        standby.terminate()
        standby.wait()
    lost = set(book.stored) - set(book.taken)
    again = len(book.taken) - len(set(book.taken))
    book.say(f"{len(book.stored)} stored, {len(lost)} lost, {again} delivered again")
    return 1 if lost else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run(Path(folder)))
