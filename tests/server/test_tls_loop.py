"""TLS under the real loop, on simulated sockets that take and give a few bytes at a time."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from random import Random

import pytest

from tests.authority import client_context, server_context
from tests.limits import share
from zbus.server.loop.socket_connection import SocketConnection
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock
from zbus.testing.simulation.network import Connection
from zbus.wire.tls import TlsStream


class SecureClient:
    """The client's end of one connection."""

    def __init__(
        self, connection: Connection, link: SocketConnection, context: ssl.SSLContext
    ) -> None:
        self.connection = connection
        self.link = link
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.shaken = False
        self.received = bytearray()
        self.goodbye = False
        self._to_say = bytearray()  # plaintext
        self._to_send = bytearray()

    def say(self, data: bytes) -> None:
        self._to_say += data

    def step(self, send_bytes: int, take_bytes: int) -> None:
        """Take and send at most so much."""
        self.incoming.write(self.connection.receive(take_bytes))
        try:
            if not self.shaken:
                self.tls.do_handshake()
                self.shaken = True
            while self._to_say:
                del self._to_say[: self.tls.write(self._to_say)]
            while piece := self.tls.read(65_536):
                self.received += piece
            self.goodbye = True
        except ssl.SSLWantReadError:
            pass
        self._to_send += self.outgoing.read()
        self.connection.send(bytes(self._to_send[:send_bytes]))
        del self._to_send[:send_bytes]

    def bodies(self) -> list[tuple[int, bytes]]:
        """Status and body of the whole replies so far."""
        found, at, data = [], 0, bytes(self.received)
        while (end := data.find(b"\r\n\r\n", at)) >= 0:
            head = data[at:end]
            length = re.search(rb"content-length: (\d+)", head)
            at = end + 4 + (int(length[1]) if length else 0)
            if len(data) < at:
                break
            found.append((int(head.split()[1]), data[end + 4 : at]))
        return found


class Rig:
    """A broker whose connections are all TLS."""

    def __init__(self, server: ssl.SSLContext, seed: int, output_bytes_max: int) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock(EPOCH_MS)
        options = Options(durability="os", output_bytes_max=output_bytes_max)
        self.process = Process(Disk(), self.clock, options, "tls", self.random)
        self._server = server
        self._client = client_context()
        self._number = 100

    def connect(self, room_bytes: int = 64 << 10) -> SecureClient:
        self._number += 1
        connection = self.process.accept(self._number, room_bytes)
        link = list(self.process.loop.links)[-1]
        link.tls = TlsStream(self._server)
        link.half_head_since_ms = self.clock.time_ms
        return SecureClient(connection, link, self._client)

    def turn(self) -> None:
        self.clock.time_ms += 1
        self.process.turn()
        for worker in self.process.workers:
            worker.run()
        for link in self.process.loop.links:
            assert link.out_bytes == link.unsent_bytes + sum(map(len, link.out))
            assert link.unsent_bytes == sum(map(len, link.unsent))

    def until(self, done: Callable[[], bool], *clients: SecureClient) -> None:
        """Steps of any size until it is done."""
        for _ in range(50_000):
            if done():
                return
            for client in clients:
                client.step(self.random.randrange(1, 40_000), self.random.randrange(1, 40_000))
            self.turn()
        raise AssertionError("it does not come to an end")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return server_context(tmp_path_factory.mktemp("tls"))


def request(target: str, body: bytes = b"", *lines: str) -> bytes:
    head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    return (head + "".join(f"{line}\r\n" for line in lines)).encode() + b"\r\n" + body


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("room_bytes", "output_bytes_max"), [(64 << 10, 256 << 10), (1_000, 4_096), (7, 4_096)]
)
def test_every_reply_arrives_whatever_the_sockets_take(
    context: ssl.SSLContext, seed: int, room_bytes: int, output_bytes_max: int
) -> None:
    rig = Rig(context, seed, output_bytes_max)
    client = rig.connect(room_bytes)
    random, longest = rig.random, room_bytes * 200 if room_bytes < 100 else 50_000
    messages = [random.randbytes(random.randrange(longest)) for _ in range(6)]
    client.say(request("/T?cmd=declare&durability=os"))
    for message in messages:
        client.say(request("/T", message))
    rig.until(lambda: len(client.bodies()) == 7, client)
    assert [status for status, _ in client.bodies()] == [200] * 7
    client.received.clear()
    wanted = random.choices(range(6), k=12)
    for offset in wanted:
        client.say(request(f"/T?cmd=consume&offset={offset}"))
    client.say(request("/?cmd=ping", b"", "connection: close"))
    rig.until(lambda: client.goodbye, client)
    *bodies, last = client.bodies()
    assert bodies == [(200, messages[offset]) for offset in wanted]
    assert last[0] == 200
    assert client.connection.socket.shut  # said goodbye first


@pytest.mark.parametrize("secure", [True, False])
def test_a_reply_is_sent_when_all_its_bytes_are(context: ssl.SSLContext, secure: bool) -> None:
    """Those of TLS are more than were written."""
    rig = Rig(context, 1, 256 << 10)
    client = rig.connect()
    link, socket = client.link, client.connection.socket
    if secure:
        rig.until(lambda: client.shaken and not link.out_bytes, client)
        client.step(0, 1 << 20)
    else:
        link.tls = None
    marks = []
    for _ in range(2):
        link.write(b"x" * 100)
        marks.append(link.output_mark())
    sent = {}
    for room in (99, 100, 199, 200, 201, 300):
        socket.room_bytes = room
        rig.turn()
        sent[room] = [link.has_sent(mark) for mark in marks]
    neither, first, both = [False, False], [True, False], [True, True]
    if secure:  # one record
        expected = {99: neither, 100: neither, 199: neither, 200: neither, 201: neither, 300: both}
    else:
        expected = {99: neither, 100: first, 199: first, 200: both, 201: both, 300: both}
    assert sent == expected


def test_a_crowd_of_handshakes_is_spread_over_turns(context: ssl.SSLContext) -> None:
    """A client that is connected already is served in every one of them."""
    rig = Rig(context, 1, 256 << 10)
    early = rig.connect()
    early.say(request("/?cmd=ping"))
    rig.until(lambda: bool(early.bodies()), early)
    crowd = [rig.connect() for _ in range(100)]
    for client in crowd:
        client.step(1 << 20, 1 << 20)
    turns = 0
    while not all(client.link.tls is not None and client.link.tls.established for client in crowd):
        early.received.clear()
        early.say(request("/?cmd=ping"))
        early.step(1 << 20, 1 << 20)
        rig.turn()
        early.step(1 << 20, 1 << 20)
        assert [status for status, _ in early.bodies()] == [200]
        for client in crowd:
            client.step(1 << 20, 1 << 20)
        turns += 1
    assert turns >= 200 // 16


def test_a_handshake_has_the_time_of_a_head(context: ssl.SSLContext) -> None:
    rig = Rig(context, 1, 256 << 10)
    client = rig.connect()
    while not rig.clock.time_ms - EPOCH_MS > 9_000:
        client.step(1, 1 << 20)  # a byte a second is not too slow yet
        rig.clock.time_ms += 1_000
        rig.turn()
        assert not client.link.closed
    for _ in range(3):
        client.step(1, 1 << 20)
        rig.clock.time_ms += 1_000
        rig.turn()
    assert client.link.closed
    assert client.connection.socket.closed


def test_a_client_that_asks_and_never_reads_stops_being_read(context: ssl.SSLContext) -> None:
    """What TLS adds counts, too: the broker holds little more than output_bytes_max."""
    rig = Rig(context, 1, 16 << 10)
    client = rig.connect(room_bytes=4_096)
    rig.until(lambda: client.shaken, client)
    for _ in range(2_000):
        client.say(request("/?cmd=ping"))
    for _ in range(200):
        client.step(5_000, 0)
        rig.turn()
    assert 8 << 10 < client.link.out_bytes < 40 << 10
    assert client.connection.socket.inbound  # not read
    rig.until(lambda: len(client.bodies()) == 2_000, client)


def test_who_takes_nothing_costs_a_turn_nothing(context: ssl.SSLContext) -> None:
    rig = Rig(context, 1, 4_096)
    client = rig.connect(room_bytes=1_000)
    rig.until(lambda: client.shaken, client)
    for _ in range(100):
        client.say(request("/?cmd=ping"))
    for _ in range(20):
        client.step(100_000, 0)
        rig.turn()
    assert client.link.stalled
    assert client.link not in rig.process.loop._held
    rig.until(lambda: len(client.bodies()) == 100, client)
    assert not client.link.stalled


def test_nothing_is_handed_to_a_client_that_said_goodbye(context: ssl.SSLContext) -> None:
    """TLS is over for it, though its TCP connection is not: its pull ends, the message stays."""
    rig = Rig(context, 1, 256 << 10)
    leaving, other = rig.connect(), rig.connect()
    leaving.say(request("/T?cmd=declare&durability=os") + request("/T?cmd=consume&timeout=60000"))
    rig.until(lambda: len(leaving.bodies()) == 1 and leaving.link.open_waits == 1, leaving)
    with pytest.raises(ssl.SSLWantReadError):
        leaving.tls.unwrap()
    leaving.connection.send(leaving.outgoing.read())
    rig.turn()
    assert leaving.link.hung_up
    other.say(request("/T", b"stays") + request("/T?cmd=consume&timeout=60000"))
    rig.until(lambda: len(other.bodies()) == 2, other)
    assert other.bodies()[1] == (200, b"stays")


@pytest.mark.parametrize("end", ["finish", "reset"])
def test_a_client_that_ends_in_the_middle_of_anything(context: ssl.SSLContext, end: str) -> None:
    for position in share(range(0, 1_200, 23), end == "reset"):
        rig = Rig(context, position, 256 << 10)
        client = rig.connect()
        client.say(request("/T?cmd=declare&durability=os") + request("/T", b"x" * 100))
        sent = 0
        while sent < position:
            before = len(client.connection.socket.inbound)
            client.step(min(50, position - sent), 1 << 20)
            sent += max(1, len(client.connection.socket.inbound) - before)
            rig.turn()
        getattr(client.connection, end)()
        for _ in range(5):
            client.connection.receive()
            rig.clock.time_ms += 1_000
            rig.turn()
        assert client.link.closed
        assert not rig.process.loop.links
        assert not rig.process.broker.sessions
