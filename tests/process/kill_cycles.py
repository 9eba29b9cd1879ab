"""A kill campaign: load a real broker, `kill -9` it, start it again, compare; again and again.

    python -m tests.process.kill_cycles --cycles 1000 --seed 1      (make crash)

One data directory lives through all cycles. Segments are as small as they may be, so that kills
hit their changes; some kills come while the broker starts, and after some the end of a log gets
a write that a power loss might have left. What is demanded after each restart:

* every message that was acknowledged or delivered is at its offset, with its bytes;
* nothing is there that was not sent, nothing is there twice, each producer's order is kept, and
  each key is in its own partition;
* a group is handed nothing early, nothing again whose ack was confirmed, nothing twice within a
  lease, nothing that its filter does not pass, and first deliveries in the order of the log;
* topics, groups and emptied topics are as the last answer said, or as an unanswered request
  would have made them.

At the end every group is drained: each has had every message. The first violation ends the run,
and the data directory is kept. The seed chooses what is done and when, but a machine's timing
is no part of it: a run cannot be repeated exactly (the simulation's can).
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests import forked
from tests.limits import SLOWNESS, WAIT_S
from tests.process.broker import BrokerProcess, serve_command
from tests.process.kill_ledger import GroupLedger, Partition, Violation
from tests.process.kill_load import TAKE, Client, Consumer, Producer, Side, SideBook
from tests.process.pipe import Pipe
from zbus.core.model.chunk import Chunk
from zbus.storage.format.batch import encode_chunk, inspect

OPTIONS: Final = ("--set", "segment_bytes=65536", "--set", "cache_bytes_max=262144")
TOPICS: Final = {"ledger": ("disk", 2), "events": ("os", 2)}  # durability, partitions
GROUPS: Final = (  # topic, name, lease ms, filter
    ("ledger", "careful", 300, ""),
    ("ledger", "picky", 400, "a.*"),
    ("events", "steady", 1_000, ""),
    ("events", "quick", 0, ""),
)
HISTORY: Final = (b"x" * 1023 + b"\n") * 1_000
READY_S_MAX: Final = 5.0 * SLOWNESS  # of a start; the figure that counts is printed
DRAIN_S_MAX: Final = 1_200.0


class Campaign:
    """See above."""

    def __init__(self, data_dir: Path, seed: int, program: Sequence[str] = ("zbus",)) -> None:
        self.data_dir = data_dir
        self.program = program  # what is started
        self.random = Random(seed)
        self.blocks = itertools.count()
        self.logs = {
            topic: [Partition(topic, n, count) for n in range(count)]
            for topic, (_, count) in TOPICS.items()
        }
        self.groups = [
            GroupLedger(self.logs[topic], name, lease_ms, filter)
            for topic, name, lease_ms, filter in GROUPS
        ]
        self.book = SideBook()
        self.ready_s: list[float] = []
        self.counts: Counter[str] = Counter()
        self.load_s = 0.0

    def run(self, cycles: int, history_bytes: int = 0) -> dict[str, float]:
        """All cycles and the end, beside a topic with so much history; the figures."""
        with self._start() as broker:
            self._declare(broker)
            broker.get("/History?cmd=declare&durability=os")
            lines = b"content-type: application/x-ndjson\r\n"
            with Pipe(broker.port) as pipe:
                for _ in range(history_bytes // len(HISTORY)):
                    assert pipe.get("/History?cmd=produce", HISTORY, lines).status == 200
            broker.kill()
        for number in range(cycles):
            self._cycle()
            if number % 50 == 49:
                print(f"cycle {number + 1}: {json.dumps(self.figures())}", flush=True)
        self._end()
        return self.figures()

    def figures(self) -> dict[str, float]:
        ready = sorted(self.ready_s)
        return {
            **self.counts,
            "produced_a_second": round(self.counts["acknowledged"] / max(self.load_s, 0.001)),
            "delivered": sum(group.delivered for group in self.groups),
            "redelivered": sum(group.redelivered for group in self.groups),
            "missed_on_delivery": sum(group.missed for group in self.groups),
            "log_bytes": sum(path.stat().st_size for path in self.data_dir.rglob("*.log")),
            "ready_p50_ms": round(statistics.median(ready) * 1000),
            "ready_max_ms": round(ready[-1] * 1000),
        }

    def _start(self) -> BrokerProcess:
        began = time.monotonic()
        broker = BrokerProcess(self.data_dir, *OPTIONS, program=self.program)
        took = time.monotonic() - began
        self.ready_s.append(took)
        if took > READY_S_MAX:
            broker.kill()
            raise Violation(f"a start took {took:.1f} s")
        return broker

    def _declare(self, broker: BrokerProcess) -> None:
        with Pipe(broker.port) as pipe:
            for topic, (durability, count) in TOPICS.items():
                target = f"/{topic}?cmd=declare&partitions={count}&durability={durability}"
                assert pipe.get(target).status == 200
            for group in self.groups:
                target = f"/{group.topic}/{group.name}?cmd=declare"
                if group.lease_ms:
                    target += f"&group_mask=64&group_ack_timeout={group.lease_ms}"
                    target += "&group_ack_window=900"
                if group.filter:
                    target += f"&group_filter={group.filter}"
                assert pipe.get(target).status == 200

    def _cycle(self) -> None:
        self.counts["cycles"] += 1
        if self.random.random() < 0.15:
            self._kill_while_starting()
        with self._start() as broker:
            self._check(broker)
            self._load(broker)
        if self.random.random() < 0.2:
            self._tear()

    def _kill_while_starting(self) -> None:
        """At any moment from the process's first to well after it serves."""
        with self.data_dir.with_name("starting.log").open("ab") as log:
            command = serve_command(self.data_dir, *OPTIONS, program=self.program)
            process = forked.Popen[bytes](command, stdout=subprocess.DEVNULL, stderr=log)
        time.sleep(self.random.uniform(0.0, 1.2) * statistics.median(self.ready_s))
        process.kill()
        process.wait()
        self.counts["killed_while_starting"] += 1

    def _check(self, broker: BrokerProcess, from_start: bool = False) -> None:
        with Pipe(broker.port) as pipe:
            for log in self.logs.values():
                for partition in log:
                    partition.check_log(pipe, from_start)
            self.book.check(pipe)

    def _load(self, broker: BrokerProcess) -> None:
        """Run all clients for a moment, and kill the broker under them."""
        over = threading.Event()
        producers = [
            Producer(
                broker.port, over, n, list(self.logs.values()), self.blocks, self._dice(), n == 2
            )
            for n in range(3)
        ]
        consumers = [Consumer(broker.port, over, group, self._dice()) for group in self.groups]
        side = Side(broker.port, over, self.book, self._dice())
        clients: list[Client] = [*producers, *consumers, side]
        for group in self.groups:
            group.new_life()
            group.waits = False
        began = time.monotonic()
        for client in clients:
            client.start()
        # Mostly short, for many kills; now and then so long that what is done each second is done.
        long = self.random.random() < 0.12
        time.sleep(self.random.uniform(1.0, 2.5) if long else self.random.uniform(0.05, 0.5))
        ended_by_itself = broker.process.poll()
        broker.kill()
        self.load_s += time.monotonic() - began
        over.set()
        self._join(clients)
        if ended_by_itself is not None:
            raise Violation(f"the broker ended with {ended_by_itself}: {broker.log()[-2000:]}")
        for group in self.groups:
            group.may_miss += TAKE if group.waits and not group.lease_ms else 0
        self.counts["acknowledged"] += sum(client.acknowledged for client in producers)
        self.counts["unknown"] += sum(client.sent - client.acknowledged for client in producers)
        self.counts["acks_confirmed"] += sum(client.acknowledged for client in consumers)
        self.counts["side_changes"] += side.done

    def _dice(self) -> Random:
        return Random(self.random.getrandbits(64))

    def _join(self, clients: list[Client], timeout_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        for client in clients:
            client.join(max(0.0, deadline - time.monotonic()))
            if client.is_alive():
                raise Violation(f"{client} does not end")
            if client.problem is not None:
                raise client.problem

    def _tear(self) -> None:
        """Leave at the end of a log what a power loss may leave of a write nobody was told of."""
        logs = sorted(self.data_dir.glob("*/[0-9]*"))
        newest = max(self.random.choice(logs).glob("*.log"), default=None)
        if newest is None:
            return
        data = newest.read_bytes()
        position, crc, end = 0, 0, 0
        while not isinstance(found := inspect(data, position), str):
            position, crc, end = position + found.length, found.crc, found.end_offset
        if position != len(data):  # the kill itself tore it
            self.counts["torn_by_kill"] += 1
            return
        chunk = Chunk(end, int(time.time() * 1000))
        for _ in range(20):
            chunk.add(b"torn", b"", b"never acknowledged")
        batch = encode_chunk(chunk, crc).raw
        cut = self.random.randrange(1, len(batch))
        tail = self.random.choice(
            (batch[:cut], bytes(cut), self.random.randbytes(cut), bytes(cut) + batch[cut:])
        )
        with newest.open("ab") as file:
            file.write(tail)
        self.counts["torn"] += 1

    def _end(self) -> None:
        """Drain every group and compare with the whole log."""
        with self._start() as broker:
            self._check(broker, from_start=True)
            over = threading.Event()
            for group in self.groups:
                group.new_life()
            clients: list[Client] = [
                Consumer(broker.port, over, group, self._dice(), drain=True)
                for group in self.groups
            ]
            for client in clients:
                client.start()
            self._join(clients, DRAIN_S_MAX)
            self._check(broker, from_start=True)
            for group in self.groups:
                group.check_end()
                found = json.loads(broker.get(f"/{group.topic}/{group.name}?cmd=query").body)
                for count in ("messageCount", "leasedCount", "delayedCount"):
                    if found[count]:
                        raise Violation(f"{group.name} was drained, and has {found}")
            self.counts["stored"] = sum(len(p.serials) for log in self.logs.values() for p in log)
            broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 a broker under load, and compare")
    parser.add_argument("--cycles", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--history-mb", type=int, default=1_000)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-crash-"))
    print(f"seed {chosen.seed}, {chosen.cycles} cycles in {folder}", flush=True)
    began = time.monotonic()
    campaign = Campaign(folder / "data", chosen.seed)
    try:
        figures = campaign.run(chosen.cycles, chosen.history_mb * 1_000_000)
    except BaseException as problem:
        print(f"after {json.dumps(campaign.counts)}: {problem}", file=sys.stderr)
        print(f"the data directory is kept: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(json.dumps(figures | {"seconds": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main()
