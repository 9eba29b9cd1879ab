"""The client of MQCloud's manual against a broker that is killed again and again.

    python -m tests.process.mqcloud_kills --seconds 60      (make crash-mqcloud)

What the documented Python sample does, in words of our own: a new TCP connection for each call;
forms that are produced; `pop=True`, and the requestId of the last answer, for messages, which
acknowledges what came with it; whatever goes wrong is tried again a little later; one more
acknowledgement at the end. It waits less in between, so that a minute is worth something.

Meanwhile the broker is killed with SIGKILL every few seconds, and started again. All that was
answered with 200 must be consumed in the end, and nothing that nobody sent; what is consumed twice
is counted. What a killed broker had handed out comes again when its time is over.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlencode

from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.kill_ledger import Violation

TOPIC, PRODUCER, CONSUMER = "orders", "orders-producer", "billing"
CONSUME_TIMEOUT_MS: Final = 10_000  # the shortest there is
PRODUCERS, CONSUMERS = 2, 3
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


class Sample(threading.Thread):
    """One process of the sample."""

    def __init__(self, number: int, port: int, over: threading.Event, pause_s: float) -> None:
        super().__init__(name=f"{type(self).__name__} {number}", daemon=True)
        self.number = number
        self.port = port
        self.over = over
        self.pause_s = pause_s  # after each call
        self.problem: Exception | None = None
        self.failed = 0

    def run(self) -> None:
        try:
            self.work()
        except Exception as problem:  # the campaign tells of it
            self.problem = problem

    def work(self) -> None:
        raise NotImplementedError

    def call(self, method: str, path: str, **fields: object) -> dict[str, Any] | None:
        """The envelope; None if nothing came, or no 200."""
        form = urlencode(fields)
        target, body = (path, form) if method == "POST" else (f"{path}?{form}", None)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, target, body, _FORM if body else {})
            reply = connection.getresponse()
            found = reply.read()
        except (OSError, http.client.HTTPException):
            self.failed += 1
            return None
        finally:
            connection.close()
        if reply.status != 200:
            self.failed += 1
            return None
        envelope: dict[str, Any] = json.loads(found)
        return envelope


class Producer(Sample):
    """It sends one message after the other, each until it is answered."""

    sent = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.answered: set[str] = set()

    def work(self) -> None:
        while not self.over.is_set():
            message = json.dumps({"from": self.number, "number": self.sent, "text": "订单&+%"})
            self.sent += 1
            while not self.over.is_set():
                found = self.call("POST", "/mq/produce", producer=PRODUCER, message=message)
                if found is not None and found["status"] == 200:
                    self.answered.add(message)
                    break
                time.sleep(10 * self.pause_s)
            time.sleep(self.pause_s)


class Consumer(Sample):
    """It asks for messages, and acknowledges them with the next request."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.consumed: Counter[str] = Counter()
        self.request_id = ""
        self.acknowledged = 0

    def _fields(self) -> dict[str, object]:
        known = {"topic": TOPIC, "consumer": CONSUMER, "pop": True}
        return {**known, "requestId": self.request_id}

    def work(self) -> None:
        while not self.over.is_set():
            found = self.call("GET", "/mq/message", **self._fields())
            if found is not None and found["status"] == 200:
                self._take(found["result"])
            time.sleep(self.pause_s)
        self.call("GET", "/mq/ack", **self._fields())

    def _take(self, result: dict[str, Any]) -> None:
        told = result.get("ackInfo", {}).get("message", "")
        self.acknowledged += told.startswith("ok ")
        self.request_id = result.get("requestId") or ""
        for size, name in (("msgListSize", "msgList"), ("retryMsgListSize", "retryMsgList")):
            if result[size] > 0:
                self.consumed.update(one["message"] for one in result[name])


class Campaign:
    """See the module. `pause_s` is what the sample waits between its calls, and `patience_s` how
    long is waited for what is missing in the end."""

    def __init__(
        self,
        data_dir: Path,
        seed: int,
        pause_s: float = 0.02,
        program: tuple[str, ...] = ("zbus",),
        patience_s: float = 2 * CONSUME_TIMEOUT_MS / 1_000 + WAIT_S,
    ) -> None:
        self.data_dir = data_dir
        self.random = Random(seed)
        self.pause_s = pause_s
        self.program = program
        self.patience_s = patience_s
        self.kills = 0
        self.port = 0

    def _start(self) -> BrokerProcess:
        broker = BrokerProcess(self.data_dir, port=self.port, program=self.program)
        self.port = broker.port
        return broker

    def run(self, seconds: float, every_s: tuple[float, float], kills: int = 0) -> dict[str, int]:
        """For so long, and until there were so many kills."""
        broker = self._start()
        self._register()
        over, done = threading.Event(), threading.Event()
        producers = [Producer(n, self.port, over, self.pause_s) for n in range(PRODUCERS)]
        consumers = [Consumer(n, self.port, done, self.pause_s) for n in range(CONSUMERS)]
        try:
            for client in (*producers, *consumers):
                client.start()
            ends = time.monotonic() + seconds
            while time.monotonic() < ends or self.kills < kills:
                time.sleep(self.random.uniform(*every_s))
                broker.kill()
                self.kills += 1
                broker = self._start()
            over.set()
            _join(producers)
            self._wait(lambda: not _missing(producers, consumers))
            done.set()
            _join(consumers)
            if not _missing(producers, consumers) and not self._wait(self._all_done):
                raise Violation("what is acknowledged comes again and again")
        finally:
            over.set()
            done.set()
            broker.kill()
        return self._compare(producers, consumers)

    def _register(self) -> None:
        asker = Sample(0, self.port, threading.Event(), 0)
        for fields in ({"producer": PRODUCER}, {"consumer": CONSUMER, "consumeWay": "0"}):
            found = asker.call("POST", "/mq/register", topic=TOPIC, **fields)
            assert found == {"status": 200}, found
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        settings = {"consumer": CONSUMER, "consumeTimeoutInMillis": CONSUME_TIMEOUT_MS}
        settings["rateLimitEnabled"] = 0
        connection.request("POST", "/mq/consumer/config", json.dumps(settings))
        assert json.load(connection.getresponse()) == {"status": 200}
        connection.close()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """What is in nobody's hands comes when its time is over."""
        deadline = time.monotonic() + self.patience_s
        while not (found := condition()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _all_done(self) -> bool:
        """Everything is acknowledged; what somebody did not, when he ended, is taken over."""
        last = Consumer(99, self.port, threading.Event(), 0)
        found = last.call("GET", "/mq/message", **last._fields())
        if found is not None and found["status"] == 200 and found["result"].get("requestId"):
            last.request_id = found["result"]["requestId"]
            last.call("GET", "/mq/ack", **last._fields())
        found = last.call("GET", "/mq/clustering/queue/offset", consumer=CONSUMER)
        assert found is not None
        return all(one["committedOffset"] == one["maxOffset"] for one in found["result"])

    def _compare(self, producers: list[Producer], consumers: list[Consumer]) -> dict[str, int]:
        for client in (*producers, *consumers):
            if client.problem is not None:
                raise Violation(f"{client.name}: {client.problem!r}") from client.problem
        lost = _missing(producers, consumers)
        if lost:
            raise Violation(f"{len(lost)} messages were answered and not consumed: {lost[:3]}")
        consumed = sum((client.consumed for client in consumers), Counter[str]())
        sent = {(one.number, number) for one in producers for number in range(one.sent)}
        known = {(one["from"], one["number"]) for one in map(json.loads, consumed)}
        if not known <= sent:
            raise Violation(f"nobody sent {sorted(known - sent)[:3]}")
        return {
            "kills": self.kills,
            "answered": sum(len(one.answered) for one in producers),
            "consumed": len(consumed),
            "again": consumed.total() - len(consumed),
            "acknowledged": sum(one.acknowledged for one in consumers),
            "failed calls": sum(one.failed for one in (*producers, *consumers)),
        }


def _missing(producers: list[Producer], consumers: list[Consumer]) -> list[str]:
    answered = set().union(*(one.answered for one in producers))
    for consumer in consumers:
        answered.difference_update(list(consumer.consumed))
    return sorted(answered)


def _join(clients: list[Producer] | list[Consumer]) -> None:
    for client in clients:
        client.join(WAIT_S)
        if client.is_alive():
            raise Violation(f"{client.name} does not end")


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 a broker under the manual's sample")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-mqcloud-"))
    print(f"seed {chosen.seed}, {chosen.seconds:g} s in {folder}", flush=True)
    campaign = Campaign(folder / "data", chosen.seed)
    try:
        figures = campaign.run(chosen.seconds, (2.0, 5.0))
    except BaseException as problem:
        print(f"after {campaign.kills} kills: {problem}", file=sys.stderr)
        print(f"the data directory is kept: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
