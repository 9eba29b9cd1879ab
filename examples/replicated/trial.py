"""Replicated messages on one machine: three NATS servers, an owner and a standby, and failures;
or with `--shards 6` three nodes of a cluster.

    make trial
    make trial ARGS="--shards 6"

It starts them in a folder of its own, produces and consumes all the time, kills a NATS server, then
the owner or a node with all of its processes, and says what a client saw. Nothing is left behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import trustme

import zbus
import zbus.client
from tests.process.nats import NatsCluster, free_ports

TOPICS = [f"Orders{number}" for number in range(6)]
RELAY_PORT = 15_600
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
        self._taken_s = self.begun_s

    def take(self, body: str) -> None:
        """A message was delivered."""
        now_s = time.monotonic()
        self.taken.append(body)
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._taken_s)
        self._taken_s = now_s

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begun_s:5.1f} s  {text}", flush=True)


def produce(url: str, book: Book) -> None:
    """Until it is stopped. Each message has an idempotency key, so it may be sent again."""
    with zbus.connect(url, retries=30) as client:
        number = 0
        while not book.stopped:
            body, begun_s = f"order {number}", time.monotonic()
            client.produce(TOPICS[number % len(TOPICS)], body)
            book.longest_put_s = max(book.longest_put_s, time.monotonic() - begun_s)
            book.stored.append(body)
            number += 1
            time.sleep(PAUSE_S)


def consume(url: str, topic: str, book: Book) -> None:
    """Until it has all that was produced."""
    with zbus.connect(url, retries=30) as client:
        while not (book.stopped and len(set(book.taken)) >= len(book.stored)):
            try:
                with client.consume(topic, "billing", timeout_ms=1_000) as messages:
                    for message in messages:
                        book.take(message.text)
            except zbus.client.ZbusError as error:
                book.say(f"the consumer of {topic} goes on after: {error}")


class Broker:
    """One on a port that the system picks: an owner or a standby, or a node of a cluster."""

    def __init__(self, servers: NatsCluster, folder: Path, name: str, options: list[str]) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "zbus", "serve", "--port", str(port), "--node", name]
        command += ["--engine", servers.engine("trial"), "--data-dir", str(folder / name)]
        with (folder / f"{name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command + options, stdout=log, stderr=log, start_new_session=True
            )
        while self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)

    def kill(self) -> None:
        """All of its processes at once, like a machine without power."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def relay_options(folder: Path, shards: int, number: int, authority: trustme.CA) -> list[str]:
    """How a node reaches the others; certificates are made with openssl elsewhere."""
    certificate = folder / f"node{number}.pem"
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert(f"node{number}").private_key_and_cert_chain_pem.write_to_path(certificate)
    port = RELAY_PORT + number * shards
    words = ["--shards", str(shards), "--set", f"relay_listen=127.0.0.1:{port}"]
    words += ["--set", f"relay_ca_file={folder}/ca.pem", "--set", f"relay_cert_file={certificate}"]
    return words


def run(folder: Path, shards: int) -> int:
    """The exit code: 0 if nothing was lost."""
    book, authority = Book(), trustme.CA()
    names = ["first", "second"] if shards == 1 else ["a", "b", "c"]
    with NatsCluster(folder) as servers:
        book.say("three NATS servers run")
        brokers: list[Broker] = []
        for number, name in enumerate(names):
            options = [] if shards == 1 else relay_options(folder, shards, number, authority)
            brokers.append(Broker(servers, folder, name, options))
            if not number:
                with zbus.connect(f"zbus://{brokers[0].address}", retries=30) as client:
                    for topic in TOPICS:
                        client.declare(topic, "billing", ack=True)
        url = "zbus://" + ",".join(broker.address for broker in brokers)
        kinds = "an owner and a standby" if shards == 1 else f"three nodes with {shards} shards"
        book.say(f"{kinds} run; clients have the address {url}")
        threads = [threading.Thread(target=produce, args=(url, book))]
        threads += [threading.Thread(target=consume, args=(url, each, book)) for each in TOPICS]
        for thread in threads:
            thread.start()
        begun_s = time.monotonic()
        time.sleep(FAILURES_S[0])
        leader = servers.leader("zbus-trial-0") or 0
        servers.kill(leader)
        book.say(f"killed NATS server {leader}, which led a stream; {len(book.stored)} stored")
        time.sleep(max(0.0, begun_s + FAILURES_S[1] - time.monotonic()))
        book.say(f"longest produce so far {book.longest_put_s:.1f} s")
        book.longest_put_s = book.longest_gap_s = 0.0
        brokers.pop(0).kill()
        what = "the owner" if shards == 1 else "node a"
        book.say(f"killed {what}; {len(book.stored)} stored, {len(set(book.taken))} consumed")
        time.sleep(max(0.0, begun_s + END_S - time.monotonic()))
        book.stopped = True
        for thread in threads:
            thread.join()
        put_s, gap_s = book.longest_put_s, book.longest_gap_s
        book.say(f"longest produce {put_s:.1f} s, longest without a message {gap_s:.1f} s")
        for broker in brokers:
            broker.stop()
    lost = set(book.stored) - set(book.taken)
    again = len(book.taken) - len(set(book.taken))
    book.say(f"{len(book.stored)} stored, {len(lost)} lost, {again} delivered again")
    return 1 if lost else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=1)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run(Path(folder), parser.parse_args().shards))
