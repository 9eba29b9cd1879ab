"""What is held in memory is counted, shared out, and shown."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest

from tests.server.test_nothing_left_of_a_connection import Turns, ask
from tests.server.test_pressure import FakeGauges
from zbus.config import Config
from zbus.server.process.serve import Server
from zbus.server.watch.pressure import SHARES, MemoryUsage, Pressure, within
from zbus.testing.world import World

MIB = 1 << 20
KINDS = {
    "bodies",
    "cache",
    "calls",
    "connections",
    "documents",
    "heads",
    "history",
    "output",
    "metrics",
    "adfLeases",
    "memoryTopics",
    "mqcloudLocks",
    "pulls",
    "rates",
    "semqLinks",
}


@pytest.mark.parametrize("memory_mib", [32, 200, 2_000])
def test_no_kind_is_given_more_than_its_share(memory_mib: int) -> None:
    config = within(Config(), memory_mib * MIB)
    for name, part in SHARES.items():
        least = config.body_bytes_max if name == "bodies_bytes_max" else MIB
        share = max(memory_mib * MIB // part, least)
        assert getattr(config, name) == min(getattr(Config(), name), share), name


def test_without_a_limit_options_are_as_they_were() -> None:
    assert within(Config(), 0) == Config()


def test_a_server_shows_what_it_holds(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    client = turns.connect(ask("/T?cmd=consume") * 50, ask("/T", body="x" * 1_000)[:-1])
    held = turns.server.holdings.bytes_used()
    assert held.keys() == KINDS
    assert held["pulls"] > 0
    assert held["connections"] > 0
    asked = turns.connect(ask("/?cmd=server"))
    body = turns.receive(asked).partition(b"\r\n\r\n")[2]
    assert json.loads(body)["heldBytes"].keys() == KINDS
    client.close()
    asked.close()
    turns.run()
    assert turns.server.holdings.bytes_used()["pulls"] == 0
    turns.server.close()


def test_the_log_says_what_is_held_when_puts_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    gauges, holdings = FakeGauges(), MemoryUsage()
    holdings.add("pulls", lambda: 3 * MIB)
    holdings.add("heads", lambda: 0)
    gave_way: list[str] = []
    pressure = Pressure(
        World().broker,
        gauges,
        lambda: None,
        Config(),
        give_way=lambda: gave_way.append("way"),
        holdings=holdings,
    )
    gauges.used = 500 * MIB
    with caplog.at_level(logging.WARNING, "zbus"):
        pressure.look()
    (record,) = caplog.records
    assert record.__dict__["held"] == {"pulls": "3.0 MiB"}
    assert gave_way == ["way"]
    gauges.used = 100 * MIB
    with caplog.at_level(logging.WARNING, "zbus"):
        pressure.look()
    assert caplog.records[-1].getMessage() == "accepting messages again"


def test_replies_that_nobody_takes_have_a_bound_over_all_connections(tmp_path: Path) -> None:
    """Who leaves more behind when it is reached is cut off; the others are served."""
    config = Config(
        port=0, data_dir=tmp_path / "data", durability="os", memory_limit_bytes=64 * MIB
    )
    server = Server(config, gauges=FakeGauges())
    turns = Turns.of(server)
    put = turns.connect(ask("/T?cmd=declare"), ask("/T", body="x" * (6 * MIB)))
    takers = []
    for _ in range(8):
        taker = socket.create_connection(("127.0.0.1", server.port))
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        taker.sendall(ask("/T?cmd=consume&offset=0"))
        takers.append(taker)
        turns.run()
    turns.until(lambda: len(server.loop.links) < 9)
    assert len(server.loop.links) > 1
    assert server.loop.output.unsent_bytes <= server.loop.output.unsent_bytes_max == 8 * MIB
    for sock in (put, *takers):
        sock.close()
    turns.gone()
    assert server.loop.output.unsent_bytes == 0
    server.close()
