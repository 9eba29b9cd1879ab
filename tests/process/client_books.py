"""What producers and a consumer group see of a replicated topic, each client for itself.

Every produce has an idempotency key, so nothing may be in the log twice, however often it was sent.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import zbus
import zbus.client

TOPIC: Final = "Orders"
GROUP: Final = "billing"
PRODUCERS: Final = 3
WAIT_S: Final = 90.0
AGAIN_S: Final = 0.2
SHOWN_MAX: Final = 20
TRANSIENT: Final = (zbus.client.ConnectionLost, zbus.client.Timeout, zbus.client.Overloaded)


class Books:
    """The clients, and their books. `url` has the addresses of all brokers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()
        self.stored: dict[str, float] = {}
        self.delivered: dict[str, list[float]] = {}
        self.acknowledged: dict[str, float] = {}
        self.wrong: list[str] = []
        self.stopped = False
        self._threads = [
            threading.Thread(target=self._run, args=(call,), daemon=True)
            for call in [
                *[partial(self._produce, f"p{n}") for n in range(PRODUCERS)],
                self._consume,
            ]
        ]

    def declare(self) -> None:
        with zbus.connect(self.url, retries=100) as client:
            client.declare(TOPIC, GROUP, ack=True, lease_ms=5_000)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Produce nothing more, and consume until all of it is acknowledged."""
        self.stopped = True
        for thread in self._threads:
            thread.join(WAIT_S)
        if any(thread.is_alive() for thread in self._threads):
            self.wrong.append(f"not acknowledged after {WAIT_S} s: {self._missing()}")

    def _run(self, client: Callable[[], None]) -> None:
        try:
            client()
        except Exception as error:
            self.wrong.append(f"a client ended: {error!r}")

    def _missing(self) -> list[str]:
        with self.lock:
            return sorted(self.stored.keys() - self.acknowledged.keys())

    def _produce(self, name: str) -> None:
        number = 0
        with zbus.connect(self.url, retries=100, timeout_s=60) as client:
            while not self.stopped:
                body = f"{name}-{number}"
                try:
                    client.produce(TOPIC, body, idempotency_key=body)
                except TRANSIENT as error:
                    print(f"  a producer sends {body} again after: {error}", flush=True)
                    time.sleep(AGAIN_S)
                    continue
                with self.lock:
                    self.stored[body] = time.monotonic()
                number += 1
                time.sleep(0.005)

    def _is_done(self) -> bool:
        return self.stopped and not self._missing()

    def _consume(self) -> None:
        with zbus.connect(self.url, retries=100, timeout_s=60) as client:
            while not self._is_done():
                try:
                    self._take(client)
                except (*TRANSIENT, zbus.client.NotFound) as error:  # 404: the lease expired
                    print(f"  the consumer goes on after: {error}", flush=True)
                    time.sleep(AGAIN_S)

    def _take(self, client: zbus.BlockingClient) -> None:
        with client.consume(TOPIC, GROUP, timeout_ms=1_000, auto_ack=False) as messages:
            for message in messages:
                body = message.text
                with self.lock:
                    self.delivered.setdefault(body, []).append(time.monotonic())
                    if body in self.acknowledged:
                        self.wrong.append(f"{body} came after its acknowledgement")
                messages.ack(message)
                with self.lock:
                    self.acknowledged[body] = time.monotonic()

    def wait_for_both(self, when_s: float) -> None:
        """Until something was stored and something delivered after this time."""
        deadline_s = time.monotonic() + WAIT_S
        while not all(self._times_since(when_s)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nothing is stored or delivered within {WAIT_S} s")
            time.sleep(0.1)

    def pauses_since(self, when_s: float) -> tuple[float, float]:
        """The longest time without anything stored, and delivered; 0 if there was nothing yet."""
        stored, delivered = self._times_since(when_s)
        return longest_gap(when_s, stored), longest_gap(when_s, delivered)

    def _times_since(self, when_s: float) -> tuple[list[float], list[float]]:
        with self.lock:
            stored = [at for at in self.stored.values() if at > when_s]
            delivered = [at for times in self.delivered.values() for at in times if at > when_s]
        return stored, delivered

    def totals(self, log: list[str]) -> tuple[str, bool]:
        """In words, and whether all is well: `log` is what the topic holds."""
        for text in self.wrong[:SHOWN_MAX]:
            print(f"BROKEN: {text}")
        lost = self.stored.keys() - set(log)
        twice = len(log) - len(set(log))
        text = (
            f"{len(self.stored)} stored, {len(lost)} lost, {twice} twice in the log,"
            f" {len(self.wrong)} delivered after a confirmed acknowledgement"
        )
        return text, not (lost or twice or self.wrong)


def longest_gap(begin_s: float, times: list[float]) -> float:
    places = [begin_s, *sorted(times)]
    return max([after - before for before, after in itertools.pairwise(places)], default=0.0)


def read_topic(address: str) -> list[str]:
    """The bodies of all that the topic holds."""
    with zbus.connect(f"zbus://{address}", retries=100) as client:
        client.declare(TOPIC, "audit", ack=False, start="earliest")
        with client.consume(TOPIC, "audit", timeout_ms=2_000) as messages:
            return [message.text for message in messages]
