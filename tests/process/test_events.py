"""Streams of events from a real broker: with curl, silent, left, stalled, and over a restart."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, established, request

QUICK = (
    "--set",
    "sse_heartbeat_ms=1000",
    "--set",
    "idle_timeout_ms=2500",
    "--set",
    "stall_timeout_ms=4000",
    "--set",
    "output_bytes_max=65536",
)
ACCEPT = "accept: text/event-stream"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *QUICK) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log()


class Stream:
    """A stream whose head has come."""

    def __init__(self, broker: BrokerProcess, target: str, *lines: str, also: bytes = b"") -> None:
        self.wire = broker.connect()
        self.sock = self.wire.sock
        self._buffer = b""
        self.wire.send(request(target, ACCEPT, *lines) + also)
        head = self.until(b"retry: 1000")
        self.until(b"\n\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head

    def until(self, mark: bytes) -> bytes:
        """What comes up to the first of these bytes, and they."""
        while mark not in self._buffer:
            piece = self.sock.recv(1 << 16)
            assert piece, self._buffer
            self._buffer += piece
        at = self._buffer.index(mark) + len(mark)
        said, self._buffer = self._buffer[:at], self._buffer[at:]
        return said

    def rest(self) -> bytes:
        """What comes until the broker closes."""
        said, self._buffer = self._buffer, b""
        while piece := self.sock.recv(1 << 16):
            said += piece
        return said

    def close(self) -> None:
        self.wire.close()


def put(broker: BrokerProcess, topic: str, body: bytes) -> None:
    assert broker.get(f"/{topic}?cmd=produce", body=body).status == 200


def test_curl(broker: BrokerProcess) -> None:
    curl = shutil.which("curl")
    assert curl, "curl is missing: `make test` installs it"
    broker.get("/Curl?cmd=declare")
    url = f"http://127.0.0.1:{broker.port}/Curl?cmd=consume"
    command = [curl, "-sN", "-H", ACCEPT, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        put(broker, "Curl", b"hello\nfrom curl")
        said = b""
        while not said.endswith(b"data: from curl\n\n"):
            said += process.stdout.readline()
        assert said == b"retry: 1000\nid: -\n\nid: 0\ndata: hello\ndata: from curl\n\n"
        broker.get("/Curl?cmd=remove")
        said = process.stdout.read()
        assert said == b"event: end\ndata: 404: Topic(Curl) Not Found\n\n"
        assert process.wait(WAIT_S) == 0


def test_a_silent_stream_is_kept_alive(broker: BrokerProcess) -> None:
    broker.get("/Quiet?cmd=declare")
    began = time.monotonic()
    streams = [Stream(broker, f"/Quiet{group}?cmd=consume") for group in ("", "/Quiet")]
    for stream in streams:
        for _ in range(4):  # longer than idle_timeout_ms
            assert stream.until(b"\n\n") == b":\n\n"
    assert time.monotonic() - began > 3
    put(broker, "Quiet", b"x")
    for stream in streams:
        assert stream.until(b"data: x\n\n").lstrip(b":\n") == b"id: 0\ndata: x\n\n"
        stream.close()


@pytest.mark.parametrize("target", ["/Left?cmd=consume", "/Left/Left?cmd=consume"])
@pytest.mark.parametrize("end", ["close", "reset", "half"])
def test_a_client_that_leaves(broker: BrokerProcess, target: str, end: str) -> None:
    broker.get("/Left?cmd=declare")
    broker.get("/Left/Left?cmd=empty")
    stream = Stream(broker, target)
    if end == "half":
        stream.sock.shutdown(socket.SHUT_WR)
        assert stream.rest() == b"", "it sends no more, so it is taken for gone"
    else:
        getattr(stream.wire, end)()
    put(broker, "Left", b"x")
    other = Stream(broker, "/Left?cmd=consume&offset=end")
    put(broker, "Left", b"y")
    assert other.until(b"\n\n").endswith(b"data: y\n\n")
    other.close()


def test_requests_behind_it_are_dropped(broker: BrokerProcess) -> None:
    broker.get("/Drop?cmd=declare")
    stream = Stream(broker, "/Drop?cmd=consume", also=request("/Drop?body=pipelined") * 20)
    stream.wire.send(request("/Drop?body=later") * 20)
    assert broker.get("/Drop?body=other").status == 200
    assert stream.until(b"\n\n") == b"id: 0\ndata: other\n\n"
    stream.close()


def test_one_that_takes_nothing_is_cut_off_and_goes_on(broker: BrokerProcess) -> None:
    broker.get("/Slow?cmd=declare&durability=os")
    count, body = 400, b"x" * 20_000
    for _ in range(count):
        put(broker, "Slow", body)
    slow = Stream(broker, "/Slow?cmd=consume&offset=begin")
    brisk = Stream(broker, "/Slow?cmd=consume&offset=end")
    while established(broker.port, slow.wire):
        put(broker, "Slow", b"brisk")
        assert brisk.until(b"\n\n").endswith(b"\ndata: brisk\n\n")
        time.sleep(0.05)
        count += 1
    said = slow.rest()
    seen = said[: said.rindex(b"\n\n")].count(b"id: ")
    assert 0 < seen < count, "it was cut off"
    again = Stream(broker, "/Slow?cmd=consume", f"last-event-id: {seen - 1}")
    told = again.until(b"id: %d\ndata: brisk\n\n" % (count - 1))
    ids = [int(line[4:]) for line in told.split(b"\n") if line.startswith(b"id: ")]
    assert ids == list(range(seen, count))
    for one in (brisk, again):
        one.close()


def test_over_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/T?cmd=declare")
        stream = Stream(broker, "/T?cmd=consume")
        put(broker, "T", b"a")
        assert stream.until(b"\n\n") == b"id: 0\ndata: a\n\n"
        assert broker.stop() == 0
        assert stream.rest() == b"event: end\ndata: 503: the broker is stopping\n\n"
        port = broker.port
    with BrokerProcess(tmp_path / "data", port=port) as broker:
        put(broker, "T", b"b")
        stream = Stream(broker, "/T?cmd=consume", "last-event-id: 0")
        assert stream.until(b"\n\n") == b"id: 1\ndata: b\n\n"
