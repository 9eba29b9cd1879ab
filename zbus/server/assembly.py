"""One place that puts a broker together.

Every broker is made here: `zbus serve` with sockets and a disk, a simulated machine with
neither, a world in a test without even a loop. They differ in the journal that they bring, in the
options that they give, and in what they read connections from; the rest is said once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from zbus.config.server import LoopLimits, Timeouts
from zbus.core.api import DEFAULT_LIMITS, MEMORY_TOPIC_BYTES_MAX, Broker, Limits, Storage, Topic
from zbus.dialects.registry import MARKS, build_router, may_differ
from zbus.edge.access import Access
from zbus.edge.connection import Planner
from zbus.edge.guard import Guard, GuardSettings
from zbus.server.loop.clock import Clock
from zbus.server.loop.loop import Loop
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.readiness import Readiness
from zbus.server.loop.socket_connection import SocketConnection
from zbus.server.loop.timeouts import ConnectionTimeouts
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Journal
from zbus.wire.bodies.budget import Budget
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import DEFAULT_LIMITS as DEFAULT_WIRE_LIMITS
from zbus.wire.limits import WireLimits
from zbus.wire.tls import TlsStream

SEGMENT_BYTES = 64 << 20

CONNECTION_BYTES: Final = 3 << 10
PULL_BYTES: Final = 900
CALL_BYTES: Final = 1_200
"""What a connection, a waiting pull and an open call take, about."""

HEADS_PER_LOOK = 2_000
"""Heads that are freed in one go, at most: a millisecond or two."""

AGE_EVERY = 4
"""Seconds after which what was not used is forgotten, of what is remembered for speed."""

Kind = Callable[[Storage, Iterator[bytes], Limits], Broker]
"""What makes a broker of its three parts: the class, or what a test puts in its place."""


def make_broker(
    journal: Journal,
    ids: Iterator[bytes],
    limits: Limits = DEFAULT_LIMITS,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    snapshot_bytes: int | None = None,
    memory_bytes_max: int | None = None,
    memory_topic_bytes_max: int = MEMORY_TOPIC_BYTES_MAX,
    kind: Kind = Broker,
) -> Broker:
    """A broker that keeps its topics in this journal, and those in memory in memory."""
    memory = MemoryJournal(memory_bytes_max)
    storage = Storage(journal, memory, segment_bytes, snapshot_bytes, memory_topic_bytes_max)
    return kind(storage, ids, limits)


def restore(
    broker: Broker,
    topics: Iterable[Topic],
    now_ms: int,
    wait: Callable[[], bool] = lambda: False,
) -> None:
    """The first moment of a broker: it has all that was found in its journal."""
    broker.begin(now_ms)
    broker.restore(topics, wait)


class Assembly:
    """A broker behind its dialects, and what is needed to read what connections say to it."""

    def __init__(
        self,
        broker: Broker,
        *,
        settings: Mapping[str, object],
        wire_limits: WireLimits = DEFAULT_WIRE_LIMITS,
        access: Access | None = None,
        allow_url_token: bool = False,
        guard: GuardSettings | None = None,
        trusted_proxies: str = "",
    ) -> None:
        """`settings` are those of the dialects, by name; without `access`
        everybody may do everything."""
        self.broker = broker
        self._wire_limits = wire_limits
        self._all_heads: list[Heads] = []
        self.bodies = Budget(wire_limits.bodies_bytes_max)
        self.heads = heads = self.make_heads()
        self._seconds = 0
        self.front = build_router(
            broker,
            heads,
            settings,
            Guard(guard),
            access,
            allow_url_token=allow_url_token,
            trusted_proxies=trusted_proxies,
        )
        self.planner: Planner = self.front  # of clients' connections
        self.kind = SocketConnection  # of new ones

    def loop(
        self,
        mailbox: Mailbox,
        clock: Clock,
        limits: LoopLimits,
        timeouts: Timeouts,
        now_and_then: Callable[[], None],
        readiness: Readiness | None = None,
        kind: type[Loop] = Loop,
    ) -> Loop:
        """What serves its connections; `now_and_then` is called about once a second."""
        loop = kind(self.broker, mailbox, limits, clock, readiness)
        loop.sweep = ConnectionTimeouts(
            loop.links,
            loop.drop,
            loop.leave,
            timeouts,
            now_and_then,
            limits.output_bytes_max,
            self.broker.faults,
        )
        return loop

    def holds(self, loop: Loop) -> dict[str, Callable[[], int]]:
        """What it holds in memory, by kind: how to ask for bytes, about."""
        broker, sweep = self.broker, loop.sweep
        return {
            "connections": lambda: CONNECTION_BYTES * len(loop.links),
            "output": lambda: sweep.output_bytes if sweep else 0,
            "bodies": lambda: self.bodies.bytes_used,
            "heads": lambda: sum([heads.bytes_used for heads in self._all_heads]),
            "pulls": lambda: PULL_BYTES * broker.memory_use().pulls,
            "calls": lambda: CALL_BYTES * broker.memory_use().calls,
            "cache": lambda: broker.memory_use().recent_bytes,
            "history": lambda: broker.memory_use().replayed_bytes,
            "memoryTopics": lambda: broker.memory_use().topics_bytes,
            **self.front.holds(),
        }

    def make_heads(self) -> Heads:
        """What reads heads for connections of a kind, whose plans they may share."""
        heads = Heads(self._wire_limits, marks=MARKS, may_differ=may_differ)
        self._all_heads.append(heads)
        return heads

    def upkeep(self) -> None:
        """To be called about once a second."""
        self._seconds += 1
        for heads in self._all_heads:
            heads.drop(HEADS_PER_LOOK)
            if self._seconds % AGE_EVERY == 0:
                heads.age()

    def reader(self, heads: Heads | None = None) -> HttpReader:
        """What reads a new connection."""
        return HttpReader(heads or self.heads, self._wire_limits, self.bodies)

    def welcome(
        self,
        loop: Loop,
        sock: socket.socket,
        id: bytes,
        address: str,
        tls: TlsStream | None = None,
        gone: Callable[[], None] | None = None,
        kind: type[SocketConnection] | None = None,
    ) -> SocketConnection:
        """A connection has come; `gone` is called when it is closed."""
        link = (kind or self.kind)(
            sock,
            id,
            address,
            self.reader(),
            self.planner,
            loop.ready.append,
            loop.limits.output_bytes_max,
            loop.now_ms,
            tls,
            gone,
        )
        loop.add(link)
        return link
