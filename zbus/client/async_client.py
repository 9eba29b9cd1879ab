"""The client for trio and asyncio, through anyio: the same names as the blocking one, awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from zbus.client import commands
from zbus.client.common import FLUSH_COUNT, Common, PipelineSteps, answer_of
from zbus.client.links.async_link import AsyncLink
from zbus.client.links.request_tracker import Call
from zbus.client.links.shared import AnyLink
from zbus.client.methods import awaited, described
from zbus.client.options import DEFAULT_URL, OptionArguments, Options
from zbus.client.readers.async_consumer import AsyncConsumer
from zbus.client.readers.async_watcher import AsyncWatcher
from zbus.client.readers.consuming import Opening
from zbus.client.readers.watching import Watching
from zbus.client.requests import Request

P = ParamSpec("P")
T = TypeVar("T")


class Client(Common[AsyncConsumer, AsyncWatcher]):
    """A connection to a broker, for trio and asyncio. Made by `zbus.client.connect_async`, and
    used with `async with`. Tasks may share one. It connects again when the connection breaks."""

    declare = awaited(commands.declare)
    seek = awaited(commands.seek)
    query = awaited(commands.query)
    schema = awaited(commands.schema)
    server = awaited(commands.server)
    tracker = awaited(commands.tracker)
    remove = awaited(commands.remove)
    empty = awaited(commands.empty)
    pause = awaited(commands.pause)
    resume = awaited(commands.resume)
    ping = awaited(commands.ping)
    version = awaited(commands.version)
    produce = awaited(commands.produce)
    produce_many = awaited(commands.produce_many)
    pull = awaited(commands.pull)
    ack = awaited(commands.ack)
    nack = awaited(commands.nack)
    extend = awaited(commands.extend)
    read = awaited(commands.read)
    get = awaited(commands.get)
    delete = awaited(commands.delete)
    cancel = awaited(commands.cancel)
    fire = awaited(commands.fire)
    reschedule = awaited(commands.reschedule)
    redrive = awaited(commands.redrive)
    peek = awaited(commands.peek)
    why = awaited(commands.why)
    call = awaited(commands.call)
    schedule = awaited(commands.schedule)

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

    def _consumer(self, opening: Opening) -> AsyncConsumer:
        return AsyncConsumer(self._addresses, self._options, opening, self._link)

    def _watcher(self, core: Watching) -> AsyncWatcher:
        return AsyncWatcher(self._options, core)


class AsyncPending(Generic[T]):
    """The result of a request in a pipeline."""

    __slots__ = ("_call", "_link")

    def __init__(self, link: AnyLink, call: Call[T]) -> None:
        self._link = link
        self._call = call

    @property
    def done(self) -> bool:
        return self._call.done

    async def result(self) -> T:
        """Wait for it. Raises what the request was refused with."""
        return await answer_of(self._link, self._call)


def _begun(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[AsyncPipeline, P], Coroutine[Any, Any, AsyncPending[T]]]:
    async def method(self: AsyncPipeline, /, *args: P.args, **kwargs: P.kwargs) -> AsyncPending[T]:
        return await self.begin(make(*args, **kwargs))

    return described(method, make, "AsyncPending[{}]")


class AsyncPipeline(PipelineSteps):
    """Requests that do not wait for each other. At most `in_flight_max` are unanswered; then the
    next one waits. At the end of the `async with` all are answered; the first error is raised
    there. Belongs to one task."""

    produce = _begun(commands.produce)
    produce_many = _begun(commands.produce_many)
    ack = _begun(commands.ack)
    nack = _begun(commands.nack)
    extend = _begun(commands.extend)
    call = _begun(commands.call)

    async def begin(self, request: Request[T]) -> AsyncPending[T]:
        """Send any request, such as one that a program makes itself."""
        if self._is_full:
            await self._make_room()
        call = self._add(request)
        if self._unsent >= FLUSH_COUNT:
            await self._flush()
        return AsyncPending(self._link, call)

    async def flush(self) -> None:
        """Send what was gathered, without waiting for answers."""
        await self._flush()

    async def wait(self) -> None:
        """Wait for all answers. Raises the first error since the last time."""
        await self._wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._end(failed=kind is not None)


def connect_async(url: str = DEFAULT_URL, **options: Unpack[OptionArguments]) -> Client:
    """`zbus.client.connect` for trio and asyncio: `async with connect_async(...) as bus`."""
    return Client(url, Options(**options))
