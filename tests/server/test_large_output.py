"""Large replies leave in portions: nobody waits long beside them, and nobody copies them."""

from __future__ import annotations

import pytest

from tests.server.test_mixed_links import PlainClient
from tests.server.test_ring import PING, Scene
from tests.server.test_tls_loop import request
from zbus.server.loop import output

BODY = bytes(range(256)) * (3 << 12)  # 3 MiB
TAKE = request("/L?cmd=consume&offset=0")
READ = request("/L?cmd=read&bytes=16777216")
ASK = pytest.mark.parametrize("ask", [TAKE, READ], ids=["message", "batches"])


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    client = scene.connect(request("/L?cmd=declare"), request("/L", BODY))
    for _ in range(100):
        scene.turn()
    assert scene.replies(client) == 2
    return scene


def make_room(clients: list[PlainClient], room_bytes: int) -> None:
    """Of their sockets."""
    for client in clients:
        client.link.sock.room_bytes = room_bytes  # type: ignore[attr-defined]  # it is simulated


def whole(client: PlainClient) -> bool:
    head, _, body = bytes(client.received).partition(b"\r\n\r\n")
    return b"content-length: %d\r\n" % len(body) in head + b"\r\n" and BODY in body


@ASK
def test_a_turn_sends_so_much_and_no_more(scene: Scene, ask: bytes) -> None:
    light = scene.connect(PING)
    scene.turn()
    scene.turn()
    clients = [scene.connect(ask) for _ in range(12)]
    make_room(clients, 1 << 30)
    pings = 1
    for _ in range(200):
        before = sum(len(client.received) for client in clients)
        light.say(PING)
        pings += 1
        scene.turn()
        assert scene.replies(light) == pings
        sent = sum(len(client.received) for client in clients) - before
        assert sent <= output.TURN_BYTES_MAX + output.SEND_BYTES_MAX
        if all(map(whole, clients)):
            return
    raise AssertionError("some wait for ever")


def test_those_who_take_much_have_turns(scene: Scene) -> None:
    clients = [scene.connect(TAKE) for _ in range(12)]
    make_room(clients, 0)
    for _ in range(100):
        scene.turn()
    assert not any(client.received for client in clients)
    make_room(clients, 1 << 30)
    for _ in range(12 * output.SEND_BYTES_MAX // output.TURN_BYTES_MAX):
        scene.turn()
    assert {len(client.received) for client in clients} == {output.SEND_BYTES_MAX}


def test_the_body_of_a_message_is_one_object_for_all(scene: Scene) -> None:
    clients = [scene.connect(TAKE) for _ in range(5)]
    make_room(clients, 1_000)
    for _ in range(50):
        scene.turn()
    bodies = {
        id(piece.obj)
        for client in clients
        for piece in client.link.unsent
        if isinstance(piece, memoryview)
    }
    assert len(bodies) == 1
    make_room(clients, 1 << 30)
    for _ in range(20):
        scene.turn()
    assert all(map(whole, clients))
    assert scene.process.loop.output.unsent_bytes == 0
