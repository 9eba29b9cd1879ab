"""Disk-full cycles: fill a small file system under a broker, free it again; again and again.

    python -m tests.process.disk_full --cycles 100      (make disk-full)

While it is full, a produce is refused with 507 and `retry-after` within a second, and consume,
ack, query and remove go on; a `kill -9` and a start on the full disk change nothing of that. When
there is room again (a foreign file is deleted, or a topic removed), produces are taken by
themselves. At no time is anything lost that was acknowledged.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from tests.limits import SLOWNESS, WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.kill_ledger import GroupLedger, Partition, Sent, Violation, make_body
from tests.process.kill_load import Consumer
from tests.process.pipe import Pipe, Reply, ask, header, number
from tests.process.small_disk import SmallDisk, small_disk
from zbus.config import OPTIONS

MIB: Final = 1 << 20
REFUSED_S_MAX: Final = 1.0 * SLOWNESS
RESUMED_S_MAX: Final = 5.0 * SLOWNESS
LEASE_MS: Final = 1_000
TAKE: Final = 50  # messages of a consume
WATERMARK: Final = "disk_free_bytes_min"


def watermark(count: int) -> tuple[str, ...]:
    """The options for a broker that refuses produces below so many free bytes; 0: at none."""
    chosen = {WATERMARK: count, "disk_free_percent_min": 0, "reserve_bytes": 8 * MIB}
    return tuple(
        word
        for name, value in chosen.items()
        if name in OPTIONS
        for word in ("--set", f"{name}={value}")
    )


class FullCycles:
    """See above."""

    def __init__(self, disk: SmallDisk, seed: int, keep_free_bytes: int = 0) -> None:
        self.disk = disk
        self.random = Random(seed)
        self.keep_free_bytes = keep_free_bytes
        self.options = ("--set", "segment_bytes=1 MiB", *watermark(keep_free_bytes))
        self.serials = itertools.count()
        self.log = Partition("Keep", 0, 1)
        self.group = GroupLedger([self.log], "g", LEASE_MS, "")
        self.counts: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {"refused_s": 0.0, "resumed_s": 0.0, "ready_s": 0.0}
        self.broker = self._start()
        self._get(f"/Keep/g?cmd=declare&group_mask=64&group_ack_timeout={LEASE_MS}")

    def run(self, cycles: int) -> dict[str, float]:
        """All cycles and the end; the figures."""
        try:
            for cycle in range(cycles):
                self._cycle(cycle)
                if cycle % 10 == 9:
                    print(f"cycle {cycle + 1}: {json.dumps(self.figures())}", flush=True)
            self._end()
        finally:
            self.broker.kill()
            self.disk.clear()
        return self.figures()

    def figures(self) -> dict[str, float]:
        return self.counts | {name: round(took, 3) for name, took in self.slowest_s.items()}

    def _cycle(self, cycle: int) -> None:
        self.counts["cycles"] += 1
        self._get("/Bulk?cmd=declare")
        self._get("/Side?cmd=declare")
        with Pipe(self.broker.port) as pipe:
            self._produce(pipe, 150)
        self.disk.leave(self.keep_free_bytes + self.random.randint(2, 6) * MIB)
        bulk = self._fill()
        self._while_full()
        if cycle % 2:
            self._kill_while_full()
        self._check_bulk(bulk)
        if cycle % 4 < 2:
            self.disk.clear()
        else:
            self._get("/Bulk?cmd=remove")
        self._resume()
        self.disk.clear()
        with suppress(Violation):
            self._get("/Bulk?cmd=remove")
        with Pipe(self.broker.port) as pipe:
            self.log.check_log(pipe)

    def _start(self) -> BrokerProcess:
        began = time.monotonic()
        broker = BrokerProcess(self.disk.data_dir, *self.options, program=self.disk.program)
        self._slowest("ready_s", began)
        return broker

    def _slowest(self, what: str, began_s: float) -> None:
        self.slowest_s[what] = max(self.slowest_s[what], time.monotonic() - began_s)

    def _get(self, target: str) -> Reply:
        with Pipe(self.broker.port) as pipe:
            reply = pipe.get(target)
        if reply.status != 200:
            raise Violation(f"{target}: {reply}")
        return reply

    def _produce(self, pipe: Pipe, count: int) -> bool:
        """Put some small messages; False as soon as one is refused, as it has to be."""
        for serial in itertools.islice(self.serials, count):
            sent = Sent(serial, 0, 0)
            began = time.monotonic()
            reply = pipe.get("/Keep?cmd=produce", make_body(sent))
            if reply.status != 200:
                self._refused(reply, began)
                return False
            self.log.tell(number(reply.head, b"offset"), serial)
            self.counts["acknowledged"] += 1
        return True

    def _refused(self, reply: Reply, began_s: float) -> None:
        self._slowest("refused_s", began_s)
        if reply.status != 507 or header(reply.head, b"retry-after") is None:
            raise Violation(f"a full disk was answered {reply}")
        if time.monotonic() - began_s > REFUSED_S_MAX:
            raise Violation(f"a refusal took {time.monotonic() - began_s:.1f} s")
        self.counts["refused"] += 1

    def _fill(self) -> int:
        """Produce until nothing is taken any more; the number of bulk messages that were."""
        taken = 0
        with Pipe(self.broker.port) as pipe:
            for size in (64 << 10, 4 << 10):
                for _ in range(100_000):
                    body = b"%d|" % taken + b"." * size
                    began = time.monotonic()
                    reply = pipe.get("/Bulk?cmd=produce", body)
                    if reply.status != 200:
                        self._refused(reply, began)
                        break
                    taken += 1
            while self._produce(pipe, 1_000):
                pass
        self.counts["bulk"] += taken
        return taken

    def _while_full(self) -> None:
        """What is no produce goes on; a produce is refused again and again."""
        with Pipe(self.broker.port) as pipe:
            self._take(pipe, 100)
            for target in ("/?cmd=query", "/Keep?cmd=query", "/Keep/g?cmd=query"):
                reply = pipe.get(target)
                if reply.status != 200:
                    raise Violation(f"{target} while full: {reply}")
            began = time.monotonic()
            reply = pipe.get("/Bulk?cmd=produce", b"." * (128 << 10))
            if reply.status == 200:
                raise Violation("a large message was taken while the disk was full")
            self._refused(reply, began)
            reply = pipe.get("/Side?cmd=remove")
            if reply.status != 200:
                raise Violation(f"a remove while full: {reply}")
            self._take(pipe, 100)

    def _take(self, pipe: Pipe, count: int) -> None:
        """Consume and acknowledge."""
        consumer = Consumer(0, threading.Event(), self.group, self.random, drain=True)
        before = consumer.acknowledged
        for _ in range(count // TAKE):
            asked_s = time.monotonic()
            reply = pipe.get(
                f"/Keep/g?cmd=consume&batch={TAKE}&timeout=0", lines=b"accept: application/json\r\n"
            )
            if reply.status == 200:
                consumer._take(pipe, reply.body, asked_s)
            elif reply.status != 204:
                raise Violation(f"a consume while full: {reply}")
        self.counts["acks_confirmed"] += consumer.acknowledged - before

    def _kill_while_full(self) -> None:
        self.counts["killed"] += 1
        self.broker.kill()
        self.group.new_life()
        self.broker = self._start()
        with Pipe(self.broker.port) as pipe:
            self.log.check_log(pipe)
            self._take(pipe, 50)

    def _check_bulk(self, taken: int) -> None:
        found = int(json.loads(self._get("/Bulk?cmd=query").body)["messageDepth"])
        if found < taken:
            raise Violation(f"{taken} bulk messages were acknowledged, {found} are there")
        with Pipe(self.broker.port) as pipe:
            for offset in range(0, taken, max(1, taken // 50)):
                reply = pipe.get(f"/Bulk?cmd=consume&offset={offset}")
                if reply.status != 200 or not reply.body.startswith(b"%d|." % offset):
                    raise Violation(f"bulk message {offset} of {taken}: {reply.body[:50]!r}")

    def _resume(self) -> None:
        """Produces are taken again, without anybody's help."""
        began = time.monotonic()
        with Pipe(self.broker.port) as pipe:
            while not self._produce(pipe, 20):
                if time.monotonic() - began > RESUMED_S_MAX:
                    raise Violation(f"refused {RESUMED_S_MAX} s after there was room")
                time.sleep(0.02)
        self._slowest("resumed_s", began)

    def _end(self) -> None:
        with Pipe(self.broker.port) as pipe:
            self.log.check_log(pipe, from_start=True)
            consumer = Consumer(0, threading.Event(), self.group, self.random, drain=True)
            consumer.work(pipe)
            self.counts["acks_confirmed"] += consumer.acknowledged
            self.log.check_log(pipe, from_start=True)
            self.group.check_end()


def acks_on_a_full_disk(disk: SmallDisk, pipelined: int) -> Iterator[tuple[str, float]]:
    """How many acknowledgements the reserve has room for; figures."""
    with BrokerProcess(disk.data_dir, *watermark(0), program=disk.program) as broker:
        pipe = Pipe(broker.port)
        pipe.get("/T/g?cmd=declare&group_mask=64&group_ack_window=999&group_ack_timeout=9999999")
        lines = b"content-type: application/x-ndjson\r\n"
        while disk.free_bytes() > 12 * MIB:
            assert pipe.get("/T?cmd=produce", b"x\n" * 10_000, lines).status == 200
        pipe.get("/Filler?cmd=declare")
        disk.leave(0)
        while pipe.get("/Filler?cmd=produce", b"." * 100).status == 200:
            pass
        confirmed = 0
        began = time.monotonic()
        with suppress(OSError, EOFError):
            while True:
                reply = pipe.get(f"/T/g?cmd=consume&batch={max(pipelined, 100)}&timeout=0")
                if reply.status == 204:  # there were not enough messages to use it up
                    broker.stop()
                    break
                offsets = [message["offset"] for message in json.loads(reply.body)]
                for first in range(0, len(offsets), pipelined):
                    some = offsets[first : first + pipelined]
                    pipe.send(b"".join(ask(b"/T/g?cmd=ack&offset=%d" % at) for at in some))
                    for _ in some:
                        assert pipe.read().status == 200
                        confirmed += 1
        yield "pipelined", pipelined
        yield "acks_confirmed", confirmed
        yield "seconds", round(time.monotonic() - began, 1)
        yield "exit_code", broker.process.wait(WAIT_S)
        disk.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description="fill the disk under a broker, and free it")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--watermark", type=int, default=0, help="of free bytes, if there is one")
    parser.add_argument("--acks", action="store_true", help="count acks on a full disk instead")
    chosen = parser.parse_args()
    for pipelined in (1, 32) if chosen.acks else ():
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
            print(json.dumps(dict(acks_on_a_full_disk(disk, pipelined))))
    if chosen.acks:
        return
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
        print(f"seed {chosen.seed}, {chosen.cycles} cycles on {disk.program}", flush=True)
        try:
            figures = FullCycles(disk, chosen.seed, chosen.watermark).run(chosen.cycles)
        except Violation as violation:
            sys.exit(f"violation: {violation}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
