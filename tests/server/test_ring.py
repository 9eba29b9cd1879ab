"""Nobody waits long for those who ask for much, and they get what they asked for, in turns."""

from __future__ import annotations

import re
from random import Random

import pytest

from tests.conformance.websocket_client import handshake
from tests.server.test_mixed_links import PlainClient
from tests.server.test_tls_loop import request
from tests.wire.websocket_frames import frame
from zbus.server.loop import fair_queue as ring
from zbus.server.loop.socket_connection import SocketConnection
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock

PING = request("/?cmd=ping")
ACK = request("/T?cmd=ack&offset=0-9999")
SCATTERED = request(f"/T?cmd=ack&offset={','.join(map(str, range(0, 600, 2)))}")
CHUNKS = (
    b"POST /T?cmd=produce HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"1\r\nx\r\n" * 9_000
)

MUCH = {
    "known heads": PING * 2_000,
    "new heads": b"".join(request(f"/?cmd=ping&n={n}") for n in range(1_000)),
    "refused requests": b"".join(request(f"/T?cmd=consume&timeout=x{n}") for n in range(1_000)),
    "ranges": ACK * 1_000,
    "scattered ranges": SCATTERED * 300,
    "pulls": request("/T?cmd=consume") * 1_000,
    "chunks": CHUNKS,
    "a websocket": handshake() + frame(1, PING) * 1_500,
}


class Scene:
    """A broker, and plain clients that take all they are sent."""

    def __init__(self) -> None:
        self.clock = VirtualClock(EPOCH_MS)
        options = Options(durability="os")
        self.process = Process(Disk(), self.clock, options, "ring", Random(1))
        self.clients: list[PlainClient] = []

    def connect(self, *said: bytes) -> PlainClient:
        connection = self.process.accept(100 + len(self.clients), 256 << 10)
        client = PlainClient(connection, list(self.process.loop.links)[-1])
        self.clients.append(client)
        for data in said:
            client.say(data)
        return client

    def turn(self) -> None:
        self.clock.time_ms += 1
        for client in self.clients:
            client.step(1 << 20, 1 << 20)
        self.process.turn()
        for worker in self.process.workers:
            worker.run()
        for client in self.clients:
            client.step(0, 1 << 20)

    def replies(self, client: PlainClient) -> int:
        return len(re.findall(rb"HTTP/1\.1 \d\d\d ", client.received))


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.connect(request("/T?cmd=declare&group_mask=64"))
    scene.turn()
    scene.turn()
    return scene


@pytest.mark.parametrize("crowd", [1, 20])
@pytest.mark.parametrize("much", MUCH)
def test_a_light_client_is_served_in_each_turn(scene: Scene, much: str, crowd: int) -> None:
    light = scene.connect(PING)
    scene.turn()
    scene.turn()
    for _ in range(crowd):
        scene.connect(MUCH[much])
    for count in range(2, 40):
        light.say(PING)
        scene.turn()
        assert scene.replies(light) == count


@pytest.mark.parametrize("much", MUCH)
def test_a_turn_does_so_much_and_no_more(scene: Scene, much: str) -> None:
    links = scene.process.loop._ring
    serve, used = links._serve, [0]

    def counted(link: SocketConnection) -> None:
        before = link.work
        serve(link)
        used[-1] += before - link.work

    links._serve = counted
    for _ in range(20):
        scene.connect(MUCH[much])
    for _ in range(60):
        scene.turn()
        used.append(0)
    assert 0 < max(used) <= ring.TURN_WORK + 2 * ring.QUANTUM


@pytest.mark.parametrize("much", ["known heads", "new heads", "refused requests", "ranges"])
def test_all_that_was_asked_is_answered(scene: Scene, much: str) -> None:
    clients = [scene.connect(MUCH[much]) for _ in range(3)]
    asked = MUCH[much].count(b"HTTP/1.1\r\n")
    for _ in range(2_000):
        scene.turn()
        if all(scene.replies(client) == asked for client in clients):
            break
    assert [scene.replies(client) for client in clients] == [asked] * 3


BATCH = request("/T?cmd=produce", b"x\n" * 5_000, "content-type: application/x-ndjson")


def test_light_clients_that_all_ask_for_much_at_once_are_served_one_after_another(
    scene: Scene,
) -> None:
    """Each has asked for little until now, so that none of them is in the ring."""
    clients = [scene.connect(PING) for _ in range(20)]
    for _ in range(3):
        scene.turn()
    for client in clients:
        client.say(BATCH)
    stored = [0]
    topic = scene.process.broker.topics["t"]
    while stored[-1] < 5_000 * len(clients):
        scene.turn()
        stored.append(topic.depth())
        assert stored[-1] - stored[-2] <= 5_000 * 2
    assert [scene.replies(client) for client in clients] == [2] * len(clients)


def test_those_who_ask_for_much_are_served_alike(scene: Scene) -> None:
    clients = [scene.connect(PING * 2_000) for _ in range(30)]
    for _ in range(60):
        scene.turn()
    counts = [scene.replies(client) for client in clients]
    assert min(counts) > 0
    assert max(counts) - min(counts) <= 2 * ring.QUANTUM


def test_who_sends_its_end_behind_many_requests_has_them_done(scene: Scene) -> None:
    client = scene.connect(PING * 500)
    client.step(1 << 20, 0)
    client.connection.finish()
    for _ in range(100):
        scene.turn()
    assert scene.replies(client) == 500
    assert client.link.closed


def test_a_large_debt_does_not_stop_anybody_who_is_alone(scene: Scene) -> None:
    client = scene.connect(PING)
    scene.turn()
    scene.turn()
    client.link.work = -1_000_000
    client.say(PING)
    for _ in range(3):
        scene.turn()
    assert scene.replies(client) == 2


def test_who_waits_for_its_own_replies_when_it_is_its_turn_is_not_forgotten(scene: Scene) -> None:
    """It was in the ring for what it has asked for, and then answers that wait for their turn were
    made: nothing more came of it after they had left. (Found by seed 63450 of the simulation.)"""
    client = scene.connect(PING)
    for _ in range(2):
        scene.turn()
    link = client.link
    client.say(request("/T?cmd=consume&timeout=100") + PING * 200)
    while not link.queued:
        scene.turn()
    held_bytes = link.out_bytes_max + 1
    link.held_bytes += held_bytes
    scene.turn()
    link.held_bytes -= held_bytes
    for _ in range(200):
        scene.turn()
    assert scene.replies(client) == 202


@pytest.mark.parametrize("before", range(40))
def test_a_request_that_reserves_much_is_begun_in_a_later_turn(scene: Scene, before: int) -> None:
    """What it has reserved is more than a connection may hold, and it does not wait for itself."""
    peek = request("/T/T?cmd=peek&body=true")
    client = scene.connect(request("/T", b"x") + PING * before + peek)
    for _ in range(before // 2 + 10):
        scene.turn()
    assert scene.replies(client) == before + 2
