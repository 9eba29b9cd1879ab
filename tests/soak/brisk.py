"""The process of a brisk client: puts a message, takes it, and waits for its next round.

    python -m tests.soak.brisk --port P --topic T --period-ms 5

Four times a second it says in a line of JSON what each operation took, and what went wrong: a
message that is lost, doubled or refused, a connection that ends. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import signal
import sys
import time
from typing import Final

from tests.process.pipe import Pipe, Reply, ask

REPORT_S: Final = 0.25
BODY_BYTES: Final = 100


class Brisk:
    """See the module."""

    def __init__(self, port: int, topic: str) -> None:
        self.port = port
        self.pipe = Pipe(port)
        self.put_head = f"/{topic}?cmd=produce&partition=0"
        self.take = ask(f"/{topic}?cmd=consume&timeout=30000")
        self.drain = ask(f"/{topic}?cmd=consume&timeout=0")
        self.serial = 0
        self.samples: list[tuple[float, float]] = []  # when it began (s), what it took (ms)
        self.errors: list[tuple[float, str]] = []

    def round(self) -> None:
        """A message put and taken; whatever goes wrong is noted, and the next round begins anew."""
        self.serial += 1
        body = b"%0*d" % (BODY_BYTES, self.serial)
        try:
            put = self.timed(ask(self.put_head, body))
            if put.status != 200:
                self.failed(f"a put was refused: {put.status} {put.body.decode()}")
            elif fault := self.fault_of(self.timed(self.take), body):
                self.failed(fault)
                self.empty()
        except (OSError, EOFError) as error:
            self.failed(f"the connection ended: {error!r}")
            self.connect_again()

    def fault_of(self, taken: Reply, body: bytes) -> str:
        """What is wrong with this delivery of the message that was just put; "" = nothing."""
        if taken.status != 200:
            return f"a message did not come: {taken.status} {taken.body.decode()}"
        if taken.body == body:
            return ""
        fault = "doubled" if taken.body < body else "lost"
        return f"a message was {fault}: {taken.body.decode()} came at {self.serial}"

    def timed(self, request: bytes) -> Reply:
        began = time.monotonic()
        self.pipe.send(request)
        reply = self.pipe.read()
        self.samples.append((began, (time.monotonic() - began) * 1e3))
        return reply

    def failed(self, text: str) -> None:
        self.errors.append((time.monotonic(), text))

    def connect_again(self) -> None:
        self.pipe.close()
        try:
            self.pipe = Pipe(self.port)
            self.empty()
        except (OSError, EOFError) as error:
            self.failed(f"it could not connect: {error!r}")

    def empty(self) -> None:
        """Take what an unfinished round left, so that each round is judged alone."""
        self.pipe.send(self.drain)
        while self.pipe.read().status == 200:
            self.pipe.send(self.drain)

    def report(self) -> None:
        print(json.dumps({"samples": self.samples, "errors": self.errors}), flush=True)
        self.samples.clear()
        self.errors.clear()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--period-ms", type=float, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    gc.collect()
    gc.disable()  # nothing here makes cycles
    brisk = Brisk(given.port, given.topic)
    period_s = given.period_ms / 1e3
    due = reported = time.monotonic()
    while True:
        brisk.round()
        now = time.monotonic()
        if now - reported > REPORT_S:
            reported = now
            brisk.report()
        due = max(due + period_s, now)  # rounds that were missed are not made up for
        if select.select([sys.stdin], [], [], due - now)[0]:
            return brisk.report()


if __name__ == "__main__":
    main()
