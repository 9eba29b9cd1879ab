"""The client for programs that block: plain sockets, no thread in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from zbus.client import commands
from zbus.client.common import FLUSH_COUNT, Common
from zbus.client.documents import GroupInfo
from zbus.client.errors import ConnectionLost, Timeout
from zbus.client.links.link import Link
from zbus.client.links.request_tracker import Call
from zbus.client.methods import blocking, described
from zbus.client.options import Options
from zbus.client.readers.consumer import Consumer
from zbus.client.readers.consuming import Make
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
        return Pipeline(self._link, in_flight_max)

    def _consumer(self, make: Make, query: Request[GroupInfo], required: bool) -> Consumer:
        return Consumer(self._addresses, self._options, make, query, required, self._link)

    def _watcher(self, core: Watching) -> Watcher:
        return Watcher(self._addresses, self._options, core).open()


class Pending(Generic[T]):
    """The result of a request in a pipeline."""

    __slots__ = ("_call", "_link")

    def __init__(self, link: Link, call: Call[T]) -> None:
        self._link = link
        self._call = call

    @property
    def done(self) -> bool:
        return self._call.done

    def result(self) -> T:
        """Wait for it. Raises what the request was refused with."""
        if not self._call.done:
            self._link.flush()
            self._link.wait(self._call)
        return self._call.result()


def _begun(make: Callable[P, Request[T]]) -> Callable[Concatenate[Pipeline, P], Pending[T]]:
    def method(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        return self.begin(make(*args, **kwargs))

    return described(method, make, "Pending[{}]")


class Pipeline:
    """Requests that do not wait for each other. At most `in_flight_max` are unanswered; then the
    next one waits. At the end of the `with` all are answered; the first error is raised there,
    unless its `result` was asked for. Belongs to one thread."""

    produce = _begun(commands.produce)
    produce_many = _begun(commands.produce_many)
    ack = _begun(commands.ack)
    nack = _begun(commands.nack)
    extend = _begun(commands.extend)
    call = _begun(commands.call)

    def __init__(self, link: Link, in_flight_max: int) -> None:
        self._link = link
        self._max = max(1, in_flight_max)
        self._open: deque[Call[Any]] = deque()
        self._unsent = 0
        self._error: Exception | None = None

    def begin(self, request: Request[T]) -> Pending[T]:
        """Send any request, such as one that a program makes itself."""
        if len(self._open) >= self._max:
            self._drain(self._max - 1)
        if isinstance(self._error, ConnectionLost | Timeout):
            self.wait()  # raises it: to go on would be in vain
        call = self._link.submit(request)
        self._open.append(call)
        self._unsent += 1
        if self._unsent >= FLUSH_COUNT:
            self.flush()
        return Pending(self._link, call)

    def flush(self) -> None:
        """Send what was gathered, without waiting for answers."""
        self._unsent = 0
        self._link.flush()

    def wait(self) -> None:
        """Wait for all answers. Raises the first error since the last time."""
        self._drain(0)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _drain(self, count: int) -> None:
        self.flush()
        calls = self._open
        while calls and (len(calls) > count or calls[0].done):
            call = calls.popleft()
            if not call.done:
                self._link.wait(call)
            if call.error is not None and self._error is None:
                self._error = call.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.wait()
        else:
            self._link.flush()
