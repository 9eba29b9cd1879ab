"""Simulated servers with many streams, and with messages to all that listen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from tests.storage.jetstream.cluster import Faults, SimulatedCluster, SimulatedStream
from zbus.storage.jetstream.nats import Document, _Error


class Stream(SimulatedStream):
    """One of several on the same servers."""

    def __init__(self, servers: Servers, name: str) -> None:
        super().__init__(servers.streams.setdefault(name, StreamServers(servers)))
        self._servers = servers
        self._name = name

    def now_ms(self) -> int:
        return self._servers.now_ms

    def ask(
        self,
        command: str,
        question: Mapping[str, Any],
        done: Callable[[Document], None],
    ) -> None:
        configs = self._servers.configs
        if command.startswith("STREAM.CREATE."):
            configs.setdefault(self._name, dict(question))
        config = configs.get(self._name)
        answer = Document(_Error(404)) if config is None else Document(config=config)
        self._answer(partial(done, answer))


class StreamServers(SimulatedCluster):
    """The servers as one stream sees them: time is that of all."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        super().__init__(servers.random, servers.faults)

    def after(self, ms: int, call: Callable[[], object]) -> None:
        self._servers.after(ms, call)


class Servers(SimulatedCluster):
    """Streams by their names, and messages to all that listen."""

    published = 0

    def __init__(self, random: Random, faults: Faults, shards: int = 1) -> None:
        super().__init__(random, faults)
        self.shards = shards
        self.streams: dict[str, StreamServers] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.buses: list[Bus] = []


class Bus:
    """One process's connection to the servers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._receivers: list[Callable[[bytes], None]] = []
        self._beat = b""
        self._beats = False
        self.alive = True
        servers.buses.append(self)

    def publish(self, subject: str, body: bytes) -> None:
        self._servers.published += 1
        for bus in self._servers.buses:
            self._servers.after(self._servers.random.randrange(5), partial(bus.receive, body))

    def receive(self, body: bytes) -> None:
        for receiver in self._receivers if self.alive else ():
            receiver(body)

    def subscribe(self, pattern: str, received: Callable[[bytes], None]) -> None:
        self._receivers.append(received)

    def beat(self, subject: str, body: bytes, every_ms: int) -> None:
        self._beat = body
        if not self._beats:
            self._beats = True
            self._again(subject, every_ms)
        else:
            self.publish(subject, body)

    def _again(self, subject: str, every_ms: int) -> None:
        if self.alive:
            self.publish(subject, self._beat)
            self._servers.after(every_ms, partial(self._again, subject, every_ms))
