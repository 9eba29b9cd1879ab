"""Real endpoints of SEMQ with a real broker: started, stopped, asked by the command line."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import run_zbus
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.endpoint import EndpointProcess, run_endpoint, wait_for
from tests.semq.certificates import both, certificate_of, make

A, B = "1:10008", "1:56001"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "--set", f"semq_nodes={A},{B}") as broker:
        yield broker


def zbus_semq(endpoint: EndpointProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the shell, asking that endpoint."""
    return run_zbus("semq", *words, "--socket", endpoint.socket)


@pytest.mark.parametrize("direct", [True, False])
def test_a_pair(broker: BrokerProcess, tmp_path: Path, direct: bool) -> None:
    with (
        EndpointProcess(tmp_path / "a", A, broker.port, direct=direct) as a,
        EndpointProcess(tmp_path / "b", B, broker.port, direct=direct) as b,
    ):
        with a.connect() as at_a, b.connect() as at_b:
            for number in range(50):
                at_a.send(B, str(number), ordered=True, app_key=f"order,{number}")
            for number in range(50):
                message = at_b.take_one(wait_s=WAIT_S)
                assert message is not None
                assert (message.text, message.source) == (str(number), A)
                assert message.app_key == f"order,{number}"
                message.done()
        assert wait_for(lambda: a.is_empty() and b.is_empty())
        assert wait_for(lambda: a.stat()["peers"] == ([B] if direct else []))


def test_who_is_offline_gets_it_later(broker: BrokerProcess, tmp_path: Path) -> None:
    with EndpointProcess(tmp_path / "a", A, broker.port) as a:
        with a.connect() as at_a:
            at_a.send(f"{B}/bob", "hello")
        assert wait_for(a.is_empty)  # the platform has it, and owes it
        a.kill()
        broker.kill()
        with (
            BrokerProcess(tmp_path / "data", port=broker.port),
            EndpointProcess(tmp_path / "b", B, broker.port) as b,
            b.connect() as at_b,
        ):
            message = at_b.take_one("bob", wait_s=WAIT_S)
            assert message is not None
            assert message.text == "hello"
            message.done()
            assert wait_for(b.is_empty)


def test_directly_without_the_platform(broker: BrokerProcess, tmp_path: Path) -> None:
    """Once there is a direct link, nobody else is needed."""
    pem = both(tmp_path / "c.pem", *make("c"))
    with (
        EndpointProcess(tmp_path / "a", A, broker.port) as a,
        EndpointProcess(tmp_path / "b", B, broker.port, "--listen-cert", str(pem)) as b,
        a.connect() as at_a,
        b.connect() as at_b,
    ):
        at_a.send(B, "first")
        first = at_b.take_one(wait_s=WAIT_S)
        assert first is not None
        first.done()
        assert wait_for(lambda: (a.stat()["peers"], b.stat()["peers"]) == ([B], [A]))
        broker.kill()
        assert wait_for(lambda: not a.stat()["platform"])
        at_a.send(B, "second")
        second = at_b.take_one(wait_s=WAIT_S)
        assert second is not None
        assert second.text == "second"
        second.done()
        assert wait_for(lambda: a.is_empty() and b.is_empty())


def test_encrypted_on_its_way(broker: BrokerProcess, tmp_path: Path) -> None:
    """Nobody who has the platform's disk can read it."""
    certificates = tmp_path / "certificates"
    certificate_of(certificates, B, make("b")[0])
    pem = both(tmp_path / "b.pem", *make("b"))
    given = ("--certificates", str(certificates))
    with EndpointProcess(tmp_path / "a", A, broker.port, *given) as a:
        assert zbus_semq(a, "send", B, "a secret", "--encrypt").returncode == 0
        assert wait_for(a.is_empty)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*.log"))
    assert b"session_key" in stored
    assert b"a secret" not in stored
    with EndpointProcess(tmp_path / "b", B, broker.port) as b:
        without = zbus_semq(b, "take", "--timeout", "30s", "--done")
        assert without.returncode == 1
        assert "whose key this node does not have" in without.stderr
    with EndpointProcess(tmp_path / "b", B, broker.port, "--key", str(pem)) as b:
        taken = zbus_semq(b, "take", "--timeout", "30s", "--done")
        assert (taken.stdout, taken.returncode) == ("a secret\n", 0)
        assert wait_for(b.is_empty)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end(broker: BrokerProcess, tmp_path: Path, number: signal.Signals) -> None:
    with EndpointProcess(tmp_path / "a", A, broker.port) as a:
        assert wait_for(lambda: a.stat()["platform"])
        assert (tmp_path / "a/db").stat().st_mode & 0o777 == 0o600
        assert a.stop(number) == 0
        assert not a.socket.exists()
        assert "Traceback" not in a.log()


# -- what cannot begin ----------------------------------------------------------------------------


def test_two_programs_on_one_database(broker: BrokerProcess, tmp_path: Path) -> None:
    with EndpointProcess(tmp_path / "a", A, broker.port):
        for socket, why in (("other", "is in use by another program"),):
            found = run_endpoint(
                "--database",
                str(tmp_path / "a/db"),
                "--node",
                A,
                "--platform",
                f"127.0.0.1:{broker.port}",
                "--socket",
                str(tmp_path / socket),
            )
            assert found.returncode == 3
            assert found.stderr.startswith("zbus: ")
            assert why in found.stderr


def test_two_programs_on_one_socket(broker: BrokerProcess, tmp_path: Path) -> None:
    with EndpointProcess(tmp_path / "a", A, broker.port) as a:
        found = run_endpoint(
            "--database",
            str(tmp_path / "other"),
            "--node",
            A,
            "--platform",
            f"127.0.0.1:{broker.port}",
            "--socket",
            str(a.socket),
        )
        assert found.returncode == 3
        assert f"another program listens at {a.socket}" in found.stderr
        assert a.stat()["node"] == A


def test_a_database_of_another_version(tmp_path: Path) -> None:
    file = tmp_path / "db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE semq_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    values = [("version", "99"), ("node", A), ("epoch", "0" * 16)]
    database.executemany("INSERT INTO semq_meta VALUES (?, ?)", values)
    database.commit()
    database.close()
    found = run_endpoint("--database", str(file), "--node", A, "--platform", "127.0.0.1:1")
    assert found.returncode == 3
    assert "of version 99" in found.stderr


def test_a_database_of_another_node(broker: BrokerProcess, tmp_path: Path) -> None:
    with EndpointProcess(tmp_path / "a", A, broker.port) as a:
        a.stop()
    found = run_endpoint(
        "--database",
        str(tmp_path / "a/db"),
        "--node",
        B,
        "--platform",
        "127.0.0.1:1",
    )
    assert found.returncode == 3
    assert f"is that of the node {A}" in found.stderr


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("nonsense " * 1_000)
    found = run_endpoint(
        "--database",
        str(tmp_path / "db"),
        "--node",
        A,
        "--platform",
        "127.0.0.1:1",
    )
    assert found.returncode == 3
    assert "database" in found.stderr
    assert "Traceback" not in found.stderr
