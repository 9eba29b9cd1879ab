"""The Python, Java and JavaScript clients of zbus 0.11, unmodified, against real brokers.

What a session does is in the programs in `stock`. A client that is not at hand is skipped by name;
`make stock-clients` brings them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess
from tests.process.stock_clients import CLIENTS, Client, Session

pytestmark = pytest.mark.parametrize(
    "client",
    [
        pytest.param(
            client,
            id=client.name,
            marks=pytest.mark.skipif(
                bool(client.missing), reason=f"{client.missing}: make stock-clients"
            ),
        )
        for client in CLIENTS
    ],
)

Start = Callable[..., Session]


@pytest.fixture
def start(client: Client, tmp_path: Path) -> Iterator[Start]:
    """`start("queue", address)`: a session, ended with the test."""
    sessions: list[Session] = []

    def begin(name: str, *addresses: str) -> Session:
        sessions.append(Session(client, tmp_path, name, *addresses))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


def address(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("name", ["client", "queue"])
def test_messages(name: str, tmp_path: Path, start: Start) -> None:
    """One connection with every command; then trackers, consumers and producers over them."""
    with BrokerProcess(tmp_path / "data") as broker:
        start(name, address(broker)).finish()
        assert "Traceback" not in broker.log()


def test_calls(client: Client, tmp_path: Path, start: Start) -> None:
    """Both ends; and a browser's call of such a service, in either form of the URL."""
    with BrokerProcess(tmp_path / "data", "--set", "rpc_url=module-path") as broker:
        session = start("call", address(broker))
        session.expect("called")
        assert broker.get("/MyRpc/other/plus/1/2").body == b"3"
        assert broker.get("/MyRpc/plus/1/2?module=other").body == b"3"
        failed = broker.get("/MyRpc/other/fail")
        assert failed.status == 600
        assert b"no" in failed.body
        if client.name == "zbuspy":
            page = broker.get("/MyRpc/other/page")
            assert (page.status, page.body) == (200, b"<h1>page</h1>")
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert b"/MyRpc/other/plus" in broker.get("/MyRpc").body
        session.go_on()
        session.finish()


def test_it_comes_back_with_the_broker(tmp_path: Path, start: Start) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        port = broker.port
        session = start("restart", address(broker))
        session.expect("connected")
        broker.kill()
    with BrokerProcess(tmp_path / "data", port=port):
        session.go_on()
        session.finish()


def test_two_brokers(tmp_path: Path, start: Start) -> None:
    """One that is asked, and one that reports to it; then without that one, then with it again."""
    with BrokerProcess(tmp_path / "first") as first:
        # Only a server of one process reports to others.
        reports = ("--workers", "1", "--set", f"tracker_list={address(first)}")
        with BrokerProcess(tmp_path / "second", *reports) as second:
            port = second.port
            session = start("two", address(first), address(second))
            session.expect("both")
            second.kill()
        session.go_on()
        session.expect("one")
        with BrokerProcess(tmp_path / "second", *reports, port=port):
            session.go_on()
            session.finish()
