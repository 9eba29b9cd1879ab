"""The speed that the design asks for, as ratios within one run (`make bench`, a quiet machine)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.measure import (
    ab,
    alternate,
    disk_bytes_per_second,
    floor,
    show,
    wrk_unique_ids,
)
from tests.process.broker import BrokerProcess
from zbus.cli.bench.options import Options
from zbus.cli.bench.run import run_load

pytestmark = pytest.mark.bench

ROUNDS = 3
SHARE_MIN = 0.60  # of the floor's requests a second
DISK_MIN = 0.6  # of what the disk writes and syncs one after another


def test_ab_against_the_floor(tmp_path: Path) -> None:
    """Durability os, repeated heads, 32 connections."""
    with floor() as bare, BrokerProcess(tmp_path / "data", "--durability", "os") as broker:
        broker.get("/MyTopic?cmd=declare")
        most, produce, consume = alternate(
            ROUNDS,
            lambda: ab(bare.port, "/MyTopic?cmd=produce"),
            lambda: ab(broker.port, "/MyTopic?cmd=produce"),
            lambda: ab(broker.port, "/MyTopic?cmd=consume"),
        )
    show(line="ab", floor=most, produce=produce / most, consume=consume / most)
    assert produce >= SHARE_MIN * most
    assert consume >= SHARE_MIN * most


def test_unique_ids_against_the_floor(tmp_path: Path) -> None:
    """Every request with an id of its own."""
    with floor() as bare, BrokerProcess(tmp_path / "data", "--durability", "os") as broker:
        broker.get("/MyTopic?cmd=declare")
        most, produce = alternate(
            ROUNDS,
            lambda: wrk_unique_ids(bare.port, "MyTopic"),
            lambda: wrk_unique_ids(broker.port, "MyTopic"),
        )
    show(line="unique ids", floor=most, produce=produce / most)
    assert produce >= SHARE_MIN * most


def load(broker: BrokerProcess, phase: str = "produce", **options: object) -> float:
    """Messages a second of our own generator."""
    url = f"http://127.0.0.1:{broker.port}"
    report = run_load(Options(mode=phase, url=url, **options)).phase(phase)  # type: ignore[arg-type]
    assert not report.errors, report
    return report.messages_per_second


@pytest.mark.parametrize(("connections", "share_min"), [(128, 0.7), (256, 0.9)])
def test_disk_against_os(tmp_path: Path, connections: int, share_min: float) -> None:
    """Synced before the reply, beside the speed without the sync."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/Disk?cmd=declare&durability=disk")
        broker.get("/Os?cmd=declare&durability=os")
        os_rate, disk_rate = alternate(
            ROUNDS,
            lambda: load(broker, topic="Os", connections=connections, messages=200_000),
            lambda: load(broker, topic="Disk", connections=connections, messages=200_000),
        )
    show(
        line="disk beside os",
        connections=connections,
        os=os_rate,
        disk=disk_rate,
        ratio=disk_rate / os_rate,
    )
    assert disk_rate >= share_min * os_rate


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
    show(
        line="batches of 100 KiB, synced",
        disk_mb_s=raw / 1e6,
        mb_s=rate * 1024 / 1e6,
        share=rate * 1024 / raw,
        messages_s=rate,
        consumed_s=take,
    )
    assert rate * 1024 >= DISK_MIN * raw
