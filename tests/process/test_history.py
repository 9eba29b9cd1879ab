"""The history of a real broker: over restarts, beside damage, and of several workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.forked import run_zbus
from tests.process.broker import BrokerProcess, eventually
from tests.process.test_workers import TOPICS, WORKERS
from zbus.storage.local import naming


def history(broker: BrokerProcess, query: str = "") -> Any:
    answer = broker.get(f"/_history?{query}")
    assert answer.status == 200, answer
    return json.loads(answer.body)


def looked(broker: BrokerProcess, query: str = "") -> Any:
    """The history, once the broker has looked at what is there."""
    eventually(lambda: history(broker, query)["backlog"] not in ([], [0]))
    return history(broker, query)


def test_over_restarts(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder) as broker:
        assert broker.get("/T/g?cmd=declare").status == 200
        assert broker.get("/T", body=b"x").status == 200
        assert broker.stop() == 0
    with BrokerProcess(folder) as broker:
        first = looked(broker, "topic=T")
        assert first["backlog"][-1] == 1
        assert broker.stop() == 0
    written = sorted(path.name for path in folder.glob(".history.*"))
    assert set(written) <= set(naming.HISTORY)
    verified = run_zbus("verify", "--data-dir", str(folder))
    assert verified.returncode == 0
    assert "history" not in verified.stdout + verified.stderr
    with BrokerProcess(folder) as broker:
        assert looked(broker, "topic=T")["start"] == first["start"]
        broker.kill()
    for path in folder.glob(".history.*"):
        path.write_bytes(b"\0" + path.read_bytes()[1:])
    with BrokerProcess(folder) as broker:
        assert looked(broker, "topic=T")["backlog"][-1] == 1
        assert broker.stop() == 0
        assert "history of rates unreadable; it begins anew" in broker.log()


def test_it_can_be_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--set", "history=off") as broker:
        assert broker.get("/_history").status == 404
        assert broker.stop() == 0
    assert list((tmp_path / "data").glob(".history*")) == []


def test_of_several_workers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--workers", str(WORKERS)) as broker:
        for each in TOPICS:
            assert broker.get(f"/{each}/g?cmd=declare").status == 200
            assert broker.get(f"/{each}", body=b"x").status == 200
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "data", "--workers", str(WORKERS)) as broker:
        eventually(lambda: history(broker)["backlog"][-1:] == [WORKERS])
        for each in TOPICS:
            assert looked(broker, f"topic={each}")["backlog"][-1] == 1
        assert broker.stop() == 0
    assert len(list((tmp_path / "data").glob("shard=*/.history.*"))) >= WORKERS
