"""A core joined to a broker in the same process, by connections that break where they are told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from zbus.client.links.request_tracker import Call, RequestTracker
from zbus.client.options import Options
from zbus.testing.world import Client, World

NEVER = 1 << 60


class Joined:
    """An `RequestTracker` and a `World`. Each connection lets through so many bytes, up and down,
    and breaks; when there are no more such pairs, connections last."""

    def __init__(
        self,
        world: World,
        breaks: Iterable[tuple[int, int]] = (),
        options: Options | None = None,
    ) -> None:
        self.world = world
        self.exchange = RequestTracker(options or Options(), random.Random(1))
        self.now_s = 0.0
        self.breaks: Iterator[tuple[int, int]] = iter(breaks)
        self.connections = 0
        self._client: Client | None = None
        self._up = self._down = 0
        self._unread = b""

    def submit(self, request: Any) -> Call[Any]:
        return self.exchange.submit(request, self.now_s)

    def run(self, request: Any) -> Any:
        call = self.submit(request)
        self.settle()
        return call.result()

    def settle(self) -> None:
        """Until nothing is under way, or nothing moves any more."""
        for _ in range(10_000):
            if not self.step():
                return
        raise AssertionError("it does not come to rest")

    def step(self) -> bool:
        """Something happens; False if there is nothing that could."""
        exchange = self.exchange
        if not exchange.online:
            if not len(exchange):
                return False
            self.now_s = max(self.now_s, exchange.attempts.retry_at_s)
            self._client = self.world.connect()
            self._up, self._down = next(self.breaks, (NEVER, NEVER))
            self.connections += 1
            exchange.connected()
            return True
        client = self._client
        assert client is not None
        data = exchange.take()
        if data:
            client.send(data[: self._up])
            self._up -= len(data)
            self.world.settle()
            self._unread += client.received
            client.received = b""
        elif not self._unread:
            self.world.settle()
            self._unread += client.received
            client.received = b""
        if self._unread:
            piece = self._unread[: self._down]
            self._down -= len(self._unread)
            self._unread = b""
            if not exchange.receive(piece):
                self._break(client)
                return True
        elif not data:
            return False
        if self._up < 0 or self._down < 0:
            self._break(client)
        return True

    def pass_on(self, data: bytes) -> None:
        """The broker has this, and what it answers is still on its way."""
        assert self._client is not None
        self._client.send(data)
        self.world.settle()

    def break_now(self) -> None:
        assert self._client is not None
        self._break(self._client)

    def _break(self, client: Client) -> None:
        client.vanish()
        self._unread = b""
        self.exchange.lost(self.now_s, "it broke")


def stored_bodies(world: World, topic: str = "T") -> list[bytes]:
    """All that is in a topic, in the order of its only partition."""
    joined = Joined(world)
    from zbus.client import commands

    return [delivery.body for delivery in joined.run(commands.read(topic, count=10_000))]
