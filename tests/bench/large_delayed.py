"""What ten million delayed messages in one group cost: memory, a restart, and what others notice.

    python -m tests.bench.large_delayed [--count 10000000]

They are due at random within a day. A pull that waits makes its group pass them; what the broker's
memory grows by then is what they cost beyond the log (and what was read back, which has a bound).
Meanwhile somebody else asks for something small a hundred times a second. Then a thousand become
due each second, for a while, and a hundred thousand in one and the same: none may come early, by
the clock of those who sent and got them. `--words camellia` puts them with that dialect's words,
each in a request of its own, with a time to live and a limit of attempts.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.large import NDJSON, each, end, folder, forget_caches, stored_bytes, timed_start
from tests.bench.measure import resident_bytes, show
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe, ask

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BATCH = 100  # messages of a request: they are due together
PORTION = 200_000  # messages whose requests are made at once
SOON = 10_000  # are due in so many milliseconds
SOON_MS = 20_000  # from when on
COLD_MS = 120_000  # the same, if so many others are put between that they are read from the disk
BETWEEN = 100
CONSUMERS = 16
BURST = 100_000  # are due within one second


class Asker(threading.Thread):
    """Asks for something small again and again; remembers how long that took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._pipe = Pipe(port, timeout_s=60)
        self._ended = threading.Event()
        self._times: list[float] = []
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.01):
            began = time.monotonic()
            assert self._pipe.get("/other?cmd=produce", b"x").status == 200
            self._times.append(time.monotonic() - began)

    def end(self) -> dict[str, float]:
        self._ended.set()
        self.join()
        self._pipe.close()
        found = sorted(self._times)
        if not found:
            return {}  # it was over at once
        return {"other_p99_ms": quantile(found, 0.99) * 1e3, "other_worst_ms": found[-1] * 1e3}


def quantile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def feed(broker: BrokerProcess, count: int) -> float:
    """Put them, due at random from in an hour on; messages a second."""
    chance = random.Random(1)
    body = (b"%b\n" % (b"x" * 32)) * BATCH
    seconds = 0.0
    for first in range(0, count, PORTION):
        requests = [
            ask(f"/T?cmd=produce&delay={HOUR_MS + chance.randrange(DAY_MS)}", body, NDJSON)
            for _ in range(first, min(first + PORTION, count), BATCH)
        ]
        seconds += len(requests) / each(broker.port, requests)
    return count / seconds


def delayed_count(broker: BrokerProcess) -> int:
    """How many the group has passed and waits for."""
    with Pipe(broker.port, timeout_s=60) as pipe:
        (group,) = json.loads(pipe.get("/T?cmd=query").body)["consumeGroupList"]
    found = group["delayedCount"]
    assert isinstance(found, int)
    return found


def wait_for(what: Callable[[], bool]) -> float:
    """Seconds until it is so."""
    began = time.monotonic()
    pause = threading.Event()
    while not what():
        pause.wait(0.2)
    return time.monotonic() - began


def peak_bytes(broker: BrokerProcess) -> int:
    """The most that the process has had in memory."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def feed_camellia(broker: BrokerProcess, count: int) -> float:
    """The same in its words, one by one."""
    chance = random.Random(1)
    head = b"content-type: application/x-www-form-urlencoded\r\n"
    seconds = 0.0
    for first in range(0, count, PORTION):
        requests = []
        for _ in range(first, min(first + PORTION, count)):
            delay_ms = HOUR_MS + chance.randrange(DAY_MS)
            form = b"topic=T&ttlMillis=864000000&maxRetry=3&delayMillis=%d&msg=" % delay_ms
            request = ask("/camellia/delayQueue/sendMsg", form + b"x" * 32, head)
            requests.append(b"POST" + request[3:])
        seconds += len(requests) / each(broker.port, requests)
    return count / seconds


def memory(broker: BrokerProcess, before: int) -> dict[str, float]:
    return {
        "resident_mb": resident_bytes(broker.process.pid) / 1e6,
        "grown_mb": (resident_bytes(broker.process.pid) - before) / 1e6,
        "peak_mb": peak_bytes(broker) / 1e6,
    }


class Consumers:
    """Take messages whose bodies say when they are due; note when they came."""

    def __init__(self, port: int, batch: int = 0) -> None:
        """`batch`: so many at a time, of which each line is one."""
        self.forget()
        self._ask = ask("/T?cmd=consume&timeout=3000000")
        if batch:
            lines = b"batch: %d\r\naccept: application/x-ndjson\r\n" % batch
            self._ask = ask("/T?cmd=consume&timeout=3000000", b"", lines)
        self._bodies = _lines if batch else lambda body: [body]
        self._lock = threading.Lock()
        for _ in range(CONSUMERS):
            threading.Thread(target=self._take, args=(Pipe(port, 3_600),), daemon=True).start()

    def forget(self) -> None:
        """What came so far."""
        self.late_ms: list[float] = []
        self.seen: set[bytes] = set()

    def _take(self, pipe: Pipe) -> None:
        while True:
            try:
                pipe.send(self._ask)
                reply = pipe.read()
            except (OSError, EOFError):
                return  # the broker was killed
            now_ms = time.time() * 1e3
            if reply.status == 204:
                return  # it is stopping
            assert reply.status == 200, reply
            bodies = self._bodies(reply.body)
            with self._lock:
                self.late_ms += [now_ms - int(body.partition(b" ")[0]) for body in bodies]
                self.seen.update(bodies)

    def figures(self) -> dict[str, float]:
        late = sorted(self.late_ms)
        assert late[0] >= 0, f"{-late[0]} ms early"
        return {
            "came": len(self.seen),
            "twice": len(late) - len(self.seen),
            "least_late_ms": late[0],
            "late_p50_ms": quantile(late, 0.5),
            "late_p99_ms": quantile(late, 0.99),
            "late_worst_ms": late[-1],
        }


def _lines(body: bytes) -> list[bytes]:
    return [json.loads(line)["body"].encode() for line in body.splitlines()]


def put_soon(broker: BrokerProcess, first_ms: int, count: int, between: int = 0) -> None:
    """One is due each millisecond, in an order of its own; and others between them."""
    due_ms = int(time.time() * 1e3) + first_ms
    times = list(range(due_ms, due_ms + count))
    random.Random(2).shuffle(times)
    for first in range(0, count, 100):
        some = times[first : first + 100]
        each(broker.port, [ask(f"/T?cmd=produce&deliver_at={t}", b"%d" % t) for t in some])
        if between:
            feed(broker, 100 * between)
    assert time.time() * 1e3 < due_ms, "the machine is too slow for that"


def become_due(broker: BrokerProcess, consumers: Consumers, cold: bool = False) -> None:
    """A thousand a second come when they should, while the others wait."""
    consumers.forget()
    put_soon(broker, COLD_MS if cold else SOON_MS, SOON, BETWEEN if cold else 0)
    asker = Asker(broker.port)
    wait_for(lambda: len(consumers.seen) >= SOON)
    show(due_a_second=1_000, cold=str(cold), **consumers.figures(), **asker.end())


def burst(broker: BrokerProcess) -> None:
    """They are all due in one second, and taken by consumers of 100 at a time."""
    due_ms = int(time.time() * 1e3) + 2 * SOON_MS
    for first in range(0, BURST, BATCH):
        at_ms = due_ms + first * 1_000 // BURST
        bodies = b"".join([b"%d %d\n" % (at_ms, n) for n in range(first, first + BATCH)])
        each(broker.port, [ask(f"/T?cmd=produce&deliver_at={at_ms}", bodies, NDJSON)])
    assert time.time() * 1e3 < due_ms, "the machine is too slow for that"
    consumers, asker = Consumers(broker.port, BATCH), Asker(broker.port)
    wait_for(lambda: len(consumers.seen) >= BURST)
    show(due_in_a_second=BURST, **consumers.figures(), **asker.end())


def start_again(data_dir: Path, after: str, count: int) -> BrokerProcess:
    dropped = forget_caches()
    broker, ready_s = timed_start(data_dir)
    began = time.monotonic()
    found = delayed_count(broker)
    show(
        after=after,
        cache_dropped=str(dropped),
        ready_s=ready_s,
        first_answer_s=time.monotonic() - began,
        delayed=found,
        **memory(broker, 0),
    )
    assert found == count, "some are gone, or came too soon"
    return broker


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--words", choices=("native", "camellia"), default="native")
    chosen = parser.parse_args()
    count = chosen.count // BATCH * BATCH
    put = feed if chosen.words == "native" else feed_camellia
    with folder() as data_dir:
        broker, _ = timed_start(data_dir)
        each(broker.port, [ask("/T?cmd=declare"), ask("/other?cmd=declare&durability=os")])
        empty = resident_bytes(broker.process.pid)
        asker = Asker(broker.port)
        rate = put(broker, count)
        before = resident_bytes(broker.process.pid)
        grown_mb = (before - empty) / 1e6
        show(put=count, put_a_second=rate, caches_mb=grown_mb, **asker.end())
        asker = Asker(broker.port)
        waiting = Pipe(broker.port)
        waiting.send(ask("/T?cmd=consume&timeout=3000000"))
        seconds = wait_for(lambda: delayed_count(broker) == count)
        waiting.close()
        pace = count / seconds
        show(passed_a_second=pace, **memory(broker, before), **asker.end())
        consumers = Consumers(broker.port)
        become_due(broker, consumers)
        become_due(broker, consumers, cold=True)
        count += SOON * BETWEEN
        show(stored_gb=stored_bytes(data_dir) / 1e9, **memory(broker, before))
        end(broker, signal.SIGKILL)
        broker = start_again(data_dir, "kill -9", count)
        become_due(broker, Consumers(broker.port))
        end(broker, signal.SIGKILL)  # and its consumers
        broker = start_again(data_dir, "kill -9 again", count)
        burst(broker)
        show(stop_s=end(broker, signal.SIGTERM))
        broker = start_again(data_dir, "a stop", count)
        # What becomes due while nobody is there comes at once when the broker is back.
        put_soon(broker, SOON_MS, SOON)
        end(broker, signal.SIGKILL)
        back_s = time.monotonic() + (SOON_MS + SOON) / 1e3
        wait_for(lambda: time.monotonic() > back_s)
        broker, _ = timed_start(data_dir)
        began = time.monotonic()
        consumers = Consumers(broker.port)
        wait_for(lambda: len(consumers.seen) >= SOON)
        seconds = time.monotonic() - began
        show(due_while_away=SOON, taken_in_s=seconds, **memory(broker, 0))
        broker.kill()


if __name__ == "__main__":
    main()
