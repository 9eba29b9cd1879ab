"""The consumer for trio and asyncio. It has a module of its own: programs that block need no event
loop, and begin sooner without one."""

from __future__ import annotations

from functools import partial
from typing import Self, Unpack

import anyio

from zbus.client.errors import ZbusError
from zbus.client.links.async_link import AsyncLink
from zbus.client.messages import Body, Delivery, Labels, Stored
from zbus.client.options import Addresses, Options
from zbus.client.readers.consumer import LEAVE_S, ConsumerSteps
from zbus.client.readers.consuming import Consuming, Opening
from zbus.wire.responses import Response


class AsyncConsumer(ConsumerSteps["AsyncHeld"]):
    """The messages of a group, one after another. Made by `consume`, and used with
    `async with`."""

    def __init__(
        self,
        addresses: Addresses,
        options: Options,
        opening: Opening,
        home: AsyncLink,
    ) -> None:
        self._own = AsyncLink(addresses, options)
        super().__init__(self._own, home, opening, partial(AsyncHeld, self))

    async def __aenter__(self) -> Self:
        tasks = await self._own.start()
        try:
            core = await self._begin()
        except BaseException:
            await self._own.stop()
            raise
        if core.leases:
            tasks.start_soon(self._keep, core)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._parent:
            await self._own.stop()
            return
        problem = None
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + LEAVE_S):
            try:
                await self._leave(failed=kind is not None, patience_s=LEAVE_S / 2)
            except ZbusError as refused:
                problem = refused
        await self._own.stop()
        if problem is not None and kind is None:
            raise problem

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncHeld:
        delivery = await self.next()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def _keep(self, core: Consuming) -> None:
        """The task that keeps leases while the user works."""
        while True:
            await anyio.sleep(core.keep_every_s)
            await self._keep_leases(core)


class AsyncHeld(Delivery):
    """A message that an asynchronous consumer holds: as `Held`, awaited."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: AsyncConsumer, response: Response) -> None:
        super().__init__(response)
        self._consumer = consumer

    async def ack(self) -> None:
        """Acknowledge it: soon, together with others."""
        await self._consumer.ack(self)

    async def nack(self, *, delay_ms: int = 0, front: bool = True) -> None:
        """It is to come again: first, or last (`front=False`), or after `delay_ms` milliseconds."""
        await self._consumer.nack(self, delay_ms=delay_ms, front=front)

    async def extend(self, *, lease_ms: int | None = None) -> None:
        """Keep it for `lease_ms` milliseconds from now, or the group's own time. Raises NotFound
        if it is not leased any more, so that another client may have it."""
        await self._consumer.extend(self, lease_ms=lease_ms)

    async def reply_to(
        self, topic: str, body: Body = b"", **labels: Unpack[Labels]
    ) -> Stored | None:
        """Put what was made of it into a topic, and it is done: both or neither. `labels` are those
        of `produce`. None if it is not leased any more: nothing is stored, since another client has
        it, or since an earlier attempt of this was done and its answer lost."""
        return await self._consumer.reply_to(self, topic, body, **labels)
