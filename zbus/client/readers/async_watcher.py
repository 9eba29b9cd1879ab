"""The watch of the asynchronous client: `Watching` over a connection of its own."""

from __future__ import annotations

from typing import Self

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from zbus.client.links.async_link import BROKEN, RECEIVE_BYTES, disown_stream, open_stream
from zbus.client.links.forking import Unpicklable, follow_forks, require_own
from zbus.client.messages import Delivery
from zbus.client.options import Addresses, Options
from zbus.client.readers.watching import Watching


class AsyncWatcher(Unpicklable):
    """The messages of a topic, one after another. Made by `watch`, and used with `async with`.
    Belongs to one task."""

    def __init__(self, addresses: Addresses, options: Options, core: Watching) -> None:
        self._addresses = addresses
        self._options = options
        self._core = core
        self._stream: ByteStream | None = None
        self._opened = False
        self._parent = 0  # the process that watches, and forked this one
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """What is begun belongs to the parent and its event loop."""
        if self._opened:
            self._parent = self._parent or parent
            disown_stream(self._stream)
            self._stream = None

    async def __aenter__(self) -> Self:
        """Connect, until the broker has said where the stream begins."""
        require_own("watch", self._parent)
        self._opened = True
        try:
            while not self._core.begun:
                await self._drive()
                if self._core.error is not None:
                    raise self._core.error
        except BaseException:
            await self._drop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._drop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self.next()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def next(self) -> Delivery | None:
        """The next message; None when `timeout_ms` is over."""
        require_own("watch", self._parent)
        if not self._opened:
            raise RuntimeError("a watch is used with `async with`")
        core = self._core
        await anyio.lowlevel.checkpoint()  # before it is taken: cancelled here, it is the next
        delivery = core.step()
        if delivery is not None:
            return delivery
        timeout_s = None if core.timeout_ms is None else core.timeout_ms / 1000
        with anyio.move_on_after(timeout_s):
            # Cancelled here, what came is not lost: it is in the core at once.
            while delivery is None:
                await self._drive()
                delivery = core.step()
        return delivery

    async def _drive(self) -> None:
        """Do the next thing that brings us forward: pause, connect, or receive."""
        core, stream = self._core, self._stream
        if stream is None:
            await anyio.sleep(max(0.0, core.attempts.retry_at_s - anyio.current_time()))
            await self._connect()
            return
        data, why = b"", f"nothing came for {core.patience_s:g} s"
        with anyio.move_on_after(core.patience_s):
            try:
                data = await stream.receive(RECEIVE_BYTES)
            except BROKEN as error:
                why = str(error) or "it was closed"
        if not (data and core.receive(data)):
            await self._lost(self._core.attempts.lost(why))

    async def _connect(self) -> None:
        try:
            stream = await open_stream(self._core.attempts.address, self._options)
        except OSError as error:
            await self._lost(self._core.attempts.not_made(error))
            return
        self._stream = stream
        try:
            await stream.send(self._core.connected())
        except BROKEN as error:
            why = str(error) or "it was closed"
            await self._lost(self._core.attempts.lost(why))
        except BaseException:
            # Half of the request may be sent: it begins anew, if it does.
            await self._drop()
            raise

    async def _lost(self, why: str) -> None:
        self._core.lost(anyio.current_time(), why)
        await self._drop()

    async def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
