"""The client for trio and asyncio, through anyio: the same names as the blocking one, awaited."""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, Self, TypeVar

from zbus.client.common import FLUSH_COUNT, Common
from zbus.client.documents import GroupInfo
from zbus.client.errors import ConnectionLost, Timeout
from zbus.client.links.async_link import AsyncLink
from zbus.client.links.request_tracker import Call
from zbus.client.methods import AsyncMethods, AsyncPipelineMethods
from zbus.client.options import Options
from zbus.client.readers.async_consumer import AsyncConsumer
from zbus.client.readers.async_watcher import AsyncWatcher
from zbus.client.readers.consuming import Make
from zbus.client.readers.watching import Watching
from zbus.client.requests import Request

T = TypeVar("T")


class Client(AsyncMethods, Common[AsyncConsumer, AsyncWatcher]):
    """A connection to a broker, for trio and asyncio. Made by `zbus.client.connect_async`, and
    used with `async with`. Tasks may share one. It connects again when the connection breaks."""

    def __init__(self, url: str, options: Options) -> None:
        super().__init__(url, options)
        self._link = AsyncLink(self._addresses, self._options)

    async def __aenter__(self) -> Self:
        """Connect. Raises ConnectionLost."""
        await self._link.open()
        await self._link.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._link.stop()

    async def run(self, request: Request[T]) -> T:
        """Send any request, such as one that a program makes itself."""
        return await self._link.run(request)

    def pipeline(self, in_flight_max: int = 256) -> AsyncPipeline:
        """Many requests under way at once, without waiting for each answer."""
        return AsyncPipeline(self._link, in_flight_max)

    def _consumer(self, make: Make, query: Request[GroupInfo], required: bool) -> AsyncConsumer:
        return AsyncConsumer(self._addresses, self._options, make, query, required, self._link)

    def _watcher(self, core: Watching) -> AsyncWatcher:
        return AsyncWatcher(self._addresses, self._options, core)


class AsyncPending(Generic[T]):
    """The result of a request in a pipeline."""

    __slots__ = ("_call", "_link")

    def __init__(self, link: AsyncLink, call: Call[T]) -> None:
        self._link = link
        self._call = call

    @property
    def done(self) -> bool:
        return self._call.done

    async def result(self) -> T:
        """Wait for it. Raises what the request was refused with."""
        if not self._call.done:
            await self._link.flush()
            await self._link.wait(self._call)
        return self._call.result()


class AsyncPipeline(AsyncPipelineMethods):
    """Requests that do not wait for each other. At most `in_flight_max` are unanswered; then the
    next one waits. At the end of the `async with` all are answered; the first error is raised
    there. Belongs to one task."""

    def __init__(self, link: AsyncLink, in_flight_max: int) -> None:
        self._link = link
        self._max = max(1, in_flight_max)
        self._open: deque[Call[Any]] = deque()
        self._unsent = 0
        self._error: Exception | None = None

    async def _begin(self, request: Request[T]) -> AsyncPending[T]:
        if len(self._open) >= self._max:
            await self._drain(self._max - 1)
        if isinstance(self._error, ConnectionLost | Timeout):
            await self.wait()  # raises it: to go on would be in vain
        call = self._link.submit(request)
        self._open.append(call)
        self._unsent += 1
        if self._unsent >= FLUSH_COUNT:
            await self.flush()
        return AsyncPending(self._link, call)

    async def flush(self) -> None:
        """Send what was gathered, without waiting for answers."""
        self._unsent = 0
        await self._link.flush()

    async def wait(self) -> None:
        """Wait for all answers. Raises the first error since the last time."""
        await self._drain(0)
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _drain(self, count: int) -> None:
        await self.flush()
        calls = self._open
        while calls and (len(calls) > count or calls[0].done):
            call = calls.popleft()
            if not call.done:
                await self._link.wait(call)
            if call.error is not None and self._error is None:
                self._error = call.error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.wait()
        else:
            await self._link.flush()
