"""zbuspy 0.11, the stock Python client, unmodified, against real brokers.

It needs a Python older than 3.9, because its own code does, and its package. `make stock-clients`
makes an environment with both; without it these tests say what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess

SESSIONS = Path(__file__).with_name("stock") / "zbuspy_session.py"
ENVIRONMENT = Path(__file__).parents[2] / ".venv/stock/zbuspy"
TIMEOUT_S = 60


def find_python() -> str | None:
    """An interpreter that has zbuspy: `ZBUSPY_PYTHON`, or what `make stock-clients` made."""
    named = os.environ.get("ZBUSPY_PYTHON", str(ENVIRONMENT / "bin/python"))
    return shutil.which(named)


PYTHON = find_python()
pytestmark = pytest.mark.skipif(
    PYTHON is None,
    reason="no Python older than 3.9 with zbuspy 0.11.3: run `make stock-clients`, "
    "or name one in ZBUSPY_PYTHON",
)


class Session:
    """A program of that client. Its `steps` come in their order."""

    def __init__(self, folder: Path, name: str, *addresses: str) -> None:
        assert PYTHON is not None
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.process = subprocess.Popen(
            ["timeout", str(TIMEOUT_S), PYTHON, str(SESSIONS), name, *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )

    def expect(self, line: str) -> None:
        """The session has come so far."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == line + "\n", "see its standard error"

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def finish(self) -> None:
        self.expect("done")
        assert self.process.wait(TIMEOUT_S) == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    """Those that are to be ended with the test."""
    started: list[Session] = []
    yield started
    for session in started:
        session.close()


def address(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("name", ["client", "queue"])
def test_messages(name: str, tmp_path: Path, sessions: list[Session]) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        sessions.append(Session(tmp_path, name, address(broker)))
        sessions[0].finish()
        assert "Traceback" not in broker.log()


def test_calls(tmp_path: Path, sessions: list[Session]) -> None:
    """Both ends; and a browser's call of such a service, in either form of the URL."""
    with BrokerProcess(tmp_path / "data", "--set", "rpc_url=module-path") as broker:
        sessions.append(Session(tmp_path, "call", address(broker)))
        sessions[0].expect("called")
        assert broker.get("/MyRpc/other/plus/1/2").body == b"3"
        assert broker.get("/MyRpc/plus/1/2?module=other").body == b"3"
        page = broker.get("/MyRpc/other/page")
        assert (page.status, page.body) == (200, b"<h1>page</h1>")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b"/MyRpc/other/plus" in broker.get("/MyRpc").body
        failed = broker.get("/MyRpc/other/fail")
        assert (failed.status, failed.body) == (600, b"no")
        sessions[0].go_on()
        sessions[0].finish()


def test_it_comes_back_with_the_broker(tmp_path: Path, sessions: list[Session]) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        port = broker.port
        sessions.append(Session(tmp_path, "restart", address(broker)))
        sessions[0].expect("connected")
        broker.kill()
    with BrokerProcess(tmp_path / "data", port=port):
        sessions[0].go_on()
        sessions[0].finish()


def test_two_brokers(tmp_path: Path, sessions: list[Session]) -> None:
    """One that is asked, and one that reports to it; then without that one, then with it again."""
    with BrokerProcess(tmp_path / "first") as first:
        reports = ("--set", f"tracker_list={address(first)}")
        with BrokerProcess(tmp_path / "second", *reports) as second:
            port = second.port
            sessions.append(Session(tmp_path, "two", address(first), address(second)))
            sessions[0].expect("both")
            second.kill()
        sessions[0].go_on()
        sessions[0].expect("one")
        with BrokerProcess(tmp_path / "second", *reports, port=port):
            sessions[0].go_on()
            sessions[0].finish()


