"""A whole broker in one process, without sockets, threads or clocks.

    world = World()
    client = world.connect()
    reply = client.request(b"GET /T?cmd=declare HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
    assert reply.status == 200
    world.advance(10_000)

`turn` is one turn of the broker's loop over everything that the clients have sent. Time stands
still unless `advance` moves it. A journal that holds its commits (`HeldJournal`) shows what waits
for a sync.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import h11

from zbus.core.api import DEFAULT_LIMITS, Limits, recover
from zbus.dialects.zbus.dialect import ZbusDialect
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Access
from zbus.edge.connection import Connection
from zbus.edge.guard import GuardSettings
from zbus.edge.pages import Pages
from zbus.server.assembly import Assembly, make_broker, restore
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import ALL_DURABLE, CommitDone, Journal, Lane
from zbus.wire.limits import DEFAULT_LIMITS as DEFAULT_WIRE_LIMITS
from zbus.wire.limits import WireLimits

EPOCH_MS = 1_800_000_000_000
"""When a world begins."""


class Reply(NamedTuple):
    """One reply as a client reads it. Header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes


def take_reply(received: bytes, start: int = 0) -> tuple[Reply | None, int]:
    """The reply that begins there among what has come, or None if it is not whole; and where the
    next one begins."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    reader.send(h11.EndOfMessage())
    at, size = start, 512
    status, headers, body = 0, {}, b""
    while True:
        event = reader.next_event()
        if event is h11.NEED_DATA and at < len(received):
            # In pieces: h11 copies what it has, and that may be thousands of replies.
            piece, at, size = received[at : at + size], at + size, size * 2
            reader.receive_data(piece)
            continue
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return None, start
        if isinstance(event, h11.InformationalResponse):
            continue
        if isinstance(event, h11.Response):
            status = event.status_code
            lines_count = [name for name, _ in event.headers].count(b"cache-control")
            assert lines_count == 1, f"every reply says once whether it may be kept: {event}"
            headers = {
                name.decode(): value.decode("utf-8", "replace") for name, value in event.headers
            }
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            unread = len(reader.trailing_data[0])
            return Reply(status, headers, body), min(at, len(received)) - unread


class HeldJournal(MemoryJournal):
    """Commits answer only when `release` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[CommitDone] = []

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        if synced:
            self.held.append(done)
        else:
            super().commit(lanes, synced, done)

    def release(self) -> None:
        held, self.held = self.held, []
        for done in held:
            done(ALL_DURABLE)


class Client:
    """One connection."""

    def __init__(self, world: World, peer: Connection) -> None:
        self.world = world
        self.peer = peer
        self.received = b""
        self.takes = True  # False = reads nothing of what it is sent

    def send(self, data: bytes) -> None:
        """Bytes for the broker, in one piece; they are read in the next turn."""
        self.world.inbox.append((self, data))

    def request(self, data: bytes) -> Reply:
        """Send, turn until something came back, return the one reply."""
        replies = self.exchange(data)
        assert len(replies) == 1, f"one reply expected, got {replies}"
        return replies[0]

    def exchange(self, data: bytes) -> list[Reply]:
        """Send, turn until nothing happens any more, return all replies."""
        self.send(data)
        self.world.settle()
        return self.replies()

    def replies(self) -> list[Reply]:
        """What has come since the last call; whole replies, parsed by h11."""
        found: list[Reply] = []
        end = 0
        while end < len(self.received):
            reply, end = take_reply(self.received, end)
            if reply is None:
                break
            found.append(reply)
        self.received = self.received[end:]
        return found

    def vanish(self) -> None:
        """The connection breaks."""
        self.peer.closed = True
        self.world.broker.leave(self.peer)
        self.world.clients.remove(self)

    @property
    def closed(self) -> bool:
        """The broker has said all and closes."""
        return self.peer.finished and not self.peer.farewell


class World:
    """`journal` outlives a world: a second one on it shows recovery."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        settings: ZbusSettings | None = None,
        access: Access | None = None,
        allow_url_token: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        wire_limits: WireLimits = DEFAULT_WIRE_LIMITS,
        now_ms: int = EPOCH_MS,
        segment_bytes_max: int = 64 << 20,
        guard: GuardSettings | None = None,
        trusted_proxies: str = "",
        pages: Pages | None = None,
        dialects: Mapping[str, object] | None = None,
        wait: Callable[[], None] | None = None,
    ) -> None:
        """`dialects` are settings of other dialects, by name; `wait` makes an engine answer that
        does so later (`zbus.testing.late`)."""
        self.journal: Journal = MemoryJournal() if journal is None else journal
        self.now_ms = now_ms
        self.ahead_ms = 0  # of the clocks outside, which were set back
        self.inbox: deque[tuple[Client, bytes]] = deque()
        self.posted: deque[Callable[[], None]] = deque()
        self.clients: list[Client] = []
        serial = itertools.count(1)
        ids = (b"id-%d" % n for n in serial)
        self.broker = make_broker(self.journal, ids, limits, segment_bytes=segment_bytes_max)
        self.broker.request_clock.ahead_ms = lambda: self.ahead_ms
        self.broker.request_clock.drift_ms = lambda: self.ahead_ms
        self._assembly = Assembly(
            self.broker,
            settings={"native": settings or ZbusSettings(), "pages": pages, **(dialects or {})},
            wire_limits=wire_limits,
            access=access,
            allow_url_token=allow_url_token,
            # Requests of tests go to whatever host they name.
            guard=guard or GuardSettings(hosts=("*",)),
            trusted_proxies=trusted_proxies,
        )
        self.front = self._assembly.front
        dialect = self.front.dialects["native"]
        assert isinstance(dialect, ZbusDialect)
        self.dialect = dialect
        topics, time_ms = recover(self.journal, wait)
        restore(self.broker, topics, max(now_ms, time_ms))
        self._serial = itertools.count(1)

    def connect(self) -> Client:
        number = next(self._serial)
        id = b"session-%d" % number
        address = f"127.0.0.1:{40_000 + number}"
        peer = Connection(id, address, self._assembly.reader(), self.front, lambda peer: None)
        client = Client(self, peer)
        self.clients.append(client)
        self.broker.join(peer)
        return client

    def turn(self) -> None:
        """One turn of the loop."""
        self.broker.begin(self.now_ms)
        while self.posted:
            self.posted.popleft()()
        inbox, self.inbox = self.inbox, deque()
        for client, data in inbox:
            client.peer.receive(data)
        self.broker.finish()
        self.broker.sent()
        for client in self.clients:
            if not client.takes:
                continue
            peer = client.peer
            client.received += b"".join(peer.out)
            peer.out = []
            peer.out_bytes = 0
            if peer.stalled:
                self.broker.resume(peer)
            if peer.has_requests:
                peer.resume()
            if peer.finished and peer.farewell:
                self.broker.leave(peer)
                peer.part()

    def settle(self) -> None:
        """Turn until nothing is left to do at this time."""
        self.turn()
        for _ in range(1_000):
            due_ms = self.broker.next_due()
            busy = any(client.peer.out for client in self.clients if client.takes)
            if not (
                busy or self.inbox or self.posted or (due_ms is not None and due_ms <= self.now_ms)
            ):
                return
            self.turn()
        raise AssertionError("the broker does not come to rest")

    def flush(self) -> None:
        """Write what no request waits for, too; without it, a restart is a crash."""
        self.broker.commit()

    def advance(self, ms: int) -> None:
        """Let time pass, stopping wherever the broker has something to do."""
        end_ms = self.now_ms + ms
        while (due_ms := self.broker.next_due()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.settle()
        self.now_ms = end_ms
        self.settle()
