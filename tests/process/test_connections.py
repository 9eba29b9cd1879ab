"""Connections that behave badly cost themselves and nobody else."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import cpu_seconds, resident_bytes
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, request

QUICK = (
    "--set",
    "head_timeout_ms=1500",
    "--set",
    "body_timeout_ms=1500",
    "--set",
    "idle_timeout_ms=2500",
    "--set",
    "stall_timeout_ms=4000",
    "--set",
    "connections_max=40",
    "--set",
    "body_bytes_max=2097152",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *QUICK) as process:
        assert process.get("/T?cmd=declare").status == 200
        yield process
        assert process.get("/T?cmd=query").status == 200, "the broker outlived all of it"
        assert process.stop() == 0
        assert "Traceback" not in process.log()


PRODUCE = request("/T?cmd=produce", body=b"0123456789")
EXCHANGES = [PRODUCE, request("/T?cmd=consume&timeout=50"), request("/T/none?cmd=consume")]


@pytest.mark.parametrize("end", ["reset", "close"])
@pytest.mark.parametrize("data", EXCHANGES, ids=["produce", "consume", "refused"])
def test_a_client_that_ends_at_any_byte(broker: BrokerProcess, data: bytes, end: str) -> None:
    for position in range(len(data) + 1):
        wire = broker.connect()
        wire.send(data[:position])
        getattr(wire, end)()
    assert broker.get("/?cmd=ping").status == 200


def test_half_a_head_then_silence(broker: BrokerProcess) -> None:
    wire = broker.connect()
    wire.send(b"GET /T HTTP/1.1\r\nhost:")
    answer = wire.read()
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert wire.at_end()


def test_half_a_body_then_silence(broker: BrokerProcess) -> None:
    wire = broker.connect()
    wire.send(PRODUCE[:-3])
    assert wire.read().status == 408
    assert wire.at_end()


def test_a_silent_connection_is_closed(broker: BrokerProcess) -> None:
    wire = broker.connect()
    assert wire.get("/?cmd=ping").status == 200
    assert wire.at_end()


def test_a_plain_pull_on_a_silent_connection_ends_with_nothing(broker: BrokerProcess) -> None:
    assert broker.get("/Quiet?cmd=declare").status == 200
    wire = broker.connect()
    wire.send(request("/Quiet?cmd=consume&timeout=60000"))
    assert wire.read().status == 204
    assert wire.at_end()


def test_a_client_that_shuts_its_sending_side_gets_its_replies(broker: BrokerProcess) -> None:
    wire = broker.connect()
    wire.send(PRODUCE * 50)
    wire.sock.shutdown(1)
    assert [wire.read().status for _ in range(50)] == [200] * 50
    assert wire.at_end()


def test_connection_close_is_honoured(broker: BrokerProcess) -> None:
    wire = broker.connect()
    answer = wire.get("/?cmd=ping", "connection: close")
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert wire.at_end()


def test_a_refusal_reaches_a_client_that_is_still_sending(broker: BrokerProcess) -> None:
    wire = broker.connect()
    wire.send(b"POST /T HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n")
    try:
        for _ in range(20):
            wire.send(bytes(65_536))
    except OSError:
        pass
    assert wire.read().status == 413


def test_more_connections_than_allowed_wait_outside(broker: BrokerProcess) -> None:
    wires = [broker.connect() for _ in range(60)]
    for wire in wires:
        wire.send(request("/?cmd=ping"))
    served = [wire.read().status for wire in wires[:35]]
    assert served == [200] * 35
    for wire in wires[:35]:
        wire.close()
    assert [wire.read().status for wire in wires[35:]] == [200] * 25
    for wire in wires[35:]:
        wire.close()


def test_a_client_that_reads_nothing_is_cut_off(broker: BrokerProcess) -> None:
    assert broker.get("/Big?cmd=declare").status == 200
    assert broker.get("/Big?cmd=produce", body=bytes(1_000_000)).status == 200
    wire = broker.connect()
    pull = request("/Big?cmd=consume&offset=0")
    wire.sock.settimeout(0.5)
    sent = 0
    try:
        for _ in range(2_000):
            wire.send(pull)
            sent += 1
    except OSError:
        pass
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        started = time.monotonic()
        assert broker.get("/?cmd=ping").status == 200
        assert time.monotonic() - started < 5, "others are served meanwhile"
        try:
            wire.sock.send(b"x")
        except TimeoutError:
            pass
        except OSError:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("still connected")


def test_a_long_pipeline(broker: BrokerProcess) -> None:
    wire = broker.connect()
    count = 20_000
    data = b"".join(request("/T?cmd=produce", f"id: n{n}") for n in range(count))

    from threading import Thread

    sender = Thread(target=wire.send, args=(data,))
    sender.start()
    answers = [wire.read() for _ in range(count)]
    sender.join()
    assert {answer.status for answer in answers} == {200}
    assert len({answer.headers["id"] for answer in answers}) == count


def test_pull_and_vanish_loses_nothing(broker: BrokerProcess) -> None:
    assert broker.get("/V?cmd=declare").status == 200
    for _ in range(20):
        gone = broker.connect()
        gone.send(request("/V?cmd=consume"))
        gone.reset()
    time.sleep(0.3)
    while json.loads(broker.get("/V/V?cmd=query").body)["consumerCount"]:
        pass
    assert broker.get("/V?cmd=produce", body=b"kept").status == 200
    assert broker.get("/V?cmd=consume&timeout=1000").body == b"kept"


def test_garbage(broker: BrokerProcess) -> None:
    for data in (b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"\r\n" * 5):
        wire = broker.connect()
        wire.send(data)
        assert wire.read().status in (400, 414, 408, 505)
        assert wire.at_end()
        wire.close()


def test_every_kind_of_request_is_answered_after_the_client_shut_its_side(
    broker: BrokerProcess,
) -> None:
    """A declare waits for a sync as a produce does, and its ticket counts like one."""
    for number in range(20):
        wire = broker.connect()
        wire.send(PRODUCE + request(f"/Half{number % 4}?cmd=declare") + request("/T?cmd=query"))
        wire.sock.shutdown(1)
        assert [wire.read().status for _ in range(3)] == [200] * 3
        assert wire.at_end()


@pytest.mark.parametrize("command", ["declare", "empty", "ping"])
def test_a_headed_request_is_answered_whatever_its_message_says_of_a_connection(
    broker: BrokerProcess, command: str
) -> None:
    wire = broker.connect()
    head = f"GET / HTTP/1.1\r\ncmd: {command}\r\ntopic: T\r\nid: 1\r\nconnection: close\r\n\r\n"
    for _ in range(2):
        wire.send(head.encode())
        assert wire.read().status == 200
    wire.sock.shutdown(1)
    assert wire.at_end()


def test_a_call_ends_with_its_silent_connection(broker: BrokerProcess) -> None:
    assert broker.get("/rpc?cmd=declare&topic_mask=3").status == 200
    wire = broker.connect()
    wire.send(request("/rpc/plus/1?timeout=60000"))
    assert wire.read().status == 504
    assert wire.at_end()


def test_a_pull_that_closes_its_connection_does_not_keep_it_for_ever(broker: BrokerProcess) -> None:
    assert broker.get("/Quiet?cmd=declare").status == 200
    wire = broker.connect()
    wire.send(request("/Quiet?cmd=consume", "connection: close"))
    assert wire.at_end()


def test_a_client_that_hangs_up_with_a_call_open_costs_no_processor(broker: BrokerProcess) -> None:
    assert broker.get("/rpc?cmd=declare&topic_mask=3").status == 200
    wire = broker.connect()
    wire.send(request("/rpc/plus/1?timeout=60000") + request("/T?cmd=query") * 50)
    wire.sock.shutdown(1)
    time.sleep(0.2)
    before = cpu_seconds(broker.process.pid)
    time.sleep(1)
    assert cpu_seconds(broker.process.pid) - before < 0.5


def test_reads_of_the_log_are_done_one_after_another(broker: BrokerProcess) -> None:
    assert broker.get("/Log?cmd=declare").status == 200
    for _ in range(8):
        assert broker.get("/Log?cmd=produce", body=bytes(1_000_000)).status == 200
    before = resident_bytes(broker.process.pid)
    wire = broker.connect()
    wire.send(request("/_log/Log?bytes=8000000") * 60)
    assert [wire.read().status for _ in range(60)] == [200] * 60
    assert resident_bytes(broker.process.pid) - before < 100e6


def test_one_address_does_not_take_all_connections(tmp_path: Path) -> None:
    """Whoever has too many is told so; another address, and a Unix socket, are not concerned."""
    unix = tmp_path / "broker.sock"
    listen = f"http://127.0.0.1:0,unix:{unix}"
    limit = "connections_per_address_max=3"
    with BrokerProcess(tmp_path / "data", "--set", f"listen={listen}", "--set", limit) as broker:
        wires = [broker.connect() for _ in range(3)]
        assert [wire.get("/?cmd=ping").status for wire in wires] == [200] * 3
        for _ in range(5):
            wire = broker.connect()
            refusal = wire.read()
            assert (refusal.status, refusal.headers["retry-after"]) == (429, "1")
            assert refusal.body == b"429: this address has 3 connections, and may have no more"
            assert wire.at_end()
            wire.close()
        with socket.create_connection(
            ("127.0.0.1", broker.port), source_address=("127.0.0.2", 0)
        ) as other:
            other.sendall(request("/?cmd=ping"))
            assert other.recv(4096).startswith(b"HTTP/1.1 200 ")
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as local:
                local.connect(str(unix))
                local.sendall(request("/?cmd=ping"))
                assert local.recv(4096).startswith(b"HTTP/1.1 200 ")
        wires.pop().close()
        deadline = time.monotonic() + WAIT_S
        while (answer := broker.get("/?cmd=ping")).status == 429:
            assert time.monotonic() < deadline
        assert answer.status == 200
        assert [wire.get("/?cmd=ping").status for wire in wires] == [200] * 2
    assert broker.log().count("refused, an address has too many connections") >= 1
