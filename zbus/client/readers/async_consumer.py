"""The consumer of the asynchronous client: `Consuming` over an `AsyncLink` of its own."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Self, Unpack, cast

import anyio

from zbus.client.documents import GroupInfo
from zbus.client.errors import Forbidden, NotFound, NotLeased, ZbusError
from zbus.client.links.async_link import AsyncLink
from zbus.client.links.forking import Unpicklable
from zbus.client.links.request_tracker import Call
from zbus.client.messages import AsyncHeld, Body, Delivery, Labels, Stored
from zbus.client.options import Addresses, Options
from zbus.client.readers.consuming import Consuming, Make
from zbus.client.requests import Request, parse_deliveries
from zbus.wire.responses import Response

LEAVE_S = 5.0
"""How long a consumer that is closed may take for its good-bye."""


class AsyncConsumer(Unpicklable):
    """The messages of a group, one after another. Made by `consume`, and used with
    `async with`."""

    def __init__(
        self,
        addresses: Addresses,
        options: Options,
        make: Make,
        query: Request[GroupInfo],
        required: bool,
        home: AsyncLink,
    ) -> None:
        """`query` asks for the group; if it is `required`, it must not be refused. `home` is the
        client's: messages that cannot be given back are kept there for the next consumer."""
        self._home = home
        self._link = AsyncLink(addresses, options)
        self._make = make
        self._query = query
        self._required = required
        self._core: Consuming | None = None
        self._pull: Call[list[Delivery]] | None = None
        self._sent: deque[Call[Any]] = deque()  # acknowledgements on their way

    async def __aenter__(self) -> Self:
        tasks = await self._link.start()
        try:
            try:
                info = await self._link.run(self._query)
            except Forbidden:
                if self._required:
                    raise
                info = None  # a token may allow consuming and no more
            core = self._core = self._make(info)
            core.parse = partial(parse_deliveries, make=partial(AsyncHeld, self))
            if kept := self._home.take_kept(core.pulling):
                core.took([AsyncHeld(self, Response(200, one.fields, one.body)) for one in kept])
        except BaseException:
            await self._link.stop()
            raise
        if core.leases:
            tasks.start_soon(self._keep, core)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._link.inherited:
            await self._link.stop()
            return
        problem = None
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + LEAVE_S):
            try:
                await self._leave(self._opened(), failed=kind is not None)
            except ZbusError as refused:
                problem = refused
        await self._link.stop()
        if problem is not None and kind is None:
            raise problem

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncHeld:
        delivery = await self.next()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    def _opened(self) -> Consuming:
        self._link.require_own("consumer")
        if self._core is None:
            raise RuntimeError("a consumer is used with `async with`")
        return self._core

    async def next(self) -> AsyncHeld | None:
        """The next message, and the one before is done; None when `timeout_ms` is over."""
        core = self._opened()
        try:
            while True:
                now_s = anyio.current_time()
                self._take(core)
                delivery = core.step(now_s)
                finished = delivery is None and core.finished(now_s)
                pull = None if finished else core.pull(now_s)
                if pull is not None:
                    self._pull = self._link.submit(pull)
                await self._send(core.requests(now_s), flush=pull is not None)
                await self._check(wait=finished)
                if delivery is not None or finished:
                    return cast("AsyncHeld | None", delivery)
                await self._wait_for_pull()
        except BaseException:
            core.unseen()  # cancelled, mostly
            raise

    async def _send(self, requests: list[Request[Any]], flush: bool = False) -> None:
        for request in requests:
            self._sent.append(self._link.submit(request))
        if requests or flush:
            await self._link.flush()

    async def _wait_for_pull(self, until_s: float | None = None) -> None:
        # Cancelled here, the pull goes on: what it brings is not lost.
        if self._pull is not None:
            await self._link.wait(self._pull, until_s)

    def _take(self, core: Consuming) -> None:
        """What the pull brought, if it is done."""
        pull = self._pull
        if pull is not None and pull.done:
            self._pull = None
            core.pull_failed()  # as long as nothing else is known
            core.took(pull.result())

    async def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge these messages, without waiting for the next one to be taken. Many are one
        request for each partition. A single one may wait a tenth of a second for others.

        Raises ValueError for a message that is not this consumer's; then none is acknowledged."""
        core = self._opened()
        now_s = anyio.current_time()
        core.require_held(*deliveries)
        for delivery in deliveries:
            core.ack(delivery, now_s)
        await self._send(core.flush() if len(deliveries) > 1 else core.requests(now_s))

    async def nack(self, delivery: Delivery, *, delay_ms: int = 0, front: bool = True) -> None:
        """This message is to come again: first, or last (`front=False`), or after `delay_ms`
        milliseconds. Raises ValueError for a message that is not this consumer's."""
        core = self._opened()
        core.require_held(delivery)
        request = core.nack(delivery, delay_ms, front)
        if request is not None:
            with suppress(NotFound):  # not leased any more: it comes again by itself
                await self._link.run(request)

    async def extend(self, delivery: Delivery, *, lease_ms: int | None = None) -> None:
        """Keep this message for `lease_ms` milliseconds from now, or for the group's own time. The
        consumer does the latter by itself. Raises NotFound if it is not leased any more, ValueError
        for a message that is not this consumer's."""
        core = self._opened()
        core.require_held(delivery)
        request = core.extend(delivery, lease_ms, anyio.current_time())
        if request is not None:
            await self._link.run(request)

    async def reply_to(
        self, delivery: Delivery, topic: str, body: Body = b"", **labels: Unpack[Labels]
    ) -> Stored | None:
        """Put what was made of this message into a topic, and the message is done: both or neither.
        `labels` are those of `produce`. None if it is not leased any more: then nothing is stored.
        Raises what `produce` does, ValueError for a message that is settled or not held here."""
        core = self._opened()
        core.require_held(delivery)
        try:
            stored = await self._link.run(core.reply_to(delivery, topic, body, labels))
        except NotLeased:
            stored = None
        core.replied(delivery)
        return stored

    async def _leave(self, core: Consuming, failed: bool) -> None:
        await self._send(core.close())
        if self._pull is not None:
            # Messages may have been on their way to us. If not, no others are wanted.
            self._link.last_time(self._pull)
            await self._wait_for_pull(anyio.current_time() + LEAVE_S / 2)
            try:
                self._take(core)
            except ZbusError:
                pass
        self._home.put_back(core.pulling, core.left())
        calls = [self._link.submit(r) for r in core.give_back(failed, anyio.current_time())]
        await self._link.flush()
        await self._check(wait=True)
        for call in calls:
            await self._link.wait(call)
            with suppress(NotFound):  # not leased any more: it comes again by itself
                call.result()

    async def _check(self, wait: bool) -> None:
        """Whether acknowledgements went well."""
        sent = self._sent
        while sent and (wait or sent[0].done):
            if not sent[0].done:
                await self._link.wait(sent[0])
            with suppress(NotFound):  # what was removed has nothing to settle
                sent.popleft().result()

    async def _keep(self, core: Consuming) -> None:
        """The task that keeps leases while the user works."""
        while True:
            await anyio.sleep(core.keep_every_s)
            try:
                self._take(core)  # what no client has asked for yet is leased, too
            except ZbusError:
                pass  # the loop asks again
            for request in [*core.flush(), *core.extensions(anyio.current_time())]:
                try:
                    await self._link.run(request)
                except ZbusError:
                    pass  # they come again; the loop will notice what is wrong
