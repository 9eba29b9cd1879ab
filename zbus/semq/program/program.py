"""The endpoint program: connections, applications and a clock around the endpoint's rules.

    platform ─┐                                               ┌─ frames
    endpoints ├─► Arrived ─► one step in a thread, one commit ──┼─ connections made and ended
    applications                                              └─ answers to applications

There is one step at a time, with all that came during the one before it: under load many messages
share a transaction. When one cannot be committed (the disk is full, say), nothing in it has
happened: what applications asked is refused, links that something came over end, so that their
other ends say it again, and what cannot be said again waits for the next step.
"""

from __future__ import annotations

import logging
import sqlite3
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import anyio
import anyio.to_thread
import attrs
from anyio.abc import Listener, SocketStream, TaskGroup

from zbus.semq.endpoint.event_queue import EventQueue
from zbus.semq.endpoint.events import (
    Came,
    Close,
    Closed,
    Connect,
    Done,
    Effect,
    Event,
    Happened,
    Left,
    Manage,
    Opened,
    Refused,
    Submit,
    Take,
    Transmit,
)
from zbus.semq.endpoint.schema import StoreError
from zbus.semq.program.encryption import Sealing
from zbus.semq.program.frames import BODY_BYTES_MAX, limits
from zbus.semq.program.local import Local
from zbus.semq.program.sockets import Platform, Sockets

AGAIN_S: Final = 1.0
"""After a step that failed. Whatever happens in between is tried at once."""

STOP_S: Final = 3.0
"""For what has been said, and for what was said of it, when the program stops."""

STORAGE_ERRORS: Final = (StoreError, sqlite3.Error, OSError)
"""The transaction was not committed. Anything else that a step raises is a mistake in the program,
which ends it: what is on the disk is as it should be, and the next start begins from there."""

log = logging.getLogger("zbus.semq")


class Engine(Protocol):
    """The rules: `zbus.semq.endpoint.endpoint.Endpoint`."""

    def step(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        """One transaction. What is to be done when it is durable."""
        ...

    def next_due(self) -> int | None:
        """When there is something to do without an event."""
        ...


class Clock:
    """Milliseconds since 1970, that go on evenly, whatever is done to the wall clock."""

    def __init__(self) -> None:
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return (self._ahead_ns + time.monotonic_ns()) // 1_000_000


@attrs.frozen(kw_only=True)
class Outside:
    """What the program is connected with."""

    platform: Platform | None = None
    endpoints: Listener[SocketStream] | None = None
    """Where others connect directly."""
    tls: ssl.SSLContext | None = None
    """What is spoken there."""
    applications: Listener[SocketStream] | None = None
    body_bytes_max: int = BODY_BYTES_MAX


class Program:
    """`run` goes on until `stop`, or until it is cancelled."""

    def __init__(
        self,
        engine: Engine,
        node: str,
        outside: Outside,
        sealing: Sealing | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._engine = engine
        self._node = node
        self._outside = outside
        self._sealing = sealing or Sealing()
        self._now_ms = now_ms or Clock()
        self._arrived = EventQueue()
        bounds = limits(outside.body_bytes_max)
        self._bounds = bounds
        self._sockets = Sockets(self._arrived, bounds, outside.platform)
        self._stopping = anyio.Event()
        self._stepping = False
        self._quiet = anyio.Event()  # all has been dealt with, after `stop`
        self._failed = ""  # why the last step could not be committed
        self._unknown: set[int] = set()  # links that the endpoint never heard of, because of that

    def stop(self) -> None:
        """End `run`, in good order."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve. The database is the caller's, before and after."""
        outside = self._outside
        async with anyio.create_task_group() as tasks:
            local = Local(self._node, self._arrived, self._sealing, self._bounds, tasks)
            tasks.start_soon(self._step_for_ever, local, tasks)
            if outside.applications is not None:
                tasks.start_soon(local.serve, outside.applications)
            if outside.endpoints is not None:
                tasks.start_soon(self._sockets.accept, outside.endpoints, outside.tls)
            tasks.start_soon(self._sockets.keep_platform)
            await self._stopping.wait()
            await self._part(local)
            tasks.cancel_scope.cancel()

    async def _part(self, local: Local) -> None:
        """What has come is still dealt with, and what is said of that is still sent."""
        if len(self._arrived) or self._stepping:
            with anyio.move_on_after(STOP_S):
                await self._quiet.wait()
        self._sockets.send_goodbye()
        local.send_goodbye()
        with anyio.move_on_after(STOP_S):
            for connection in (*self._sockets.connections, *local.connections):
                await connection.ended.wait()

    # -- steps --------------------------------------------------------------------------------

    async def _step_for_ever(self, local: Local, tasks: TaskGroup) -> None:
        kept: list[Event] = []  # of a step that failed
        due_ms: int | None = 0  # the first one is for what was left by the last run
        while True:
            self._stepping = False
            if self._stopping.is_set() and not len(self._arrived):
                self._quiet.set()
            await self._arrived.wait(self._pause_s(due_ms, bool(kept)))
            await self._arrived.gather()
            self._stepping = True
            events = kept + [event for event in self._arrived.take() if not self._is_stray(event)]
            now_ms = self._now_ms()
            if not events and (due_ms is None or due_ms > now_ms):
                continue
            try:
                effects, due_ms = await anyio.to_thread.run_sync(self._step, now_ms, events)
            except STORAGE_ERRORS as error:
                self._report_failed(str(error))
                kept = self._undone(events, str(error), local)
                due_ms = due_ms if due_ms is None else max(due_ms, now_ms + int(1_000 * AGAIN_S))
                continue
            if self._failed:
                log.warning("the database is written again")
                self._failed = ""
            kept = []
            for effect in effects:
                self._release(effect, local, tasks)

    def _pause_s(self, due_ms: int | None, kept: bool) -> float | None:
        if due_ms is None:
            return AGAIN_S if kept else None
        pause_s = max(0.0, (due_ms - self._now_ms()) / 1_000)
        return min(pause_s, AGAIN_S) if kept else pause_s

    def _step(self, now_ms: int, events: list[Event]) -> tuple[list[Effect], int | None]:
        """In a thread: it waits for the disk."""
        return self._engine.step(now_ms, events), self._engine.next_due()

    def _release(self, effect: Effect, local: Local, tasks: TaskGroup) -> None:
        """It is durable: do it."""
        if isinstance(effect, Transmit):
            self._sockets.send(effect.link, effect.frame)
        elif isinstance(effect, Close):
            self._sockets.close(effect.link, effect.why)
        elif isinstance(effect, Connect):
            tasks.start_soon(self._sockets.connect, effect)
        else:
            if isinstance(effect, Happened):
                level = logging.WARNING if effect.kind in ("dead", "alarm") else logging.DEBUG
                fields = {"record": effect.record, "why": effect.text}
                log.log(level, "message %s", effect.kind, extra=fields)
            local.answer(effect)

    # -- a step that could not be committed -----------------------------------------------------

    def _report_failed(self, why: str) -> None:
        if why != self._failed:  # once, however long it lasts
            log.error("the database cannot be written: nothing is taken", extra={"why": why})
        self._failed = why

    def _is_stray(self, event: Event) -> bool:
        """It is of a link whose beginning was lost."""
        if not isinstance(event, Came | Closed) or event.link not in self._unknown:
            return False
        if isinstance(event, Closed):
            self._unknown.discard(event.link)
        return True

    def _undone(self, events: list[Event], why: str, local: Local) -> list[Event]:
        """Nothing of these has happened. Return those that are for the next step."""
        kept: list[Event] = []
        takes: dict[int, Take] = {}
        lost: set[int] = set()  # links over which something came: its sender has to say it again
        for event in events:
            if isinstance(event, Opened):
                self._unknown.add(event.link)
                lost.add(event.link)
            elif self._is_stray(event):
                pass
            elif isinstance(event, Came):
                lost.add(event.link)
            elif isinstance(event, Submit | Done | Manage) or (
                isinstance(event, Take) and not event.wait
            ):
                local.answer(Refused(event.ask, 507, f"the database cannot be written: {why}"))
            elif isinstance(event, Take):
                takes[event.holder] = event
            elif not isinstance(event, Left) or takes.pop(event.holder, None) is None:
                kept.append(event)
        for link in lost:
            self._sockets.close(link, "the database cannot be written")
        return [*kept, *takes.values()]
