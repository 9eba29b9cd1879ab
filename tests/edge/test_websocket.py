"""What a WebSocket tells the loop that reads from it: that bytes are left, and what it cost."""

from __future__ import annotations

import pytest

from tests.wire.websocket_frames import frame
from zbus.edge.websocket import WebSocket
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Request, make_head
from zbus.wire.limits import WireLimits
from zbus.wire.websocket import FRAMES_PER_STEP, WebSocketReader, encode_message

HEAD = make_head((b"POST", b"/", True), {}, True)


class Plain:
    """A codec that takes everything but "no"."""

    def read(self, kind: int, message: bytes) -> Request:
        if message == b"no":
            raise WireError(1007, "no")
        return HEAD, b"", message

    def encode(self, message: bytes) -> bytes:
        return encode_message(message)


def opened() -> WebSocket:
    return WebSocket(WebSocketReader(1 << 20), Plain(), WireLimits())


@pytest.mark.parametrize("kind", [1, 9], ids=["messages", "pings"])
def test_requests_come_in_steps(kind: int) -> None:
    socket = opened()
    bodies = [b"%d" % number for number in range(1_000)]
    requests = socket.receive(b"".join(frame(kind, body) for body in bodies))
    assert len(requests) == FRAMES_PER_STEP
    while socket.more:
        requests += socket.receive(b"")
    assert [body for _, _, body in requests] == bodies
    assert socket.waiting_for() == "nothing"


def test_what_is_read_is_charged() -> None:
    socket = opened()
    socket.receive(frame(9))
    pinged, socket.spent = socket.spent, 0
    socket.receive(frame(1, b"a"))
    small, socket.spent = socket.spent, 0
    socket.receive(frame(1, b"a" * 100_000))
    assert 0 < pinged < small < 10
    assert 190 < socket.spent < 220, "its bytes are unmasked, and read"


def test_nothing_is_left_after_a_message_that_is_wrong() -> None:
    socket = opened()
    assert len(socket.receive(frame(1, b"yes") + frame(1, b"no") + frame(1, b"yes") * 1_000)) == 1
    assert socket.error is not None
    assert not socket.more
    assert socket.receive(b"") == []


def test_nothing_is_left_after_closing() -> None:
    socket = opened()
    socket.receive(frame(1, b"yes") * 1_000)
    assert socket.more
    socket.close()
    assert not socket.more
    assert socket.receive(b"") == []
