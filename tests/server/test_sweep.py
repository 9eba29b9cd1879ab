"""What a sweep does not hold against a client: that the broker did not read from it."""

from __future__ import annotations

from random import Random

import pytest

from tests.conformance.websocket_client import handshake
from tests.server.test_tls_loop import request
from tests.wire.websocket_frames import frame
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock

PING = frame(1, b'{"cmd":"ping"}')


def turn(process: Process, ms: int = 1) -> None:
    process.clock.time_ms += ms
    process.turn()
    for worker in process.workers:
        worker.run()


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (request("/T", b"x" * 100)[:-1], b"x"),
        (request("/T")[:-2], b"\r\n"),
        (handshake() + PING[:-1], PING[-1:]),
    ],
)
def test_half_a_request_of_a_client_that_is_not_read(begun: bytes, rest: bytes) -> None:
    """Large replies wait for their turn behind a pull, so the rest stays in the socket."""
    process = Process(
        Disk(), VirtualClock(EPOCH_MS), Options(durability="os"), "p", Random(1), lambda *_: None
    )
    client = process.accept(100, 1 << 20)
    client.send(request("/T?cmd=declare") + request("/T", b"x" * 60_000))
    for _ in range(5):
        turn(process)
    client.send(request("/T?cmd=consume"))
    client.send(request("/T?cmd=consume&timeout=100000"))
    client.send(request("/T?cmd=consume&offset=0") * 5 + begun)
    turn(process)
    client.send(rest)
    turn(process)
    assert client.socket.inbound
    for _ in range(110):
        turn(process, 1_000)
    assert not client.socket.inbound
    replies = client.receive()
    assert b"408" not in replies
    assert replies.count(b"HTTP/1.1 2") >= 8
    assert client.alive
