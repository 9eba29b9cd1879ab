"""The client for programs that block: plain sockets, no thread in the background."""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from zbus.client import commands
from zbus.client.consumer import Consumer
from zbus.client.consuming import Consuming
from zbus.client.errors import ConnectionLost, Timeout
from zbus.client.exchange import Call
from zbus.client.link import Link
from zbus.client.options import Options, resolve
from zbus.client.requests import Request
from zbus.client.watcher import Watcher
from zbus.client.watching import Start, Watching

P = ParamSpec("P")
T = TypeVar("T")

FLUSH_COUNT = 64
"""Requests that a pipeline gathers before it sends them."""


def _blocking(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    """A method that sends the request of a function of `commands` and returns what it means."""

    @functools.wraps(make)
    def method(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._link.run(make(*args, **kwargs))

    return method


class BlockingClient:
    """A connection to a broker, for programs that block. Made by `zbus.client.connect`.

    Threads may share one. It connects again when the connection breaks.
    """

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._address, self._options = resolve(url, options)
        self._link = Link(self._address, self._options)

    def __repr__(self) -> str:
        return f"<BlockingClient {self._url}>"

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    declare = _blocking(commands.declare)
    query = _blocking(commands.query)
    remove = _blocking(commands.remove)
    empty = _blocking(commands.empty)
    ping = _blocking(commands.ping)
    version = _blocking(commands.version)
    produce = _blocking(commands.produce)
    produce_many = _blocking(commands.produce_many)
    pull = _blocking(commands.pull)
    ack = _blocking(commands.ack)
    nack = _blocking(commands.nack)
    extend = _blocking(commands.extend)
    read = _blocking(commands.read)
    call = _blocking(commands.call)

    def run(self, request: Request[T]) -> T:
        """Send any request, such as one that a program makes itself."""
        return self._link.run(request)

    def pipeline(self, in_flight_max: int = 256) -> Pipeline:
        """Many requests under way at once, without waiting for each answer."""
        return Pipeline(self._link, in_flight_max)

    def consume(
        self,
        topic: str,
        group: str | None = None,
        *,
        batch: int | None = None,
        partition: int | None = None,
        timeout_ms: int | None = None,
        auto_ack: bool = True,
    ) -> Consumer:
        """Iterate over the messages of a group, for ever or until none came for `timeout_ms`.

        A message is acknowledged when the next one is asked for. If the loop ends by an exception,
        the message that was worked on is given back, in front; so is what was fetched ahead. Use
        it as a context manager, so that `break` counts as done:

            with bus.consume("Orders", "billing") as messages:
                for message in messages:
                    ...

        Leases are extended in the background while you work. `auto_ack=False` leaves settling to
        you: `messages.ack(message)`. `batch` is how many messages are fetched at once: 100, or half
        of the group's window; 1 from a group without acknowledgements, because what that hands out
        is done. A consumer has a connection of its own and belongs to one thread.
        """
        return Consumer(
            self._address,
            self._options,
            functools.partial(
                Consuming,
                topic,
                group or topic,
                batch=batch,
                partition=partition,
                timeout_ms=timeout_ms,
                auto_ack=auto_ack,
            ),
            commands.query(topic, group or topic),
        )

    def watch(
        self,
        topic: str,
        start: Start | None = None,
        *,
        filter: str | None = None,
        partition: int | None = None,
        timeout_ms: int | None = None,
    ) -> Watcher:
        """Iterate over what comes to a topic without being a group: everybody who watches is told
        everything, and nothing changes by it. For ever, or until none came for `timeout_ms`.

            with bus.watch("Orders", "end", filter="eu.*") as messages:
                for message in messages:
                    ...

        `start` is `"end"` (what comes from now on), `"begin"` (all there is), an offset, or offsets
        of all partitions; None is where the group named like the topic stands, or the end.
        `filter` chooses by tag. It begins before this returns. When the connection breaks it goes
        on where it was: nothing is missed and nothing told twice while the broker keeps it;
        `message.skipped` tells how many it had to forget. Raises NotFound when the topic is
        removed, Forbidden when the token does not allow it (any more), ConnectionLost when there
        was no broker for all `retries`. It has a connection of its own.
        """
        options = self._options
        core = Watching(options, random.SystemRandom(), topic, start, filter, partition, timeout_ms)
        return Watcher(self._address, options, core).open()


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


def _piped(make: Callable[P, Request[T]]) -> Callable[Concatenate[Pipeline, P], Pending[T]]:
    @functools.wraps(make)
    def method(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        return self._begin(make(*args, **kwargs))

    return method


class Pipeline:
    """Requests that do not wait for each other. At most `in_flight_max` are unanswered; then the
    next one waits. At the end of the `with` all are answered; the first error is raised there,
    unless its `result` was asked for. Belongs to one thread."""

    def __init__(self, link: Link, in_flight_max: int) -> None:
        self._link = link
        self._max = max(1, in_flight_max)
        self._open: deque[Call[Any]] = deque()
        self._unsent = 0
        self._error: Exception | None = None

    produce = _piped(commands.produce)
    produce_many = _piped(commands.produce_many)
    ack = _piped(commands.ack)
    nack = _piped(commands.nack)
    extend = _piped(commands.extend)
    call = _piped(commands.call)

    def _begin(self, request: Request[T]) -> Pending[T]:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait()
        else:
            self._link.flush()
