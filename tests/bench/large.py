"""What the large measurements share: filling a broker, load on many topics, a cold start."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe

MIB = 1 << 20
KIB_BODIES = (b"%b\n" % (b"x" * 1023)) * 1000  # as x-ndjson: 1,000 messages of a KiB
STORED_BYTES = 1_220_000  # of these, with their ids and headers
NDJSON = b"content-type: application/x-ndjson\r\n"


@contextmanager
def folder() -> Iterator[Path]:
    """A place for many bytes, removed at the end; TMPDIR chooses it."""
    with tempfile.TemporaryDirectory(prefix="zbus-large-") as path:
        yield Path(path) / "data"


def fill(broker: BrokerProcess, topics: Sequence[str], bytes_each: int) -> float:
    """Put messages of a KiB into topics that exist, over four connections; MB a second."""
    began = time.monotonic()
    turns = max(1, bytes_each // STORED_BYTES)

    def work(part: Sequence[str]) -> None:
        with Pipe(broker.port) as pipe:
            for topic in part:
                for _ in range(turns):
                    assert pipe.get(f"/{topic}?cmd=produce", KIB_BODIES, NDJSON).status == 200

    threads = [threading.Thread(target=work, args=(topics[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(topics) * bytes_each / 1e6 / (time.monotonic() - began)


def each(port: int, requests: Sequence[bytes], depth: int = 32) -> float:
    """Send all of them on one connection, `depth` unanswered at most; requests a second."""
    began = time.monotonic()
    with Pipe(port, timeout_s=60) as pipe:
        for first in range(0, len(requests), depth):
            some = requests[first : first + depth]
            pipe.send(b"".join(some))
            for _ in some:
                reply = pipe.read()
                assert reply.status == 200, reply
    return len(requests) / (time.monotonic() - began)


def storm(port: int, requests: Sequence[bytes], connections: int = 64) -> float:
    """Send all of them, one at a time on each of many connections; requests a second."""
    left = deque(requests)
    pipes = {pipe.sock.fileno(): pipe for pipe in (Pipe(port) for _ in range(connections))}
    poll = select.epoll()
    began = time.monotonic()
    for number, pipe in pipes.items():
        poll.register(number, select.EPOLLIN)
        pipe.send(left.popleft())
    answered = 0
    while answered < len(requests):
        events = poll.poll(30)
        assert events, "the broker does not answer"
        for number, _ in events:
            pipe = pipes[number]
            data = pipe.sock.recv(1 << 16)
            assert data.startswith(b"HTTP/1.1 200"), data
            answered += 1
            if left:
                pipe.send(left.popleft())
    seconds = time.monotonic() - began
    poll.close()
    for pipe in pipes.values():
        pipe.close()
    return len(requests) / seconds


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def stored_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in data_dir.rglob("*.log"))


def forget_caches() -> bool:
    """Drop the system's page cache; False where that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def end(broker: BrokerProcess, number: signal.Signals) -> float:
    """Stop or kill; seconds."""
    began = time.monotonic()
    broker.stop(number, timeout_s=120)
    return time.monotonic() - began


def timed_start(data_dir: Path, *options: str) -> tuple[BrokerProcess, float]:
    """A broker, and the seconds until it said that it serves."""
    began = time.monotonic()
    broker = BrokerProcess(data_dir, *options, start_timeout_s=300)
    return broker, time.monotonic() - began
