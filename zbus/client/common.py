"""What both clients have in the same words."""

from __future__ import annotations

import functools
import random
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, TypeVar

from zbus.client import commands
from zbus.client.errors import ConnectionLost, Timeout
from zbus.client.links.forking import Unpicklable
from zbus.client.links.request_tracker import Call
from zbus.client.links.shared import AnyLink
from zbus.client.options import Options, resolve
from zbus.client.positions import Start
from zbus.client.readers.consuming import Consuming, Opening
from zbus.client.readers.watching import Watching
from zbus.client.requests import Request
from zbus.protocol.parameters import Retries

T = TypeVar("T")
AnyConsumer = TypeVar("AnyConsumer")
AnyWatcher = TypeVar("AnyWatcher")

FLUSH_COUNT = 64
"""Requests that a pipeline gathers before it sends them."""


async def answer_of(link: AnyLink, call: Call[T]) -> T:
    """Wait for it."""
    if not call.done:
        await link.flush()
        await link.wait(call)
    return call.result()


class PipelineSteps:
    """What the pipelines of both clients do alike."""

    def __init__(self, link: AnyLink, in_flight_max: int) -> None:
        self._link = link
        self._max = max(1, in_flight_max)
        self._open: deque[Call[Any]] = deque()
        self._unsent = 0
        self._error: Exception | None = None

    @property
    def _is_full(self) -> bool:
        """The next request has to wait."""
        return len(self._open) >= self._max or self._error is not None

    async def _make_room(self) -> None:
        if len(self._open) >= self._max:
            await self._drain(self._max - 1)
        if isinstance(self._error, ConnectionLost | Timeout):
            await self._wait()  # raises it: to go on would be in vain

    def _add(self, request: Request[T]) -> Call[T]:
        call = self._link.submit(request)
        self._open.append(call)
        self._unsent += 1
        return call

    async def _flush(self) -> None:
        self._unsent = 0
        await self._link.flush()

    async def _wait(self) -> None:
        await self._drain(0)
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _drain(self, count: int) -> None:
        await self._flush()
        calls = self._open
        while calls and (len(calls) > count or calls[0].done):
            call = calls.popleft()
            if not call.done:
                await self._link.wait(call)
            if call.error is not None and self._error is None:
                self._error = call.error

    async def _end(self, failed: bool) -> None:
        """After an error nothing is waited for."""
        await (self._flush() if failed else self._wait())


class Common(Unpicklable, ABC, Generic[AnyConsumer, AnyWatcher]):
    """Each client says what its consumers and watches are."""

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._addresses, self._options = resolve(url, options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"

    @abstractmethod
    def _consumer(self, opening: Opening) -> AnyConsumer: ...
    @abstractmethod
    def _watcher(self, core: Watching) -> AnyWatcher: ...

    def consume(
        self,
        topic: str,
        group: str | None = None,
        *,
        batch: int | None = None,
        partition: int | None = None,
        timeout_ms: int | None = None,
        auto_ack: bool = True,
        lease_ms: int | None = None,
        standby: bool = False,
        retry: Retries | None = None,
    ) -> AnyConsumer:
        """Iterate over the messages of a group, for ever or until none came for `timeout_ms`.

        A message is acknowledged when the next one is asked for. If the loop ends by an exception
        or is cancelled, the message that was worked on is given back, in front; so is what was
        fetched ahead. Use it as a context manager, so that `break` counts as done:

            with bus.consume("Orders", "billing") as messages:
                for message in messages:
                    ...

        (`async with` and `async for` with the asynchronous client, which needs them.) Leases are
        extended in the background while you work. `auto_ack=False` leaves settling to you:
        `messages.ack(message)`. `batch` is how many messages are fetched at once: 100, or half of
        the group's window; 1 from a group without acknowledgements, because what that delivers is
        done. A consumer has a connection of its own and belongs to one thread or task.

        `lease_ms` is for the leases of this consumer; else the group says how long they are.
        `standby` waits while another reads the exclusive group. `retry` declares first what
        becomes of messages on which the work fails, and a group that leases if there is none:

            retry=Retries(max_attempts=5, backoff_ms=(1_000, 60_000), dead_letter="Orders.dead")
        """
        make = functools.partial(
            Consuming,
            topic,
            group or topic,
            batch=batch,
            partition=partition,
            timeout_ms=timeout_ms,
            auto_ack=auto_ack,
            lease_ms=lease_ms,
            standby=standby,
        )
        query = (
            commands.query(topic, group or topic)
            if retry is None
            else commands.declare(topic, group or topic, ack=True, **retry)
        )
        return self._consumer(Opening(query, retry is not None, make))

    def watch(
        self,
        topic: str,
        start: Start | None = None,
        *,
        filter: str | None = None,
        partition: int | None = None,
        timeout_ms: int | None = None,
    ) -> AnyWatcher:
        """Iterate over what comes to a topic without being a group: every watcher gets
        everything, and nothing changes by it. For ever, or until none came for `timeout_ms`.

            with bus.watch("Orders", "latest", filter="eu.*") as messages:
                for message in messages:
                    ...

        `start` is `"latest"` (what comes from now on), `"earliest"` (all there is), an offset,
        offsets of all partitions, or a time; None is where the group named like the topic stands,
        or the end.
        `filter` chooses by tag. It begins before this returns; with the asynchronous client, which
        needs `async with`, it begins there. When the connection breaks it goes on where it was:
        nothing is missed and nothing sent twice while the broker keeps it; `message.skipped` tells
        how many it had to forget. Raises NotFound when the topic is removed, Forbidden when the
        token does not allow it (any more), ConnectionLost when there was no broker for all
        `retries`. It has a connection of its own.
        """
        core = Watching(
            self._options,
            random.SystemRandom(),
            topic,
            start,
            filter,
            partition,
            timeout_ms,
            self._addresses,
        )
        return self._watcher(core)
