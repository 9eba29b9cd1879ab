"""A large batch is put in steps: others are served between them, and nothing is stored before the
last one."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.conformance.websocket_client import handshake
from tests.server.test_mixed_links import PlainClient
from tests.server.test_ring import PING, Scene
from tests.server.test_tls_loop import request
from tests.wire.websocket_frames import frame

COUNT = 3_000
MESSAGES = "content-type: application/vnd.zbus.messages"
STORED = b"count: %d\r\n" % COUNT
END = request("/B?cmd=read&offset=0&count=1")


def messages(count: int, *last: bytes) -> bytes:
    each = [
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\nx-n: %d\r\n\r\nx" % number
        for number in range(count - len(last))
    ]
    return b"".join((*each, *last))


def batch(body: bytes = messages(COUNT), *lines: str) -> bytes:
    return request("/B?cmd=produce", body, MESSAGES, *lines)


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.connect(request("/B?cmd=declare&group_mask=64"))
    for _ in range(4):
        scene.turn()
    return scene


def begun(scene: Scene, *said: bytes) -> PlainClient:
    """A client whose batch is under way."""
    client = scene.connect(*said)
    for _ in range(50):
        scene.turn()
        if client.link._steps is not None:
            return client
    raise AssertionError("it was done in one go")


def turns_until(scene: Scene, client: PlainClient, replies: int) -> int:
    for count in range(500):
        if scene.replies(client) == replies:
            return count
        scene.turn()
    raise AssertionError(bytes(client.received[-500:]))


def stored(scene: Scene) -> int:
    return scene.process.broker.topics["b"].partitions[0].end


def statuses(client: PlainClient) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d\d\d) ", client.received)]


def test_others_are_served_meanwhile(scene: Scene) -> None:
    light = scene.connect(PING)
    turns_until(scene, light, 1)
    client = begun(scene, batch())
    for count in range(2, 12):
        light.say(PING)
        scene.turn()
        assert (scene.replies(light), scene.replies(client), stored(scene)) == (count, 0, 0)
    turns_until(scene, client, 1)
    assert STORED in client.received
    assert stored(scene) == COUNT


def test_what_was_asked_behind_it_waits(scene: Scene) -> None:
    client = begun(scene, batch() + PING + END + request("/B", b"last") + batch())
    client.say(PING)  # comes while it is under way
    turns_until(scene, client, 6)
    assert statuses(client) == [200] * 6
    first, ping, end, *_ = bytes(client.received).split(b"HTTP/1.1 200 OK")[1:]
    assert STORED in first
    assert STORED not in ping
    assert b"count: 1\r\n" in end
    assert stored(scene) == 2 * COUNT + 1


def test_a_connection_that_breaks_in_the_middle_stores_nothing(scene: Scene) -> None:
    client = begun(scene, batch())
    link = client.link
    scene.process.loop.drop(link)
    for _ in range(200):
        scene.turn()
    assert stored(scene) == 0
    assert link._steps is None
    assert not link.has_requests


def test_a_client_that_ends_what_it_sends_is_answered(scene: Scene) -> None:
    client = begun(scene, batch())
    client.connection.finish()
    turns_until(scene, client, 1)
    assert STORED in client.received
    scene.turn()
    assert client.link.closed


def test_of_one_that_hung_up_what_was_begun_is_done(scene: Scene) -> None:
    client = begun(scene, batch() + PING)
    scene.process.loop._hung_up(client.link)
    turns_until(scene, client, 1)
    assert STORED in client.received
    assert scene.replies(client) == 1
    assert not client.link.open_tickets


def test_a_client_that_takes_nothing_for_a_while(scene: Scene) -> None:
    client = begun(scene, END * 3 + batch() + PING)
    client.link.sock.room_bytes = 0  # type: ignore[attr-defined]  # it is simulated
    for _ in range(200):
        scene.turn()
    assert stored(scene) == COUNT
    client.link.sock.room_bytes = 1 << 20  # type: ignore[attr-defined]
    turns_until(scene, client, 5)


def test_a_topic_that_is_removed_in_the_middle(scene: Scene) -> None:
    client = begun(scene, batch())
    other = scene.connect(request("/B?cmd=remove"))
    turns_until(scene, other, 1)
    turns_until(scene, client, 1)
    assert statuses(client) == [404]
    assert "b" not in scene.process.broker.topics


@pytest.mark.parametrize(
    "last", [b"garbage", b"POST / HTTP/1.1\r\ntag: " + b"t" * 128 + b"\r\n\r\n"]
)
def test_a_fault_at_the_end_refuses_all(scene: Scene, last: bytes) -> None:
    client = begun(scene, batch(messages(COUNT, last)) + PING)
    turns_until(scene, client, 2)
    assert statuses(client) == [400, 200]
    assert stored(scene) == 0


def test_a_bad_head_behind_it_is_refused_after_it(scene: Scene) -> None:
    client = begun(scene, batch() + b"GET\r\n\r\n")
    turns_until(scene, client, 2)
    assert statuses(client) == [200, 400]
    assert stored(scene) == COUNT


def test_a_broker_that_stops_finishes_what_was_begun(scene: Scene) -> None:
    client = begun(scene, batch())
    loop = scene.process.loop
    loop.stop()
    assert not loop.drained()
    turns_until(scene, client, 1)
    assert statuses(client) == [200]
    assert loop.drained()
    assert stored(scene) == COUNT


def test_over_a_websocket(scene: Scene) -> None:
    ping = b"GET /?cmd=ping HTTP/1.1\r\nid: behind\r\n\r\n"
    said = frame(2, batch(messages(COUNT), "id: batch")) + frame(2, ping)
    client = begun(scene, handshake() + said)
    turns_until(scene, client, 3)
    assert statuses(client) == [101, 200, 200]
    assert b"id: behind" in client.received[client.received.index(STORED) :]
    assert STORED in client.received
    assert stored(scene) == COUNT


class TestCompressed:
    """Its coding is undone in steps, too, which come before the others."""

    LINES = b"x" * 4_000
    CODED = request(
        "/B?cmd=produce",
        gzip.compress((LINES + b"\n") * 2_000),
        "content-type: application/x-ndjson",
        "content-encoding: gzip",
    )

    def test_others_are_served_meanwhile(self, scene: Scene) -> None:
        light = scene.connect(PING)
        turns_until(scene, light, 1)
        client = begun(scene, self.CODED + PING)
        for count in range(2, 5):
            light.say(PING)
            scene.turn()
            assert (scene.replies(light), scene.replies(client), stored(scene)) == (count, 0, 0)
        turns_until(scene, client, 2)
        assert b"count: 2000\r\n" in client.received
        assert scene.process._assembly.bodies.bytes_used == 0

    def test_a_connection_that_breaks_in_the_middle_leaves_nothing(self, scene: Scene) -> None:
        client = begun(scene, self.CODED)
        while not scene.process._assembly.bodies.bytes_used:
            scene.turn()
        scene.process.loop.drop(client.link)
        scene.turn()
        assert (scene.process._assembly.bodies.bytes_used, stored(scene)) == (0, 0)

    def test_what_is_read_then_may_take_steps_again(self, scene: Scene) -> None:
        messages = b",".join(b'"%d"' % number for number in range(500))
        form = b"producer=B-producer&pad=" + b"x" * 1_500_000 + b"&messages=[" + messages + b"]"
        lines = "content-type: application/x-www-form-urlencoded", "content-encoding: gzip"
        data = request("/mq/produce/batch", gzip.compress(form), *lines).replace(b"GET", b"POST", 1)
        known = request("/mq/register?topic=B&producer=B-producer").replace(b"GET", b"POST", 1)
        other = scene.connect(known)
        turns_until(scene, other, 1)
        client = begun(scene, data + PING)
        turns_until(scene, client, 2)
        assert statuses(client) == [200, 200]
        assert stored(scene) == 500
