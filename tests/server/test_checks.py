"""What `zbus doctor` finds, on machines of all kinds."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trustme
from click.testing import CliRunner

from tests.docs.pages import ROOT
from tests.process.broker import BrokerProcess
from zbus.cli.doctor import doctor
from zbus.config import Config
from zbus.server.doctor import (
    Finding,
    Machine,
    clock_state,
    examine,
    measured,
    valid_until_s,
    write_cache,
)
from zbus.server.process.certificates import Certificates
from zbus.server.process.shards import take_shards
from zbus.server.watch.system_stats import Space

GIB = 1 << 30
ROOMY = Space(500 * GIB, 1_000 * GIB)


@attrs.define
class Gauged:
    """Gauges that say what a test wants."""

    space: Space | None = ROOMY
    memory: int | None = 16 * GIB

    def disk(self, path: Path) -> Space | None:
        return self.space

    def memory_used(self) -> int | None:
        return None

    def memory_total(self) -> int | None:
        return self.memory

    def memory_free(self) -> int | None:
        return None

    def trim_memory(self) -> None: ...


def machine(tmp_path: Path, kind: str = "ext4", **different: Any) -> Machine:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\n/dev/b {tmp_path} {kind} rw 0 0\n/dev/c /nowhere x\n")
    given: dict[str, Any] = {
        "gauges": Gauged(),
        "mounts": mounts,
        "files_max": lambda: 100_000,
        "sync_s": lambda folder: [0.001, 0.002, 0.5],
        "write_cache": lambda path: "write back",
        "clock_state": lambda: 0,
        "now_s": lambda: 1_800_000_000.0,
        "cores": lambda: 2,
        **different,
    }
    return Machine(**given)


def found(tmp_path: Path, here: Machine | None = None, **options: Any) -> dict[str, Finding]:
    config = Config(**{"data_dir": tmp_path / "data", "port": 0, **options})
    return {each.check: each for each in examine(config, here or machine(tmp_path))}


def fail_to_sync(folder: Path) -> list[float]:
    raise OSError(5, "Input/output error")


def test_all_is_well(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert {each.level for each in told.values()} == {"ok"}
    assert told["sync"].text == "4 KiB are synced in 2.000 ms"
    assert told["data"].text == f"{tmp_path / 'data'} on ext4"
    assert list(told) == ["python", "data", "space", "sync", "files", "memory", "clock", "tokens"]
    assert not (tmp_path / "data").exists(), "nothing is made"


@pytest.mark.parametrize(
    ("different", "check", "level", "text"),
    [
        ({"kind": "tmpfs"}, "data", "problem", "in memory (tmpfs)"),
        ({"kind": "nfs4"}, "data", "warning", "on the network (nfs4)"),
        ({"gauges": Gauged(Space(GIB, 100 * GIB))}, "space", "warning", "1 % of the disk"),
        ({"sync_s": lambda folder: [0.000_002] * 3}, "sync", "warning", "no disk can do that"),
        ({"sync_s": lambda folder: [0.2] * 3}, "sync", "warning", "200.000 ms"),
        ({"sync_s": fail_to_sync}, "sync", "problem", "cannot be synced: Input/output error"),
        ({"write_cache": lambda path: "write through"}, "sync", "ok", "asks for no flush"),
        ({"files_max": lambda: 1_024}, "files", "warning", "768 connections may be open, not"),
        ({"files_max": lambda: 100}, "files", "warning", "50 connections may be open, not"),
        ({"files_max": lambda: -1}, "files", "ok", "20,000 connections"),
        ({"gauges": Gauged(memory=100 << 20)}, "memory", "warning", "100 MiB for this process"),
        ({"clock_state": lambda: 5}, "clock", "warning", "no time service synchronizes it"),
        ({"clock_state": lambda: -1}, "clock", "ok", "2027 08:00:00 GMT"),
    ],
)
def test_what_is_not(
    tmp_path: Path, different: dict[str, Any], check: str, level: str, text: str
) -> None:
    told = found(tmp_path, machine(tmp_path, **different))[check]
    assert told.level == level
    assert text in told.text
    assert bool(told.advice) is (level != "ok")


@pytest.mark.parametrize(
    ("options", "different", "check", "level", "text"),
    [
        ({"workers": 2}, {}, "workers", "ok", "2 workers on 2 cores"),
        ({"workers": 3}, {}, "workers", "warning", "3 workers on 2 cores"),
        ({"workers": 2}, {"cores": lambda: 1}, "workers", "warning", "2 workers on 1 core"),
        (
            {"workers": 2, "engine": "nats://127.0.0.1:1/a"},
            {},
            "workers",
            "problem",
            "needs --shards",
        ),
        (
            {"workers": 3},
            {"gauges": Gauged(memory=290 << 20)},
            "memory",
            "warning",
            "290 MiB for a",
        ),
        ({"workers": 2}, {"gauges": Gauged(memory=290 << 20)}, "memory", "ok", "290 MiB for all"),
        ({"workers": 4}, {"files_max": lambda: 8_000}, "files", "ok", "20,000 connections"),
        ({"workers": 4}, {"files_max": lambda: 1_024}, "files", "warning", "3,072 connections may"),
    ],
)
def test_several_workers(
    tmp_path: Path,
    options: dict[str, Any],
    different: dict[str, Any],
    check: str,
    level: str,
    text: str,
) -> None:
    told = found(tmp_path, machine(tmp_path, **different), **options)[check]
    assert (told.level, text in told.text) == (level, True), told
    assert bool(told.advice) is (level != "ok")


def test_the_directory_of_other_workers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    take_shards(data, 3)
    assert found(tmp_path, workers=3)["data"].level == "ok"
    (data / "shard=1/orders/0").mkdir(parents=True)
    refuses = machine(tmp_path, may_write=lambda path: path.name != "0")
    assert "shard=1/orders/0 cannot be written" in found(tmp_path, refuses, workers=3)["data"].text
    told = found(tmp_path, workers=2)["data"]
    assert (told.level, "was made for 3 workers, not 2: start" in told.text) == ("problem", True)
    shutil.rmtree(data / "shard=0")
    told = found(tmp_path, workers=3)["data"]
    assert (told.level, "shard=0 is missing" in told.text) == ("problem", True)
    assert not (data / "shard=0").exists(), "nothing is made"


@pytest.mark.parametrize(
    ("options", "check", "level", "text"),
    [
        ({"host": "0.0.0.0"}, "tokens", "problem", "no token file is set"),
        ({"host": "0.0.0.0", "insecure": True}, "tokens", "warning", "has full access"),
        ({"token_file": "/nowhere.toml"}, "tokens", "problem", "/nowhere.toml"),
        ({"listen": "ftp://x"}, "port", "problem", "ftp://x"),
        ({"tls_cert_file": "/nowhere.pem"}, "tls", "problem", "/nowhere.pem"),
    ],
)
def test_options_that_will_not_do(
    tmp_path: Path, options: dict[str, Any], check: str, level: str, text: str
) -> None:
    told = found(tmp_path, **options)[check]
    assert (told.level, bool(told.advice)) == (level, True)
    assert text in told.text


def test_what_the_system_says_of_a_cache(tmp_path: Path) -> None:
    """A partition has that of its disk; what is on no disk has none."""
    assert write_cache(tmp_path, tmp_path / "none") == ""
    number = tmp_path.stat().st_dev
    (tmp_path / "sda/sda1").mkdir(parents=True)
    (tmp_path / f"{os.major(number)}:{os.minor(number)}").symlink_to(tmp_path / "sda/sda1")
    assert write_cache(tmp_path, tmp_path) == ""
    (tmp_path / "sda/queue").mkdir()
    (tmp_path / "sda/queue/write_cache").write_text("write back\n")
    assert write_cache(tmp_path, tmp_path) == "write back"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = found(tmp_path, data_dir=tmp_path / "file/data")["data"]
    assert (told.level, told.text) == ("problem", f"{tmp_path / 'file'} cannot be written")


@pytest.mark.parametrize("place", ["0", "0/00000000000000000007.log"])
def test_what_another_account_has_restored(tmp_path: Path, place: str) -> None:
    lane = tmp_path / "data/orders/0"
    lane.mkdir(parents=True)
    for base in (0, 7):
        (lane / f"{base:020}.log").touch()
    wrong = tmp_path / "data/orders" / place
    told = found(tmp_path, machine(tmp_path, may_write=lambda path: path != wrong))["data"]
    assert (told.level, told.text) == ("problem", f"{wrong} cannot be written")
    assert "chown -R" in told.advice
    older = lane / f"{0:020}.log"
    assert found(tmp_path, machine(tmp_path, may_write=lambda path: path != older))["data"].level


@pytest.mark.parametrize(
    ("mode", "level"), [(0o600, "ok"), (0o640, "ok"), (0o644, "warning"), (0o660, "warning")]
)
def test_who_may_read_tokens(tmp_path: Path, mode: int, level: str) -> None:
    file = tmp_path / "tokens.toml"
    shutil.copy(ROOT / "examples/tokens.toml", file)
    file.chmod(mode)
    assert found(tmp_path, token_file=str(file))["tokens"].level == level


@pytest.mark.parametrize(
    ("days", "level", "text"),
    [(90, "ok", "valid for"), (5, "warning", "valid for"), (-1, "problem", "expired")],
)
def test_how_long_a_certificate_is_valid(tmp_path: Path, days: int, level: str, text: str) -> None:
    until = datetime.now(UTC) + timedelta(days=days)
    made = trustme.CA().issue_cert("localhost", not_after=until)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made.cert_chain_pems[0].write_to_path(cert)
    made.private_key_pem.write_to_path(key)
    options: dict[str, Any] = {"tls_cert_file": str(cert), "tls_key_file": str(key)}
    here = machine(tmp_path, now_s=lambda: datetime.now(UTC).timestamp())
    told = found(tmp_path, here, listen="https://127.0.0.1:0", **options)["tls"]
    assert (told.level, text in told.text) == (level, True), told
    if days > 0:
        config = Config(listen="https://127.0.0.1:0", **options)
        context = Certificates(config).context
        assert abs(valid_until_s(context, str(cert)) - until.timestamp()) < 2
        assert isinstance(context, ssl.SSLContext)


def test_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = found(tmp_path, port=port, tls_cert_file="")["port"]
    assert (told.level, "Address already in use" in told.text) == ("problem", True)


def test_a_broker_that_runs_and_the_command(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        words = ["--port", str(broker.port), "--data-dir", str(tmp_path / "data")]
        ended = CliRunner().invoke(doctor, [*words, "--json"])
        port = {each["check"]: each for each in json.loads(ended.output)}["port"]
        assert port["level"] == "ok"
        assert '"status":"ok"' in port["text"]
        assert broker.stop() == 0
    ended = CliRunner().invoke(doctor, [*words, "--set", "host=0.0.0.0"])
    assert ended.exit_code == 1
    assert "problem  tokens" in ended.output
    ended = CliRunner().invoke(doctor, ["--set", "nonsense=1"])
    assert (ended.exit_code, "nonsense" in ended.output) == (2, True)


def test_the_real_machine(tmp_path: Path) -> None:
    assert all(seconds > 0 for seconds in measured(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert clock_state() >= -1
