"""The NATS servers of a world, as its processes reach them: answers come through the mailbox of
each, or not at all while its machine is cut off."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from tests.storage.jetstream.cluster import CLOCK_RATES, Faults
from tests.storage.jetstream.servers import Bus, Servers, Stream, StreamServers
from zbus.server.loop.mailbox import Mailbox
from zbus.storage.jetstream.client import ASK_S, REQUEST_S
from zbus.storage.jetstream.nats import Document
from zbus.storage.jetstream.stream import (
    Got,
    Outcome,
    Outgoing,
    Published,
    StreamState,
    SubjectNames,
    Unreachable,
)
from zbus.testing.simulation.machine import EPOCH_MS, VirtualClock

ASK_MS: Final = int(1_000 * ASK_S)
REQUEST_MS: Final = int(1_000 * REQUEST_S)

_UNKNOWN: Final = Published(0, Outcome.UNKNOWN, "no answer")
_NOTHING: Final = Unreachable("no answer")


class MachineClock:
    """It counts from anything, and not at the rate of time."""

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self._clock = clock
        self._ahead_ms = random.randrange(3_600_000)
        self.rate = 1 + random.uniform(-CLOCK_RATES, CLOCK_RATES)

    def now_ms(self) -> int:
        return self._ahead_ms + int((self._clock.time_ms - EPOCH_MS) * self.rate)


class Peer(Protocol):
    """A process, as its connection to the servers knows it."""

    paused_until_ms: int

    @property
    def post(self) -> Mailbox: ...

    @property
    def machine_name(self) -> str: ...

    @property
    def machine_clock(self) -> MachineClock: ...


class Nats(Servers):
    """See the module. Time is that of the world."""

    def __init__(self, random: Random, clock: VirtualClock, faults: Faults) -> None:
        self._clock = clock
        self._due: list[tuple[int, float, int, Callable[[], object]]] = []
        self._count = 0
        self.cut_until_ms: dict[str, int] = {}  # by machine
        self.deaf_until_ms: dict[tuple[str, str], int] = {}  # to heartbeats: who says, who hears
        super().__init__(random, faults)

    @property
    def now_ms(self) -> int:
        return self._clock.time_ms - EPOCH_MS

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        """It is set by who moves the clock."""

    def after(self, ms: int, call: Callable[[], object]) -> None:
        self._count += 1
        due_ms = self.now_ms + ms
        heapq.heappush(self._due, (due_ms, self.random.random(), self._count, call))

    def run_due(self) -> bool:
        """All that is due happens, in any order; whether there was anything."""
        now_ms, due = self.now_ms, self._due
        found = bool(due) and due[0][0] <= now_ms
        while due and due[0][0] <= now_ms:
            heapq.heappop(due)[3]()
        return found

    def next_due(self) -> int | None:
        """When something happens next, on the clock of the world."""
        return self._due[0][0] + EPOCH_MS if self._due else None

    def stream(self, name: str) -> StreamServers:
        """The servers of one stream, which fail by themselves."""
        return self.streams[name]


class Client(Bus):
    """A process's connection, as `zbus.storage.jetstream.client.NatsClient`."""

    def __init__(self, servers: Nats, peer: Peer, message_bytes_max: int) -> None:
        super().__init__(servers)
        self.servers = servers
        self.peer = peer
        self.message_bytes_max = message_bytes_max

    @property
    def problem(self) -> str:
        return "" if self.reaches else "not connected"

    @property
    def reaches(self) -> bool:
        """The servers can be reached."""
        cut_until_ms = self.servers.cut_until_ms.get(self.peer.machine_name, 0)
        return self.alive and cut_until_ms <= self.servers.now_ms

    def publish(self, subject: str, body: bytes) -> None:
        servers, peer = self.servers, self.peer
        if not self.reaches or peer.paused_until_ms > servers.now_ms + EPOCH_MS:
            return
        for bus in servers.buses:
            assert isinstance(bus, Client)
            pair = peer.machine_name, bus.peer.machine_name
            if servers.deaf_until_ms.get(pair, 0) <= servers.now_ms:
                servers.after(servers.random.randrange(5), partial(bus.receive, body))

    def receive(self, body: bytes) -> None:
        if self.reaches:
            self.post(partial(super().receive, body))

    def post(self, call: Callable[[], None]) -> None:
        """On the thread of the broker, unless that has ended."""
        if self.alive:
            self.peer.post.post(call)

    def close(self) -> None:
        if self.alive:
            self.alive = False
            self.servers.buses.remove(self)


class NodeStream(Stream):
    """A stream, as `zbus.storage.jetstream.nats.NatsStream`."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(client.servers, name)
        self.client = client
        self.message_bytes_max = client.message_bytes_max

    def now_ms(self) -> int:
        return self.client.peer.machine_clock.now_ms()

    def later(self, ms: int, call: Callable[[], None]) -> None:
        rate = self.client.peer.machine_clock.rate
        self.client.servers.after(int(ms / rate), partial(self._post, call))

    def _post(self, call: Callable[[], None]) -> None:
        self.client.post(partial(self._call, call))

    def _ask(
        self,
        ask: Callable[[Callable[..., None]], None],
        done: Callable[..., None],
        failure: object,
        patience_ms: int = ASK_MS,
    ) -> None:
        """What is asked while the machine is cut off does not arrive, and neither does an
        answer."""
        client = self.client

        def lose() -> None:
            client.servers.after(patience_ms, partial(self._post, partial(done, failure)))

        def tell(*answer: object) -> None:
            if client.reaches:
                self._post(partial(done, *answer))
            else:
                lose()

        if client.reaches:
            ask(tell)
        else:
            lose()

    def publish(
        self, messages: Sequence[Outgoing], last: int, done: Callable[[Published], None]
    ) -> None:
        self._ask(partial(super().publish, list(messages), last), done, _UNKNOWN, REQUEST_MS)

    def state(self, done: Callable[[StreamState | Unreachable], None]) -> None:
        self._ask(super().state, done, _NOTHING)

    def get(self, which: int | str, done: Callable[[Got], None]) -> None:
        self._ask(partial(super().get, which), done, _NOTHING)

    def newest(self, subjects: Sequence[str], done: Callable[[Got], None]) -> None:
        self._ask(partial(super().newest, subjects), done, _NOTHING)

    def read(
        self, subject: str, sequence: int, count: int, size: int, done: Callable[[Got], None]
    ) -> None:
        self._ask(partial(super().read, subject, sequence, count, size), done, _NOTHING)

    def subjects(self, pattern: str, done: Callable[[SubjectNames | Unreachable], None]) -> None:
        self._ask(partial(super().subjects, pattern), done, _NOTHING)

    def purge(self, subject: str, before: int, done: Callable[[bool], None]) -> None:
        self._ask(partial(super().purge, subject, before), done, False)

    def ask(
        self, command: str, question: Mapping[str, Any], done: Callable[[Document], None]
    ) -> None:
        self._ask(partial(super().ask, command, question), done, _NOTHING)
