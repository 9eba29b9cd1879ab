"""What a message in the cache takes of memory beside its body, and what the collector makes of it.

A broker whose cache takes everything gets messages of 100 bytes, with the collector's settings of
`zbus serve`. How many come in one turn is what matters: 30 or so, as under load; a whole batch;
one alone.
"""

from __future__ import annotations

import json
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.lockstep import connected, exchange, one_core
from tests.bench.measure import resident_bytes, show
from tests.process.broker import BrokerProcess

pytestmark = pytest.mark.bench

BODY = b"x" * 99 + b"\n"
FIRST = 20_000  # messages before the measurement begins: buffers and tables have their size then
BESIDE_BYTES_MAX = 150
TRACKED_MAX = 0.05  # objects that the collector looks after, for a message
PUTS = 2_000_000


class Watched(BrokerProcess):
    """A broker that tells about its collector (`tests.bench.watched`)."""

    def __init__(self, data_dir: Path) -> None:
        options = ("--durability", "os", "--set", "cache_bytes_max=8 GiB")
        super().__init__(data_dir, *options, program=("tests.bench.watched",))
        assert self.get("/Memory?cmd=declare").status == 200

    def look(self) -> dict[str, Any]:
        """What happened since the last look."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        assert select.select([self.process.stdout], [], [], 60)[0], self.log()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    @property
    def resident(self) -> int:
        return resident_bytes(self.process.pid)


@contextmanager
def putting(broker: Watched, connections: int, batch: int = 1) -> Iterator[Any]:
    """A function that puts so many messages, that many at a time on each connection."""
    body, line = BODY, b""
    if batch > 1:
        body, line = BODY * batch, b"content-type: application/x-ndjson\r\n"
    head = b"POST /Memory?cmd=produce HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n"
    request = head % (line, len(body)) + body
    with connected(broker.port, connections) as socks, one_core(broker.process.pid):
        yield lambda count: exchange(
            socks, iter(lambda: request, b""), count // batch // connections
        )


@pytest.mark.parametrize(
    ("turns", "connections", "batch", "count"),
    [
        ("30 a turn", 30, 1, 300_000),
        ("batches of 1000", 1, 1_000, 500_000),
        ("one a turn", 1, 1, 200_000),
    ],
)
def test_beside_a_cached_body(
    tmp_path: Path, turns: str, connections: int, batch: int, count: int
) -> None:
    with (
        Watched(tmp_path / "data") as broker,
        putting(broker, connections, batch) as put,
    ):
        put(FIRST)
        tracked, resident = broker.look()["tracked"], broker.resident
        put(count)
        beside = (broker.resident - resident) / count - len(BODY)
        each = (broker.look()["tracked"] - tracked) / count
    show(line=f"cached body, {turns}", bytes_beside=beside, tracked_each=each)
    assert 0 < beside <= BESIDE_BYTES_MAX
    assert each < TRACKED_MAX


def test_the_longest_pause(tmp_path: Path) -> None:
    """The collector over many puts of 30 a turn, all of them kept."""
    with Watched(tmp_path / "data") as broker, putting(broker, 30) as put:
        broker.look()
        put(PUTS)
        found = broker.look()
        show(line=f"collector, {PUTS} puts", resident_mb=broker.resident / 1e6, **found)
    assert found["longest_cpu_ms"] <= 10
