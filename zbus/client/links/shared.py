"""Code of both clients that waits is written once: as coroutines that wait by their link alone.

An `AsyncLink` suspends the task meanwhile. `BlockingLink` stands for a `Link`, and has done what it
is asked for when it returns: such a coroutine is never suspended, and `finish` runs it in one go.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from zbus.client.links.link import Connection, Link
from zbus.client.links.request_tracker import Call
from zbus.client.requests import Request

P = ParamSpec("P")
T = TypeVar("T")


class AnyConnection(Protocol):
    """What shared code may ask of a connection."""

    @property
    def closed(self) -> bool: ...
    def now_s(self) -> float: ...
    async def flush(self) -> None: ...
    async def drive(self, until_s: float = math.inf) -> None: ...


class AnyLink(Protocol):
    """The same of a link."""

    def now_s(self) -> float: ...
    def submit(self, request: Request[T]) -> Call[T]: ...
    def last_time(self, call: Call[Any]) -> None: ...
    async def flush(self) -> None: ...
    async def wait(self, call: Call[Any], until_s: float | None = None) -> bool: ...
    async def run(self, request: Request[T]) -> T: ...


class Turns:
    """One coroutine runs at a time, as tasks of an event loop do: another thread has its turn while
    this one waits."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self.now_s = time.monotonic

    def forked(self) -> None:
        """In a child the thread whose turn it was may not exist."""
        self._turn = threading.Lock()

    def finish(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run it to its end."""
        with self._turn:
            try:
                steps.send(None)
            except StopIteration as end:
                result: T = end.value
                return result
        raise AssertionError("it waits for something else than its link")

    def _meanwhile(self, do: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what takes time, while it is the turn of others."""
        try:
            self._turn.release()
            return do(*args, **kwargs)
        finally:
            self._turn.acquire()


class BlockingConnection(Turns):
    """A `Connection` that shared code waits by."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__()
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    async def flush(self) -> None:
        self._meanwhile(self._connection.flush)

    async def drive(self, until_s: float = math.inf) -> None:
        self._meanwhile(self._connection.drive, until_s)


class BlockingLink(Turns):
    """A `Link` that shared code waits by."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.submit = link.submit
        self.last_time = link.last_time

    async def flush(self) -> None:
        self._meanwhile(self._link.flush)

    async def wait(self, call: Call[Any], until_s: float | None = None) -> bool:
        return self._meanwhile(self._link.wait, call, until_s)

    async def run(self, request: Request[T]) -> T:
        return self._meanwhile(self._link.run, request)
