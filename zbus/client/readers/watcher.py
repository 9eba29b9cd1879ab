"""What the watches of both clients do alike, `Watching` over a connection of its own; and the one
that blocks."""

from __future__ import annotations

import math
from typing import Self

from zbus.client.links.forking import Unpicklable, follow_forks, require_own
from zbus.client.links.link import Connection
from zbus.client.links.shared import AnyConnection, BlockingConnection
from zbus.client.messages import Delivery
from zbus.client.options import Options
from zbus.client.readers.watching import Watching


class WatcherSteps(Unpicklable):
    """What both do alike."""

    def __init__(self, core: Watching, connection: AnyConnection) -> None:
        self._core = core
        self._connection = connection
        self._opened = False
        self._parent = 0  # the process that watches, and forked this one
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """What is begun belongs to the parent."""
        if self._opened:
            self._parent = self._parent or parent

    async def _begin(self) -> None:
        """Connect, until the broker has said where the stream begins."""
        require_own("watch", self._parent)
        self._opened = True
        while not (self._core.begun or self._connection.closed):
            await self._drive(math.inf)
            if self._core.error is not None:
                raise self._core.error

    def _ready(self) -> Delivery | None:
        """The next message, if it is here already."""
        require_own("watch", self._parent)
        return None if self._connection.closed else self._core.step()

    async def _next(self) -> Delivery | None:
        core, connection = self._core, self._connection
        until_s: float | None = None
        while not connection.closed:
            delivery = self._ready()
            if delivery is not None:
                return delivery
            if until_s is None:
                pause_s = math.inf if core.timeout_ms is None else core.timeout_ms / 1000
                until_s = connection.now_s() + pause_s
            if connection.now_s() >= until_s:
                return None
            await self._drive(until_s)
        return None

    async def _drive(self, until_s: float) -> None:
        if self._core.out_count:
            await self._connection.flush()  # where this was interrupted, or cancelled
        await self._connection.drive(until_s)


class Watcher(WatcherSteps):
    """The messages of a topic, one after another. Made by `watch`. Belongs to one thread; `close`
    may be called by another, and ends the loop."""

    def __init__(self, options: Options, core: Watching) -> None:
        self._own = Connection(options, lambda: core)
        self._blocking = BlockingConnection(self._own)
        super().__init__(core, self._blocking)

    def forked(self, parent: int) -> None:
        """The same, and it is the turn of nobody."""
        super().forked(parent)
        self._blocking.forked()

    def open(self) -> Self:
        """Connect, until the broker has said where the stream begins."""
        try:
            self._blocking.finish(self._begin())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop watching."""
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        delivery = self.next()
        if delivery is None:
            raise StopIteration
        return delivery

    def next(self) -> Delivery | None:
        """The next message; None when `timeout_ms` is over, or the watch is closed."""
        try:
            return self._ready() or self._blocking.finish(self._next())
        except Exception:
            self.close()
            raise
