"""Plain connections, WebSockets and streams of events under the real loop, some of them over TLS.

Clients ask for anything, take and send what they like, end in every way. The broker has to survive
it with its accounts in order, and every client must be able to read what it was sent: no reply
within a stream, no frame before the 101, nothing behind a close frame.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from random import Random
from typing import cast

import pytest

from tests.authority import client_context, server_context
from tests.conformance.websocket_client import handshake
from tests.limits import checked
from tests.server.test_tls_loop import SecureClient, request
from tests.wire.websocket_frames import close, frame
from zbus.core.fanout import follow
from zbus.core.fanout.subscribers import WatchedTopic
from zbus.server.loop.socket_connection import SocketConnection
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock
from zbus.testing.simulation.network import Connection
from zbus.wire.tls import TlsStream

STEPS = 200
EVENT_LINE = re.compile(rb"retry: |id: |data: |event: (skipped|end|base64)$|:$")


class PlainClient:
    """Like `SecureClient`, without TLS."""

    def __init__(self, connection: Connection, link: SocketConnection) -> None:
        self.connection = connection
        self.link = link
        self.received = bytearray()
        self._to_send = bytearray()

    def say(self, data: bytes) -> None:
        self._to_send += data

    def step(self, send_bytes: int, take_bytes: int) -> None:
        self.received += self.connection.receive(take_bytes)
        self.connection.send(bytes(self._to_send[:send_bytes]))
        del self._to_send[:send_bytes]


class Actor:
    """One client, and what it does next."""

    def __init__(self, client: PlainClient | SecureClient, random: Random) -> None:
        self.client = client
        self.random = random
        self.takes = True
        self.framed = False

    def act(self) -> None:
        random, client = self.random, self.client
        match random.randrange(40):
            case 0:
                client.connection.finish()
            case 1:
                client.connection.reset()
            case 2 | 3:
                self.takes = not self.takes
            case 4:
                client.say(random.randbytes(random.randrange(30)))
            case _ if self.framed:
                client.say(b"".join(self._frame() for _ in range(random.choice((1, 1, 5, 50)))))
            case 5 | 6 | 7 | 8:
                self.framed = True
                before = [self._request() for _ in range(random.choice((0, 0, 1, 3)))]
                client.say(b"".join(before) + handshake(random.choice(("/", "/T", "/queue/json"))))
            case 9 | 10 | 11 | 12 | 13:
                more = random.choice(("", "&offset=begin", "&consume_window=2", "&envelope=json"))
                target = random.choice(("/T", "/T/g1")) + "?cmd=consume" + more
                client.say(request(target, b"", "accept: text/event-stream"))
            case _:
                count = random.choice((1, 1, 3, 30))
                client.say(b"".join(self._request() for _ in range(count)))

    def _request(self) -> bytes:
        random = self.random
        topic, group = random.choice("TTTU"), random.randrange(3)
        multiplexed = f"GET / HTTP/1.1\r\ntopic: {topic}\r\nid: {random.randrange(99)}\r\n"
        delay = random.choice(((), (), ("delay: 3000",)))
        return random.choice(
            (
                request(f"/{topic}", b"x" * random.choice((0, 5, 2_000, 60_000)), *delay),
                b"".join(request("/T", b"later", "delay: 3000") for _ in range(12)),
                request(f"/{topic}?cmd=consume"),
                request(f"/{topic}?cmd=consume&timeout={random.choice((0, 50, 30_000))}"),
                request(f"/{topic}?cmd=consume&offset={random.randrange(5)}"),
                request(f"/{topic}/g{group}?cmd=declare&lease={group % 2}"),
                request(f"/{topic}/g{group}?cmd=consume&timeout=100"),
                request(f"/{topic}/g{group}?cmd=remove"),
                request(f"/{topic}?cmd=declare&durability=os"),
                request(f"/{topic}?cmd={random.choice(('query', 'query', 'empty', 'remove'))}"),
                request("/?cmd=ping", b"", random.choice(("a: b", "a: b", "connection: close"))),
                b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
                f"{multiplexed}cmd: consume\r\nconsume_window: 5\r\n\r\n".encode(),
                f"{multiplexed}cmd: unconsume\r\n\r\n".encode(),
                f"{multiplexed}cmd: track_sub\r\n\r\n".encode(),
                f"{multiplexed}cmd: route\r\nrecver: session-{random.randrange(140):028d}\r\n"
                "content-length: 3\r\n\r\nabc".encode(),
                request("/T", b"abcd", "expect: 100-continue")[: random.choice((-2, None))],
            )
        )

    def _frame(self) -> bytes:
        random = self.random
        cmd = random.choice(("produce", "consume", "query", "declare", "track_sub", "unconsume"))
        body = b"x" * random.choice((1, 3_000, 40_000))
        return random.choice(
            (
                frame(random.choice((1, 2)), self._request()),
                frame(1, b'{"cmd":"%b","topic":"T","id":7,"body":{"a":1}}' % cmd.encode()),
                frame(2, b'{"cmd":"produce","topic":"T","body":"%b"}' % body),
                frame(9, b"p" * random.randrange(126)),
                frame(1, b"{"),
                frame(1, b'{"cmd":"pi', fin=False) + frame(9) + frame(0, b'ng"}'),
                random.choice((frame(9), frame(9), close(1000), frame(1, b"zzz"))),
            )
        )

    def check(self) -> None:
        """What came can be read."""
        data, at = bytes(self.client.received), 0
        while (end := data.find(b"\r\n\r\n", at)) >= 0:
            head = data[at:end]
            assert re.match(rb"HTTP/1\.1 \d\d\d ", head), head[:80]
            status, at = int(head[9:12]), end + 4
            if status == 101:
                check_frames(data[at:])
                return
            if b"content-type: text/event-stream" in head:
                lines = data[at:].rpartition(b"\n\n")[0].split(b"\n")
                assert all(not line or EVENT_LINE.match(line) for line in lines), lines
                return
            length = re.search(rb"content-length: (\d+)", head)
            at += int(length[1]) if length and status != 204 else 0
        assert b"HTTP/1.1 ".startswith(data[at : at + 9]), data[at : at + 80]


def check_frames(data: bytes) -> None:
    at, closed = 0, False
    while len(data) - at >= 10:
        assert not closed, "nothing follows a close frame"
        kind, length = data[at], data[at + 1]
        assert kind in (0x81, 0x82, 0x88, 0x89, 0x8A), data[at : at + 40]
        size = {126: 2, 127: 8}.get(length, 0)
        begin = at + 2 + size
        if size:
            length = int.from_bytes(data[at + 2 : begin])
        at, closed = begin + length, kind == 0x88
        if kind in (0x81, 0x82):
            assert data[begin : begin + 1] == b"{" or data[begin : begin + 9] == b"HTTP/1.1 "


class Scene:
    """A broker, and its clients."""

    def __init__(self, seed: int, context: ssl.SSLContext) -> None:
        self.random = random = Random(seed)
        self.context, self.trusting = context, client_context()
        self.clock = VirtualClock(EPOCH_MS)
        options = Options(
            durability="os",
            output_bytes_max=random.choice((4_096, 256 << 10)),
            tickets_per_connection_max=random.choice((5, 1_024)),
            call_timeout_ms=5_000,
        )
        self.process = Process(Disk(), self.clock, options, "mixed", random)
        self.actors: list[Actor] = []

    def connect(self) -> None:
        loop, random = self.process.loop, self.random
        room_bytes = random.choice((64 << 10, 3_000, 700))
        connection = self.process.accept(100 + len(self.actors), room_bytes)
        link = list(loop.links)[-1]
        client: PlainClient | SecureClient = PlainClient(connection, link)
        if random.random() < 0.4:
            link.tls = TlsStream(self.context)
            link.half_head_since_ms = self.clock.time_ms
            client = SecureClient(connection, link, self.trusting)
        self.actors.append(Actor(client, random))

    @property
    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.client.link.closed]

    def live(self) -> None:
        random = self.random
        for _ in range(STEPS):
            if len(self.alive) < 6:
                self.connect()
            for actor in self.alive:
                if random.random() < 0.3:
                    actor.act()
                take_bytes = random.choice((1, 100, 5_000, 1 << 20)) if actor.takes else 0
                self.step(actor, random.choice((1, 20, 300, 1 << 20)), take_bytes)
            self.turn(random.choice((0, 1, 1, 1, 20, 1_000, random.choice((20, 20, 11_000)))))

    def step(self, actor: Actor, send_bytes: int, take_bytes: int) -> None:
        try:
            actor.client.step(send_bytes, take_bytes)
        except ssl.SSLError:
            pass  # it has broken its own connection

    def turn(self, ms: int) -> None:
        self.clock.time_ms += ms
        self.process.turn()
        for worker in self.process.workers:
            worker.run()
        for link in self.process.loop.links:
            assert link.out_bytes == link.unsent_bytes + sum(map(len, link.out))
            assert link.unsent_bytes == sum(map(len, link.unsent))
            assert link.open_tickets >= link.open_waits >= 0
            assert link.held_bytes >= 0
            assert link.turns or link.open_waits or not link.held_bytes
        for topic in self.process.broker.topics.values():
            if topic.followed is not None:
                topic.followed.check()

    def stop(self) -> None:
        """All that is on its way comes out, and nothing is left."""
        loop, broker = self.process.loop, self.process.broker
        loop.stop()
        for _ in range(5_000):
            for actor in self.actors:
                self.step(actor, 1 << 20, 1 << 20)
            self.turn(1)
            if loop.drained():
                break
        assert loop.drained()
        self.process.close()
        assert not broker.sessions
        for topic in broker.topics.values():
            assert topic.followed is None or not cast(WatchedTopic, topic.followed).audiences
            for group in topic.groups.values():
                assert not group.readers
                assert not group.waiting


@pytest.fixture
def failures(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A connection that fails is closed and logged: here none may."""
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.usefixtures("failures")
@pytest.mark.parametrize("seed", [0, *checked(range(1, 6))])
def test_whatever_they_do(
    seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LATE_MAX", 5 if seed % 2 else 10_000)
    scene = Scene(seed, server_context(tmp_path_factory.mktemp("tls")))
    scene.live()
    scene.stop()
    for actor in scene.actors:
        actor.check()
