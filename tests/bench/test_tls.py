"""What TLS costs, as ratios to plain connections of the same broker (`make bench`)."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority import client_context
from tests.bench.measure import ab, alternate, resident_bytes, show
from tests.process.test_tls import TlsBroker

pytestmark = pytest.mark.bench

ROUNDS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TlsBroker]:
    free = "connections_per_address_max=0"
    with TlsBroker(tmp_path, "--durability", "os", "--set", free) as process:
        process.secure().get("/MyTopic?cmd=declare")
        yield process


def test_ab_over_tls_against_plain(broker: TlsBroker) -> None:
    """32 connections that live; the generator does as much for TLS as the broker."""

    def plain(command: str) -> float:
        return ab(broker.plain_port, f"/MyTopic?cmd={command}")

    def tls(command: str) -> float:
        return ab(broker.port, f"/MyTopic?cmd={command}", scheme="https")

    put_plain, put_tls, take_plain, take_tls = alternate(
        ROUNDS,
        lambda: plain("produce"),
        lambda: tls("produce"),
        lambda: plain("consume"),
        lambda: tls("consume"),
    )
    show(plain=put_plain, produce=put_tls / put_plain, consume=take_tls / take_plain)
    assert put_tls >= 0.5 * put_plain
    assert take_tls >= 0.5 * take_plain


def test_handshakes(broker: TlsBroker) -> None:
    """Connections a second of one client, which does as much work for each as the broker."""
    rates = {}
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context(version=version)
        count, began = 500, time.perf_counter()
        for _ in range(count):
            wire = broker.secure(context)
            assert wire.get("/?cmd=ping").status == 200
            wire.close()
        rates[version.name] = count / (time.perf_counter() - began)
    show(**rates)
    assert min(rates.values()) >= 100


def test_memory_of_idle_connections(broker: TlsBroker) -> None:
    context = client_context()
    count, before = 1_000, resident_bytes(broker.process.pid)
    wires = [broker.secure(context) for _ in range(count)]
    assert all(wire.get("/?cmd=ping").status == 200 for wire in wires)
    each = (resident_bytes(broker.process.pid) - before) / count
    for wire in wires:
        wire.close()
    show(connections=count, bytes_each=each)
    assert each <= 48 << 10
