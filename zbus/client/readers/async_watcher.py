"""The watch for trio and asyncio."""

from __future__ import annotations

from typing import Self

import anyio.lowlevel

from zbus.client.links.async_link import AsyncConnection
from zbus.client.messages import Delivery
from zbus.client.options import Options
from zbus.client.readers.watcher import WatcherSteps
from zbus.client.readers.watching import Watching


class AsyncWatcher(WatcherSteps):
    """The messages of a topic, one after another. Made by `watch`, and used with `async with`.
    Belongs to one task."""

    def __init__(self, options: Options, core: Watching) -> None:
        self._own = AsyncConnection(options, lambda: core)
        super().__init__(core, self._own)

    async def __aenter__(self) -> Self:
        """Connect, until the broker has said where the stream begins."""
        try:
            await self._begin()
        except BaseException:
            await self._own.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._own.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self.next()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def next(self) -> Delivery | None:
        """The next message; None when `timeout_ms` is over."""
        if not self._opened:
            raise RuntimeError("a watch is used with `async with`")
        await anyio.lowlevel.checkpoint()  # before it is taken: cancelled here, it is the next
        return await self._next()
