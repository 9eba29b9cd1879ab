"""The client for programs that block: plain sockets, no thread in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from zbus.client import commands
from zbus.client.common import FLUSH_COUNT, Common, PipelineSteps, answer_of
from zbus.client.links.link import Link
from zbus.client.links.request_tracker import Call
from zbus.client.links.shared import BlockingLink
from zbus.client.methods import blocking, described
from zbus.client.options import DEFAULT_URL, OptionArguments, Options
from zbus.client.readers.consumer import Consumer
from zbus.client.readers.consuming import Opening
from zbus.client.readers.watcher import Watcher
from zbus.client.readers.watching import Watching
from zbus.client.requests import Request

P = ParamSpec("P")
T = TypeVar("T")


class BlockingClient(Common[Consumer, Watcher]):
    """A connection to a broker, for programs that block. Made by `zbus.client.connect`.

    Threads may share one. It connects again when the connection breaks.
    """

    declare = blocking(commands.declare)
    seek = blocking(commands.seek)
    query = blocking(commands.query)
    schema = blocking(commands.schema)
    server = blocking(commands.server)
    tracker = blocking(commands.tracker)
    remove = blocking(commands.remove)
    empty = blocking(commands.empty)
    pause = blocking(commands.pause)
    resume = blocking(commands.resume)
    ping = blocking(commands.ping)
    version = blocking(commands.version)
    produce = blocking(commands.produce)
    produce_many = blocking(commands.produce_many)
    pull = blocking(commands.pull)
    ack = blocking(commands.ack)
    nack = blocking(commands.nack)
    extend = blocking(commands.extend)
    read = blocking(commands.read)
    get = blocking(commands.get)
    delete = blocking(commands.delete)
    cancel = blocking(commands.cancel)
    fire = blocking(commands.fire)
    reschedule = blocking(commands.reschedule)
    redrive = blocking(commands.redrive)
    peek = blocking(commands.peek)
    why = blocking(commands.why)
    call = blocking(commands.call)
    schedule = blocking(commands.schedule)

    def __init__(self, url: str, options: Options) -> None:
        super().__init__(url, options)
        self._link = Link(self._addresses, self._options)

    def open(self) -> Self:
        """Connect. Raises ConnectionLost. Without it the first request connects, and tries again
        as often as `retries` says."""
        self._link.open()
        return self

    def close(self) -> None:
        """Close the connection. Requests under way end with ConnectionLost."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, request: Request[T]) -> T:
        """Send any request, such as one that a program makes itself."""
        return self._link.run(request)

    def pipeline(self, in_flight_max: int = 256) -> Pipeline:
        """Many requests under way at once, without waiting for each answer."""
        return Pipeline(BlockingLink(self._link), in_flight_max)

    def _consumer(self, opening: Opening) -> Consumer:
        return Consumer(self._addresses, self._options, opening, self._link)

    def _watcher(self, core: Watching) -> Watcher:
        return Watcher(self._options, core).open()


class Pending(Generic[T]):
    """The result of a request in a pipeline."""

    __slots__ = ("_call", "_link")

    def __init__(self, link: BlockingLink, call: Call[T]) -> None:
        self._link = link
        self._call = call

    @property
    def done(self) -> bool:
        return self._call.done

    def result(self) -> T:
        """Wait for it. Raises what the request was refused with."""
        return self._link.finish(answer_of(self._link, self._call))


def _begun(make: Callable[P, Request[T]]) -> Callable[Concatenate[Pipeline, P], Pending[T]]:
    def method(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        return self.begin(make(*args, **kwargs))

    return described(method, make, "Pending[{}]")


class Pipeline(PipelineSteps):
    """Requests that do not wait for each other. At most `in_flight_max` are unanswered; then the
    next one waits. At the end of the `with` all are answered; the first error is raised there,
    unless its `result` was asked for. Belongs to one thread."""

    produce = _begun(commands.produce)
    produce_many = _begun(commands.produce_many)
    ack = _begun(commands.ack)
    nack = _begun(commands.nack)
    extend = _begun(commands.extend)
    call = _begun(commands.call)

    def __init__(self, link: BlockingLink, in_flight_max: int) -> None:
        super().__init__(link, in_flight_max)
        self._blocking = link

    def begin(self, request: Request[T]) -> Pending[T]:
        """Send any request, such as one that a program makes itself."""
        if self._is_full:
            self._blocking.finish(self._make_room())
        call = self._add(request)
        if self._unsent >= FLUSH_COUNT:
            self.flush()
        return Pending(self._blocking, call)

    def flush(self) -> None:
        """Send what was gathered, without waiting for answers."""
        self._blocking.finish(self._flush())

    def wait(self) -> None:
        """Wait for all answers. Raises the first error since the last time."""
        self._blocking.finish(self._wait())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._blocking.finish(self._end(failed=kind is not None))


def connect(url: str = DEFAULT_URL, **options: Unpack[OptionArguments]) -> BlockingClient:
    """Connect to a broker, for a program that blocks. `options` are those of `Options`.

    `url` is `http://host:port`, `https://host:port` or `unix:/path`. Raises ConnectionLost if there
    is no broker, ValueError for another URL.
    """
    return BlockingClient(url, Options(**options)).open()
