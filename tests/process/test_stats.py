"""`stats` and `disconnect` of a real broker: what only a server around it knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.broker import BrokerProcess, Wire, request


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log()


def asked(wire: Wire, target: str) -> Any:
    answer = wire.get(target)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def events(wire: Wire, kind: bytes) -> Any:
    """The next event of this kind."""
    received = b""
    while b"event: %b\n" % kind not in received or not received.endswith(b"\n\n"):
        received += wire.sock.recv(65_536)
    block = next(b for b in received.split(b"\n\n") if b.startswith(b"event: %b\n" % kind))
    return json.loads(block.partition(b"data: ")[2])


def test_figures_of_the_process(broker: BrokerProcess) -> None:
    found = asked(broker.connect(), "/_stats")
    assert 0 < found["memoryBytes"] < found["memoryTotalBytes"]
    assert 0 < found["diskFreeBytes"] <= found["diskTotalBytes"]
    assert found["startTime"] <= found["time"]
    assert found["cpuMs"] > 0
    assert found["heldBytes"]["connections"] > 0


def test_a_stream_goes_on(broker: BrokerProcess) -> None:
    wire, other = broker.connect(), broker.connect()
    wire.send(request("/_stats", "accept: text/event-stream"))
    assert "T" not in events(wire, b"stats")["topics"]
    assert other.get("/T?cmd=declare").status == 200
    while "T" not in (found := events(wire, b"delta"))["topics"]:
        pass
    assert found["topicCount"] == 1


@pytest.mark.parametrize("how", ["idle", "waiting", "stream"])
def test_a_connection_is_ended(broker: BrokerProcess, how: str) -> None:
    wire, other = broker.connect(), broker.connect()
    assert other.get("/Ended?cmd=declare").status == 200
    assert wire.get("/?cmd=ping").status == 200
    if how == "waiting":
        wire.send(request("/Ended?cmd=consume&timeout=60000"))
    elif how == "stream":
        wire.send(request("/Ended?cmd=consume", "accept: text/event-stream"))
        assert b"retry" in wire.sock.recv(65_536)
    name = "/{}:{}".format(*wire.sock.getsockname())
    [row] = [row for row in asked(other, "/_connections?count=1000") if row["address"] == name]
    assert row["idleMs"] >= 0
    assert row["inBytes"] > 0
    assert row["outBytes"] >= 0
    assert row["since"] > 0
    assert other.get(f"/?cmd=disconnect&session={row['id']}").status == 200
    assert wire.at_end()
    rows = asked(other, "/_connections?count=1000")
    assert name not in {row["address"] for row in rows}
    assert other.get(f"/?cmd=disconnect&session={row['id']}").status == 404
