"""The speed that the design asks for, as ratios within one run (`make bench`, a quiet machine)."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from tests.bench.measure import (
    ab,
    alternate,
    cpu_seconds,
    disk_bytes_per_second,
    floor,
    resident_bytes,
    wrk_unique_ids,
)
from tests.process.broker import BrokerProcess
from zbus.cli.bench.options import Options
from zbus.cli.bench.run import run_load

pytestmark = pytest.mark.bench

ROUNDS = 3


def show(**figures: float | str) -> None:
    """Print a line of figures; they are what a benchmark is for."""
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    print("\n" + json.dumps(rounded), flush=True)


def test_ab_against_the_floor(tmp_path: Path) -> None:
    """Durability os, repeated heads, 32 connections: at least half of the floor."""
    with floor() as port, BrokerProcess(tmp_path / "data", "--durability", "os") as broker:
        broker.get("/MyTopic?cmd=declare")
        bare, produce, consume = alternate(
            ROUNDS,
            lambda: ab(port, "/MyTopic?cmd=produce"),
            lambda: ab(broker.port, "/MyTopic?cmd=produce"),
            lambda: ab(broker.port, "/MyTopic?cmd=consume"),
        )
    show(floor=bare, produce=produce / bare, consume=consume / bare)
    assert produce >= 0.5 * bare
    assert consume >= 0.5 * bare


def test_unique_ids_against_the_floor(tmp_path: Path) -> None:
    """Every request with an id of its own: at least half of the floor."""
    with floor() as port, BrokerProcess(tmp_path / "data", "--durability", "os") as broker:
        broker.get("/MyTopic?cmd=declare")
        bare, produce = alternate(
            ROUNDS,
            lambda: wrk_unique_ids(port, "MyTopic"),
            lambda: wrk_unique_ids(broker.port, "MyTopic"),
        )
    show(floor=bare, produce=produce / bare)
    assert produce >= 0.5 * bare


def load(broker: BrokerProcess, phase: str = "produce", **options: object) -> float:
    """Messages a second of our own generator."""
    url = f"http://127.0.0.1:{broker.port}"
    report = run_load(Options(mode=phase, url=url, **options)).phase(phase)  # type: ignore[arg-type]
    assert not report.errors, report
    return report.messages_per_second


@pytest.mark.parametrize("connections", [128, 256])
def test_disk_against_os(tmp_path: Path, connections: int) -> None:
    """Synced before the reply: at least half of the speed without the sync."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/Disk?cmd=declare&durability=disk")
        broker.get("/Os?cmd=declare&durability=os")
        os_rate, disk_rate = alternate(
            ROUNDS,
            lambda: load(broker, topic="Os", connections=connections, messages=200_000),
            lambda: load(broker, topic="Disk", connections=connections, messages=200_000),
        )
    show(connections=connections, os=os_rate, disk=disk_rate, ratio=disk_rate / os_rate)
    assert disk_rate >= 0.5 * os_rate


def test_batches_against_the_disk(tmp_path: Path) -> None:
    """Batches of 100 messages of 1 KiB, synced, beside the disk's own write and sync."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/B?cmd=declare")
        raw, rate = alternate(
            ROUNDS,
            lambda: disk_bytes_per_second(tmp_path),
            lambda: load(
                broker, topic="B", connections=8, messages=200_000, body_bytes=1024, batch=100
            ),
        )
        take = load(
            broker,
            "consume",
            topic="B",
            connections=8,
            messages=200_000,
            body_bytes=1024,
            batch=100,
        )
    show(disk_mb_s=raw / 1e6, messages_s=rate, mb_s=rate * 1024 / 1e6, consumed_s=take)


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_idle_connections(tmp_path: Path, count: int) -> None:
    """At most 8 KB for an idle connection, 2 % of a core for all of them."""
    with BrokerProcess(tmp_path / "data") as broker:
        before = resident_bytes(broker.process.pid)
        socks = []
        ping = b"GET /?cmd=ping HTTP/1.1\r\nhost: x\r\n\r\n"
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", broker.port))
            sock.sendall(ping)
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            socks.append(sock)
        each = (resident_bytes(broker.process.pid) - before) / count
        total = resident_bytes(broker.process.pid) / 1e6
        cpu, started = cpu_seconds(broker.process.pid), time.monotonic()
        time.sleep(10)
        busy = (cpu_seconds(broker.process.pid) - cpu) / (time.monotonic() - started)
        for sock in socks:
            sock.close()
    show(connections=count, bytes_each=each, total_mb=total, idle_cpu=busy)
    assert each <= 8192
    assert busy <= 0.02
