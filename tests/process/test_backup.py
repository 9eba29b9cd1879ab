"""Backups of a broker under load, and the brokers that start on them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.forked import run_zbus as zbus
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, Wire, run_serve

ROUNDS = 3


class Load:
    """Clients that produce, consume and ack until they are told to stop."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.produced: list[str] = []
        self.asked: list[int] = []  # offsets whose ack was sent
        self.acked: list[int] = []  # and confirmed
        self._stopped = threading.Event()
        self._grown = threading.Condition()
        works = [(self._produce, name) for name in "abc"] + [(self._consume, "")]
        self._threads = [
            threading.Thread(target=work, args=(broker.connect(), name)) for work, name in works
        ]
        for thread in self._threads:
            thread.start()

    def _produce(self, wire: Wire, name: str) -> None:
        count = 0
        while not self._stopped.is_set():
            id = f"{name}-{count}"
            assert wire.get("/T?cmd=produce", f"id: {id}", body=b"x" * 3_000).status == 200
            self.produced.append(id)
            count += 1
            with self._grown:
                self._grown.notify_all()

    def _consume(self, wire: Wire, _: str) -> None:
        while not self._stopped.is_set():
            reply = wire.get("/T/g?cmd=consume&timeout=200")
            if reply.status != 200:
                continue
            offset = int(reply.headers["offset"])
            self.asked.append(offset)
            if wire.get(f"/T/g?cmd=ack&offset={offset}").status == 200:
                self.acked.append(offset)

    def wait_for(self, count: int) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.produced) >= count, timeout=WAIT_S)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def test_backups_under_load(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    known: list[tuple[set[str], set[int], set[int]]] = []
    reports: list[str] = []
    with BrokerProcess(tmp_path / "data", "--set", "segment_bytes=1MiB") as broker:
        assert broker.get("/T?cmd=declare").status == 200
        group = "/T/g?cmd=declare&group_mask=64&group_ack_timeout=600000"
        assert broker.get(group).status == 200
        load = Load(broker)
        for number in range(ROUNDS):
            load.wait_for(800 * (number + 1))
            produced, acked = set(load.produced), set(load.acked)
            made = zbus("backup", "--data-dir", tmp_path / "data", backup)
            assert made.returncode == 0, made.stderr
            known.append((produced, acked, set(load.asked)))
            reports.append(made.stdout)
            new = tmp_path / f"new-{number}"
            restored = zbus("restore", "--data-dir", new, backup)
            assert restored.returncode == 0, restored.stderr
        load.stop()
        assert broker.stop() == 0
    assert " 0 kept" not in reports[-1]
    for number, (produced, acked, asked) in enumerate(known):
        new = tmp_path / f"new-{number}"
        assert zbus("verify", "--data-dir", new).returncode == 0
        with BrokerProcess(new) as broker:
            wire = broker.connect()
            wire.get("/T/all?cmd=declare&group_start_offset=0")
            found: set[str] = set()
            offsets: set[int] = set()
            while (reply := wire.get("/T/all?cmd=consume&timeout=100&batch=500")).status == 200:
                messages = json.loads(reply.body)
                found |= {message["id"] for message in messages}
                offsets |= {int(message["offset"]) for message in messages}
            assert produced <= found
            info = json.loads(broker.get("/T/g?cmd=query").body)
            # What the group has done is at least what was confirmed, at most what was asked for.
            waiting = info["messageCount"]
            assert len(offsets) - len(asked) <= waiting <= len(offsets) - len(acked)


def test_a_damaged_broker_says_what_to_do(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/T?cmd=declare")
        for number in range(10):
            broker.get("/T?cmd=produce", f"id: {number}", body=b"message %d" % number)
        in_use = zbus("verify", "--data-dir", tmp_path / "data")
        assert in_use.returncode == 3
        assert "stop the broker first" in in_use.stderr
        broker.stop()
    [log] = (tmp_path / "data").glob("**/0/*.log")
    stored = bytearray(log.read_bytes())
    stored[stored.index(b"message 3")] ^= 1
    log.write_bytes(stored)
    refused = run_serve("--port", "0", "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 3
    assert "zbus verify --repair" in refused.stderr
    assert zbus("verify", "--data-dir", tmp_path / "data", "--repair").returncode == 4
    with BrokerProcess(tmp_path / "data") as broker:
        wire = broker.connect()
        replies = [wire.get("/T?cmd=consume&timeout=500") for _ in range(10)]
        bodies = [reply.body for reply in replies]
        assert bodies == [b"message %d" % n if n != 3 else b"" for n in range(10)]
        assert replies[3].headers["content-lost"] == "damage"


def test_a_backup_is_not_served(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/T?cmd=declare")
        assert zbus("backup", "--data-dir", tmp_path / "data", backup).returncode == 0
    before = sorted(backup.rglob("*"))
    refused = run_serve("--port", "0", "--data-dir", str(backup))
    assert refused.returncode == 3
    assert refused.stderr.startswith(f"zbus: {backup} is a backup; restore it first")
    assert sorted(backup.rglob("*")) == before
