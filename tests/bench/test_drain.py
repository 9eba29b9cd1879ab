"""How fast messages leave that are in memory, taken in batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.drain import Drained, drain, fill
from tests.bench.measure import Server, show
from tests.process.broker import BrokerProcess

pytestmark = pytest.mark.bench

ROUNDS = 7
MESSAGES = 300_000
PER_SECOND_MIN = 500_000
CONTAINERS = {
    "vnd.zbus.messages": 1.0,  # the quickest of them, and so the one with the bar
    "x-ndjson": 0.0,
    "json": 0.0,
}


@pytest.mark.parametrize(("container", "part"), CONTAINERS.items())
def test_batches_from_memory(tmp_path: Path, container: str, part: float) -> None:
    """100-byte bodies, `batch=1000`, the cache holding all of them; the best of several rounds."""
    options = ("--durability", "os", "--set", "cache_bytes_max=1 GiB")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        broker.get("/Drain?cmd=declare")
        fill(broker.port, "Drain", MESSAGES)
        accept = f"accept: application/{container}\r\n".encode()
        rounds = [drain(Server.of(broker), "Drain", accept) for _ in range(ROUNDS)]
    best = Drained(
        max(one.messages_s for one in rounds),
        min(one.us for one in rounds),
        rounds[0].bytes_each,
    )
    show(line=f"batches from memory, {container}", **best._asdict())
    assert best.messages_s >= part * PER_SECOND_MIN
