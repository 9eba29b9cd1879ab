"""What compaction keeps, takes and costs: puts over some keys, beside a brisk client.

    python -m tests.bench.compaction [--puts 10000000] [--keys 100000] [--rate 20000] [--kills 0]

The same puts go into a compact topic and into one that is not: batches of 500 messages of 100
bytes with a key each, at a steady rate. Beside them a client puts one message after another into
another topic; what counts is how late its replies are. Afterwards the newest value of every key is
read from the log as it is then, and of 1,000 keys as `get` gives it. `--kills` ends the broker with
SIGKILL that often, at random moments of the puts.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from tests.bench.measure import show
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe, ask, number

BATCH: Final = 500
BODY_BYTES: Final = 100
BRISK_EVERY_S: Final = 0.005
SETTLED_S: Final = 5
SETTLE_S_MAX: Final = 600
TYPE: Final = b"content-type: application/vnd.zbus.messages\r\n"
PAUSE: Final = threading.Event()
"""Is never set."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


def disk_bytes(data_dir: Path) -> int:
    """What the files take."""
    total = 0
    for path in data_dir.rglob("*.log"):
        with suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Load:
    """One run of the puts."""

    def __init__(self, folder: Path, compact: bool, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.random = Random(1)
        self.folder = folder
        self.broker = BrokerProcess(folder, "--durability", "os")
        word = "true" if compact else "false"
        assert self.broker.get(f"/Values?cmd=declare&compact={word}").status == 200
        assert self.broker.get("/Live?cmd=declare").status == 200
        self.newest: dict[int, bytes] = {}
        self.late_ms: list[float] = []
        self.peak_bytes = 0
        self.cpu_before_s = 0.0  # of brokers that were killed
        self.connect()

    def connect(self) -> None:
        self.writer, self.brisk = Pipe(self.broker.port), Pipe(self.broker.port)

    def batch(self, first: int) -> tuple[bytes, dict[int, bytes]]:
        parts, values = [], {}
        for serial in range(first, first + BATCH):
            key = self.random.randrange(self.chosen.keys)
            body = (b"%d " % serial).ljust(BODY_BYTES, b"x")
            head = b"POST / HTTP/1.1\r\nkey: key-%d\r\ncontent-length: %d\r\n\r\n"
            parts.append(head % (key, BODY_BYTES) + body)
            values[key] = body
        return b"".join(parts), values

    def run(self) -> float:
        """Put everything; seconds."""
        begun_s = time.monotonic()
        kills = {self.random.randrange(self.chosen.puts) for _ in range(self.chosen.kills)}
        next_look_s = 0.0
        for first in range(0, self.chosen.puts, BATCH):
            body, values = self.batch(first)
            if any(first <= at < first + BATCH for at in kills):
                self.kill()
            self.writer.send(ask("/Values?cmd=produce", body, TYPE))
            now_s = time.monotonic()
            due_s = begun_s + first / self.chosen.rate
            self.be_brisk(max(due_s, now_s))
            assert self.writer.read().status == 200
            self.newest.update(values)
            if now_s >= next_look_s:
                self.peak_bytes = max(self.peak_bytes, disk_bytes(self.folder))
                next_look_s = now_s + 1
        return time.monotonic() - begun_s

    def be_brisk(self, until_s: float) -> None:
        """One put, and more while there is time."""
        while True:
            sent_s = time.monotonic()
            assert self.brisk.get("/Live", b"hello").status == 200
            done_s = time.monotonic()
            self.late_ms.append(1_000 * (done_s - sent_s))
            if done_s >= until_s:
                return
            PAUSE.wait(min(BRISK_EVERY_S, max(0.0, until_s - done_s)))

    def kill(self) -> None:
        self.cpu_before_s += cpu_s(self.broker.process.pid)
        self.broker.stop(signal.SIGKILL)
        self.broker = BrokerProcess(self.folder, "--durability", "os")
        self.connect()

    def settle(self) -> float:
        """Wait until the files are as small as they become; seconds."""
        begun_s = smaller_s = time.monotonic()
        least = disk_bytes(self.folder)
        while time.monotonic() - smaller_s < SETTLED_S:
            PAUSE.wait(0.5)
            if (now := disk_bytes(self.folder)) < least:
                least, smaller_s = now, time.monotonic()
            if time.monotonic() - begun_s > SETTLE_S_MAX:
                break
        return smaller_s - begun_s

    def check(self) -> int:
        """The newest value of each key, as a new group gets it and as `get` does; messages read."""
        pipe = Pipe(self.broker.port)
        for key in self.random.sample(sorted(self.newest), min(1_000, len(self.newest))):
            reply = pipe.get(f"/Values?cmd=get&key=key-{key}")
            assert (reply.status, reply.body) == (200, self.newest[key]), (key, reply)
        offset, count = number(pipe.get("/_log/Values?bytes=0").head, b"first"), 0
        found: dict[int, bytes] = {}
        while True:
            lines = b"accept: application/vnd.zbus.messages\r\n"
            reply = pipe.get(f"/_log/Values?offset={offset}&count=1000", lines=lines)
            assert reply.status == 200, reply
            for part in reply.body.split(b"HTTP/1.1 200 OK\r\n")[1:]:
                head, _, body = part.partition(b"\r\n\r\n")
                found[int(head.split(b"\r\nkey: key-")[1].partition(b"\r\n")[0])] = body
                count += 1
            taken = number(reply.head, b"count")
            if not taken:
                break
            offset += taken
        assert found == self.newest, "a newest value is lost"
        return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--puts", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--only", choices=("compact", "plain"))
    chosen = parser.parse_args()
    for name in ("compact", "plain"):
        if chosen.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="zbus-compaction-") as folder:
            load = Load(Path(folder) / "data", name == "compact", chosen)
            seconds = load.run()
            written = disk_bytes(load.folder)
            late = statistics.quantiles(load.late_ms, n=1_000)
            settled_s = load.settle()
            cpu = load.cpu_before_s + cpu_s(load.broker.process.pid)
            show(
                topic=name,
                puts=chosen.puts,
                keys=chosen.keys,
                seconds=seconds,
                peak_mb=load.peak_bytes / 1e6,
                after_mb=written / 1e6,
                settled_mb=disk_bytes(load.folder) / 1e6,
                settled_s=settled_s,
                cpu_s=cpu,
                brisk_p50_ms=late[499],
                brisk_p99_ms=late[989],
                brisk_p999_ms=late[998],
            )
            if name == "compact":
                show(messages_left=load.check(), keys_checked=len(load.newest))
            load.broker.stop()


if __name__ == "__main__":
    main()
