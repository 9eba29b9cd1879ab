"""WebSockets to a real broker: silence, stopping, slow readers, and clients that end anywhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wsproto.frame_protocol import Opcode

from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, request
from tests.process.test_tls import TlsBroker
from tests.process.websocket import HANDSHAKE, WebSocket
from tests.wire.websocket_frames import frame

QUICK = (
    "--set",
    "body_timeout_ms=1500",
    "--set",
    "idle_timeout_ms=4000",
    "--set",
    "stall_timeout_ms=4000",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *QUICK) as process:
        assert process.get("/T?cmd=declare").status == 200
        yield process
        assert process.get("/T?cmd=query").status == 200, "the broker outlived all of it"
        assert process.stop() == 0
        assert "Traceback" not in process.log()


def test_a_dialogue(broker: BrokerProcess) -> None:
    socket = WebSocket(broker.connect())
    assert socket.ask({"cmd": "declare", "topic": "Dialogue"})["status"] == 200
    socket.tell({"cmd": "consume", "topic": "Dialogue", "id": "pull"})
    assert broker.get("/Dialogue?body=hello").status == 200
    delivery = socket.read_json()
    assert (delivery["id"], delivery["body"]) == ("pull", "hello")
    socket.send(b"GET / HTTP/1.1\r\ncmd: ping\r\nid: 1\r\n\r\n")
    assert str(socket.read_frame().payload).startswith("HTTP/1.1 200 OK\r\n")
    socket.close()
    assert socket.read_close() == (1000, "")


def test_large_messages_in_a_stream(broker: BrokerProcess) -> None:
    """They come in many pieces, and are read by the careful way."""
    assert broker.get("/Large?cmd=declare").status == 200
    socket = WebSocket(broker.connect())
    for number in range(5):
        body = f"{number} ä " * 100_000
        assert socket.ask({"cmd": "produce", "topic": "Large", "body": body})["status"] == 200
        assert socket.ask({"cmd": "consume", "topic": "Large"})["body"] == body


def test_a_handshake_behind_a_pull_that_waits(broker: BrokerProcess) -> None:
    wire = broker.connect()
    wire.send(request("/T?cmd=empty") + request("/T?cmd=consume&timeout=300"))
    wire.send(HANDSHAKE + frame(1, b'{"cmd":"ping","id":1}'))
    wire.send(frame(1, b'{"cmd":"ping","id":2}'))
    assert [wire.read().status for _ in range(2)] == [200, 204]
    socket = WebSocket(wire, sent=True)
    assert [socket.read_json()["id"] for _ in range(2)] == ["1", "2"]


def test_over_tls(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as broker:
        socket = WebSocket(broker.secure())
        assert socket.ask({"cmd": "declare", "topic": "T"})["status"] == 200
        body = "x" * 300_000
        assert socket.ask({"topic": "T", "body": body})["status"] == 200
        assert socket.ask({"cmd": "consume", "topic": "T"})["body"] == body
        broker.process.send_signal(signal.SIGTERM)
        assert socket.read_close() == (1001, "the broker is stopping")
        assert broker.process.wait(WAIT_S) == 0
        assert broker.stop() == 0


def test_a_silent_browser_is_asked_and_stays(broker: BrokerProcess) -> None:
    """It waits for a message, and says nothing but pongs for longer than the time of silence."""
    assert broker.get("/Quiet?cmd=declare").status == 200
    socket = WebSocket(broker.connect())
    socket.tell({"cmd": "consume", "topic": "Quiet", "id": "patient"})
    until = time.monotonic() + 6
    pings = 0
    while time.monotonic() < until:
        asked = socket.read_frame()
        assert asked.opcode is Opcode.PING
        socket.pong()
        pings += 1
    assert pings >= 2
    assert broker.get("/Quiet?body=hello").status == 200
    assert socket.read_json()["body"] == "hello"


def test_who_does_not_even_answer_pings_is_gone(broker: BrokerProcess) -> None:
    socket = WebSocket(broker.connect())
    assert socket.read_frame().opcode is Opcode.PING
    code, reason = socket.read_close()
    assert (code, reason) == (1001, "timeout: no data, and no answer to a ping")


def test_half_a_message_then_silence(broker: BrokerProcess) -> None:
    socket = WebSocket(broker.connect())
    socket.wire.send(socket.frame("x" * 100)[:50])
    assert socket.read_close() == (1008, "timeout: the message is incomplete")


def test_a_reader_that_takes_nothing_is_cut_off(broker: BrokerProcess) -> None:
    assert broker.get("/Big?cmd=declare").status == 200
    assert broker.get("/Big?cmd=produce", body=b"x" * 1_000_000).status == 200
    socket = WebSocket(broker.connect())
    ask = socket.frame('{"cmd":"consume","topic":"Big","offset":0}')
    socket.wire.sock.settimeout(0.5)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            socket.wire.send(ask * 100)
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        raise AssertionError("still connected")


EXCHANGE = HANDSHAKE + b"".join(
    frame(1, text)
    for text in (b'{"cmd":"produce","topic":"T","body":"x"}', b'{"cmd":"consume","topic":"T"}')
)


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_client_that_ends_at_any_byte(broker: BrokerProcess, end: str) -> None:
    for position in range(len(EXCHANGE) + 1):
        wire = broker.connect()
        wire.send(EXCHANGE[:position])
        getattr(wire, end)()
    assert broker.get("/?cmd=ping").status == 200


def test_a_broker_that_stops_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.get("/T?cmd=declare").status == 200
        waiting, idle = WebSocket(broker.connect()), WebSocket(broker.connect())
        waiting.tell({"cmd": "consume", "topic": "T"})
        assert waiting.ask({"cmd": "ping"})["status"] == 200
        broker.process.send_signal(signal.SIGTERM)
        reply = waiting.read_json()
        assert (reply["status"], reply["headers"]["empty"]) == (204, "stopping")
        assert waiting.read_close() == (1001, "the broker is stopping")
        assert idle.read_close() == (1001, "the broker is stopping")
        assert broker.process.wait(WAIT_S) == 0
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
