"""What a sweep does with WebSockets: it asks the silent, and gives up those that stay silent."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.conformance.websocket_client import handshake
from tests.wire.websocket_frames import frame
from zbus.config.server import Timeouts
from zbus.server.loop.fair_queue import QUANTUM
from zbus.server.loop.readiness import READ
from zbus.server.loop.socket_connection import SocketConnection
from zbus.server.loop.timeouts import ConnectionTimeouts
from zbus.testing.world import World
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import WireLimits

TIMEOUTS = Timeouts(idle_timeout_ms=180_000, body_timeout_ms=30_000)
PING = b"\x89\x00"
WAITS = b"GET /T?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""A request that waits as long as nobody ends the turn."""


class Silence:
    """A link after its handshake, and a sweep each second."""

    def __init__(self, sock: socket.socket, before: bytes = b"") -> None:
        world = World()
        reader = HttpReader(Heads(), WireLimits())
        self.link = SocketConnection(
            sock, b"s", "127.0.0.1:1", reader, world.front, lambda link: None, 1 << 18, 0
        )
        self.sweep = ConnectionTimeouts(
            [self.link],
            lambda link: None,
            lambda link: None,
            TIMEOUTS,
            lambda: None,
            1 << 18,
            world.broker.faults,
        )
        self.link.interest = READ
        self.hear(before + handshake(), 0)

    def hear(self, data: bytes, now_ms: int) -> None:
        """As the loop does it."""
        self.link.heard_ms = now_ms
        self.link.work = QUANTUM
        self.link.receive(data)

    def said(self, until_ms: int, from_ms: int) -> list[tuple[int, bytes]]:
        """What is sent meanwhile, and when."""
        found = []
        for now_ms in range(from_ms, until_ms, 1_000):
            self.link.out.clear()
            self.sweep.run(now_ms)
            found += [(now_ms, data) for data in self.link.out if data]
        return found


@pytest.fixture
def silence() -> Iterator[Silence]:
    ours, theirs = socket.socketpair()
    yield Silence(ours)
    ours.close()
    theirs.close()


def test_one_ping_after_half_the_time_then_the_end(silence: Silence) -> None:
    assert silence.said(180_000, 1_000) == [(91_000, PING)]
    assert not silence.link.closing
    silence.said(182_000, 180_000)
    assert silence.link.closing
    assert silence.link.farewell[2:4] == (1001).to_bytes(2)


@pytest.mark.parametrize("after_ms", [0, 1, 500])
def test_who_answers_is_asked_again(silence: Silence, after_ms: int) -> None:
    """Also who answers within the millisecond."""
    now_ms = 0
    for _ in range(5):
        ((pinged_ms, data),) = silence.said(now_ms + 92_000, now_ms + 1_000)
        assert data == PING
        silence.hear(frame(10), pinged_ms + after_ms)
        assert not silence.link.closing
        now_ms = pinged_ms


def test_what_is_sent_is_no_sign_of_life(silence: Silence) -> None:
    for now_ms in range(1_000, 182_000, 1_000):
        silence.link.sent_ms = now_ms
        silence.sweep.run(now_ms)
    assert silence.link.closing


def test_half_a_message(silence: Silence) -> None:
    silence.hear(frame(1, b"x" * 100)[:50], 1_000)
    assert not silence.said(31_000, 2_000)
    silence.said(33_000, 31_000)
    assert silence.link.farewell[2:4] == (1008).to_bytes(2)


def test_nothing_is_asked_before_the_handshake_is_answered() -> None:
    """A ping would stand in the answer to the request before it, for which the peer waits."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        silence = Silence(ours, WAITS)
        assert silence.link.turns
        silence.link.interest = 0  # so the loop does not read from it
        silence.hear(frame(1, b"half")[:-1], 0)
        assert silence.said(180_000, 1_000) == []
        assert not silence.link.closing
        silence.said(182_000, 180_000)
        assert silence.link.closing
