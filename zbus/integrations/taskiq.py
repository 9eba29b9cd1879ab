"""A broker of taskiq: `broker = ZbusBroker("http://127.0.0.1:15555")`.

Tasks are messages of one topic, and workers one group of it. A task is leased until taskiq
acknowledges it, and its lease is extended meanwhile. The label `delay`, in seconds, is a delay of
the broker's. (docs/howto/python-frameworks.md)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Unpack

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from zbus.client import (
    DEFAULT_URL,
    Client,
    Delivery,
    NotFound,
    NotLeased,
    Options,
    ZbusError,
)
from zbus.client.options import OptionArguments
from zbus.protocol.parameters import Put

WAIT_MS = 20_000
WAKE_S = 1.0
WINDOW = 100_000
"""Tasks that all workers may hold at once."""


class ZbusBroker(AsyncBroker):
    """Tasks in the topic `topic`; workers that name one `group` share them.

    `prefetch` is how many tasks a process fetches at once, `lease_ms` after how many milliseconds
    the tasks of a worker that was killed are delivered again. `options` are those of
    `zbus.client.connect`. `startup` raises ConnectionLost if there is no broker.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        topic: str = "taskiq",
        group: str = "taskiq",
        *,
        prefetch: int = 10,
        lease_ms: int = 60_000,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__()
        self.url = url
        self.topic = topic
        self.group = group
        self.prefetch = prefetch
        self.lease_ms = lease_ms
        self._options = Options(**options)
        self._held: set[Delivery] = set()
        self._connection: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Connect, and make topic and group if they are not there."""
        connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._connection = asyncio.create_task(self._connect(connected))
        self._bus = await connected
        await self._bus.declare(
            self.topic, self.group, ack=True, window=WINDOW, retain=True, retention_done=True
        )
        await super().startup()

    async def shutdown(self) -> None:
        """Close the connection. What this process holds is given back."""
        await super().shutdown()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(ZbusError):
                await self._give_back(list(self._held))
            connection.cancel()
            await asyncio.wait((connection,))

    async def _connect(self, connected: asyncio.Future[Client]) -> None:
        """The task that has the client, which begins and ends in one, and keeps leases."""
        try:
            async with Client(self.url, self._options) as bus:
                connected.set_result(bus)
                while True:
                    # The signal that ends a worker of taskiq does not wake its loop: this does.
                    await asyncio.sleep(min(self.lease_ms / 3_000, WAKE_S))
                    for partition, offsets in self._offsets(list(self._held)).items():
                        with suppress(ZbusError):  # it tries again
                            await bus.extend(
                                self.topic,
                                self.group,
                                offsets,
                                partition=partition,
                                lease_ms=self.lease_ms,
                            )
        except ZbusError as error:
            if connected.done():
                raise
            connected.set_exception(error)

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; returns when it is durable. Raises what `produce` of the client does,
        ValueError for a `delay` that is no number of seconds."""
        where: Put = {}
        delay = message.labels.get("delay")
        if delay is not None:
            where["delay_ms"] = max(0, round(float(delay) * 1000))
        await self._bus.produce(self.topic, message.message, **where)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks, one after another. What is fetched and not taken is given back at its end."""
        fetched: list[Delivery] = []
        try:
            while True:
                fetched = await self._bus.pull(
                    self.topic,
                    self.group,
                    batch=self.prefetch,
                    wait_ms=WAIT_MS,
                    lease_ms=self.lease_ms,
                )
                self._held.update(fetched)
                while fetched:
                    delivery = fetched.pop(0)
                    yield AckableMessage(data=delivery.body, ack=partial(self._ack, delivery))
        finally:
            await self._give_back(fetched)

    async def _ack(self, delivery: Delivery) -> None:
        """Raises ValueError for a task that is acknowledged already, or was given back."""
        if delivery not in self._held:
            raise ValueError(f"{delivery!r} was acknowledged or given back before")
        await self._bus.ack(self.topic, self.group, delivery.offset, partition=delivery.partition)
        self._held.discard(delivery)

    async def _give_back(self, deliveries: list[Delivery]) -> None:
        self._held.difference_update(deliveries)
        for partition, offsets in self._offsets(deliveries).items():
            with suppress(NotLeased, NotFound):  # they come again by themselves
                await self._bus.nack(self.topic, self.group, offsets, partition=partition)

    def _offsets(self, deliveries: list[Delivery]) -> dict[int, list[int]]:
        offsets: dict[int, list[int]] = {}
        for each in deliveries:
            offsets.setdefault(each.partition, []).append(each.offset)
        return offsets
