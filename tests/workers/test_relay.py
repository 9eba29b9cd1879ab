"""The way to the owner of a shard: which is taken, and when there is none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.authority import client_context, server_context
from zbus.server.loop.sockets import split_address
from zbus.storage.jetstream.presence import GONE_MS, Heartbeat, Membership
from zbus.storage.jetstream.settings import Cluster
from zbus.wire.tls import TlsStream
from zbus.workers.cluster.relay import ClusterRoutes, Relay


class Bus:
    """Says what a test wants."""

    def __init__(self) -> None:
        self.received: Callable[[bytes], None] = lambda body: None

    def publish(self, subject: str, body: bytes) -> None: ...

    def beat(self, subject: str, body: bytes, every_ms: int) -> None: ...

    def subscribe(self, pattern: str, received: Callable[[bytes], None]) -> None:
        self.received = received


class Ways:
    """Routes of the node `a`, and what it hears."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 1_000_000
        self.bus = Bus()
        self.moved: list[int] = []
        membership = Membership(self.bus, Cluster("c", shards=3), lambda: self.now_ms)
        membership.listen()
        paths = [str(folder / f"asked-{shard}") for shard in range(3)]
        context: Any = client_context()
        context.check_hostname = False
        relay = Relay("127.0.0.1", 1, server_context(folder), context)
        self.routes = ClusterRoutes("a", paths, membership, relay, 5_000)
        self.routes.when_moved(self.moved.append)

    def hear(self, epoch: int, node: str, **more: Any) -> None:
        owner = Heartbeat(epoch, node, random=f"{node}{epoch}", **more)
        self.bus.received(msgspec.json.encode(owner))

    def open(self, shard: int) -> str:
        """Which way is taken, or why none."""
        try:
            sock, tls = self.routes.open(shard)
        except OSError as error:
            return str(error.strerror)
        sock.close()
        assert (tls is not None) == (sock.family != socket.AF_UNIX)
        return "TLS" if isinstance(tls, TlsStream) else "Unix"


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[Ways]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "asked-1"))
        listening.listen()
        yield Ways(tmp_path)


def test_the_way_to_an_owner(ways: Ways) -> None:
    assert ways.open(1) == "shard 1 has no owner just now"
    ways.hear(1, "b", shard=1)
    assert ways.open(1) == "node b owns shard 1, and one of the two has no relay_listen"
    ways.hear(1, "b", shard=1, relay="127.0.0.1:9")
    assert ways.open(1) == "TLS"
    ways.hear(1, "b", shard=1, relay="127.0.0.1:65535")  # there is no port for shard 1
    assert ways.open(1) == "node b owns shard 1, and one of the two has no relay_listen"
    ways.hear(2, "a", shard=1)
    assert ways.open(1) == "Unix"
    ways.hear(1, "b", shard=1, relay="127.0.0.1:9")  # late
    assert ways.open(1) == "Unix"
    assert ways.open(0) == "shard 0 has no owner just now"
    ways.hear(2, "a", shard=0)
    assert ways.open(0) == "No such file or directory"  # it does not listen yet
    assert ways.moved == [1, 1, 0]


def test_an_owner_that_reads_its_shard_gets_no_requests_yet(ways: Ways) -> None:
    """They would wait in its socket, for longer than they may wait for an owner."""
    ways.hear(1, "a", shard=1, opening=True)
    assert ways.open(1) == "shard 1 has no owner just now"
    ways.hear(1, "a", shard=1)
    assert ways.open(1) == "Unix"
    ways.hear(1, "a", shard=1, sequence=7)
    assert ways.moved == [1, 1]


def test_an_owner_that_is_gone(ways: Ways) -> None:
    """It left, or is silent while others are heard; with all of them silent, nothing is known."""
    ways.hear(1, "b", shard=1, relay="127.0.0.1:9")
    ways.now_ms += GONE_MS
    assert ways.open(1) == "TLS"
    ways.hear(1, "c", shard=2)
    assert ways.open(1) == "shard 1 has no owner just now"
    ways.hear(1, "b", shard=1, relay="127.0.0.1:9")
    assert ways.open(1) == "TLS"
    ways.hear(1, "b", shard=1, left=True)
    assert ways.open(1) == "shard 1 has no owner just now"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"epoch":"x"}', b'{"epoch":1,"shard":3}', b'{"epoch":1,"shard":-1}'],
)
def test_a_heartbeat_that_is_none(ways: Ways, body: bytes) -> None:
    ways.bus.received(body)
    assert ways.moved == []


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("a:1", ("a", 1)),
        ("[::1]:15600", ("::1", 15_600)),
        ("x", ("", 0)),
        ("a:٣", ("a", 0)),
        ("a:-1", ("a", 0)),
        ("a:999999", ("a", 0)),
    ],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
