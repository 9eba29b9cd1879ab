"""The RPC service, called by curl and by bytes on a socket."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.broker_process import BrokerProcess, Program, lasting_port
from tests.limits import SLOWNESS, WAIT_S


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def url(broker: BrokerProcess) -> Iterator[str]:
    """Of a service for all tests that only call it."""
    with start(broker.url, "--topic", "shared"):
        yield f"{broker.url}/shared"


@pytest.fixture
def service(broker: BrokerProcess) -> Iterator[Program]:
    with start(broker.url) as program:
        yield program


def start(url: str, *options: str) -> Program:
    program = Program("examples/rpc_service.py", "--url", url, *options)
    program.wait_for("serving")
    return program


def curl(*arguments: str) -> tuple[int, str]:
    """Status and body."""
    command = ["curl", "-sS", "--max-time", "30", "-w", "\n%{http_code}", *arguments]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("plus/1/2", 200, "3"),
        ("plus/1.5/-2", 200, "-0.5"),
        ("plus/a/b", 200, '"ab"'),
        ("echo/hello", 200, '"hello"'),
        ("echo/a%20b/%C3%A9", 200, '["a b","é"]'),
        ("echo/null", 200, "null"),
        ("echo/%7B%22x%22%3A%5B1%5D%7D", 200, '{"x":[1]}'),
        ("echo?module=m", 200, "[]"),
        ("minus/1/2", 600, "minus method not found"),
        ("plus/1", 600, "plus() missing 1 required positional argument: 'b'"),
        ("plus/1/a", 600, "unsupported operand type(s) for +: 'int' and 'str'"),
        ("", 600, "index method not found"),
    ],
)
def test_a_call_by_url(url: str, path: str, status: int, body: str) -> None:
    assert curl(f"{url}/{path}") == (status, body)


def test_a_call_with_a_body(url: str) -> None:
    call = json.dumps({"module": "m", "method": "plus", "params": [1, 2]})
    assert curl(url, "-d", call) == (200, "3")
    status, text = curl(url, "-d", "not JSON")
    assert (status, text[:17]) == (600, "JSON is malformed")
    assert curl(url, "-d", "[]")[0] == 600
    assert curl(f"{url}/echo/still-there") == (200, '"still-there"')


@pytest.mark.usefixtures("url")
def test_a_call_by_bytes(broker: BrokerProcess) -> None:
    """As stock clients do it: a GET with a body, `ack: 0`, the answer known by its id."""
    body = b'{"method":"echo","params":["by hand"]}'
    with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S) as sock:
        sock.sendall(
            b"GET / HTTP/1.1\r\ncmd: produce\r\ntopic: shared\r\nid: call-7\r\nack: 0\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        with sock.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 200 ")
            headers = {}
            while (line := answer.readline()) != b"\r\n":
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                headers[name] = value
            assert headers["id"] == "call-7"
            assert headers["content-type"] == "application/json"
            assert answer.read(int(headers["content-length"])) == b'"by hand"'


def test_no_service_no_answer(broker: BrokerProcess, service: Program) -> None:
    service.kill()
    took_ms = "%{time_total}"
    status, text = curl(
        f"{broker.url}/myrpc/plus/1/2", "-H", "timeout: 700", "-w", f"\n{took_ms}\n%{{http_code}}"
    )
    assert status == 504
    seconds = float(text.splitlines()[-1])
    assert 0.7 <= seconds < 5 * SLOWNESS, "its own time, not that of calls that name none"
    with start(broker.url):
        assert curl(f"{broker.url}/myrpc/plus/1/2") == (200, "3")


def test_calls_wait_for_a_service_that_comes_late(broker: BrokerProcess, service: Program) -> None:
    service.kill()
    command = ["curl", "-sS", "--max-time", "30", f"{broker.url}/myrpc/plus/20/22"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as caller, start(broker.url):
        assert caller.communicate(timeout=WAIT_S)[0] == b"42"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_leaves_when_asked(broker: BrokerProcess, service: Program, number: int) -> None:
    assert curl(f"{broker.url}/myrpc/plus/1/2") == (200, "3")
    service.process.send_signal(number)
    assert service.finish().endswith("stopped\n")
    assert "Traceback" not in service.said


def test_two_services_of_different_topics(broker: BrokerProcess, service: Program) -> None:
    with start(broker.url, "--topic", "other"):
        assert curl(f"{broker.url}/other/plus/1/1") == (200, "2")
        assert curl(f"{broker.url}/myrpc/plus/2/2") == (200, "4")


def test_it_comes_back_with_the_broker(tmp_path: Path) -> None:
    port = lasting_port()
    with BrokerProcess(tmp_path / "data", port) as first, start(first.url) as service:
        assert curl(f"{first.url}/myrpc/plus/1/2") == (200, "3")
        first.kill()
        with BrokerProcess(tmp_path / "data", port) as second:
            service.wait_for("serving")
            assert curl(f"{second.url}/myrpc/plus/3/4") == (200, "7")
