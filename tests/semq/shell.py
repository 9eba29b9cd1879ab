"""A program around rules that a test makes up, and platforms that say what a test wants."""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import attrs
from anyio.abc import SocketAttribute, SocketListener, SocketStream

from tests.limits import WAIT_S
from zbus.client.options import Address, Options
from zbus.semq.endpoint.events import (
    Closed,
    Done,
    Effect,
    Event,
    Frame,
    Left,
    Manage,
    Reported,
    Submit,
    Submitted,
    Take,
    Taken,
)
from zbus.semq.endpoint.schema import StoreError
from zbus.semq.program.encryption import Sealing
from zbus.semq.program.frames import RequestFrames, encode_response, limits
from zbus.semq.program.program import Outside, Program
from zbus.semq.program.sockets import Platform
from zbus.wire.heads.heads import Heads

NODE = "1:10008"


class Rules:
    """What is sent is there for whoever takes it; all else is as `answer` says."""

    def __init__(self, answer: Callable[[Event], Iterable[Effect]] = lambda event: ()) -> None:
        self.answer = answer
        self.happened: list[Event] = []
        self.steps = 0
        self.full = ""  # why nothing can be written
        self.due_ms: int | None = None
        self.rows: dict[int, Frame] = {}
        self.held: dict[int, int] = {}
        self.again: set[int] = set()
        self.takes: list[Take] = []
        self._records = itertools.count(1)
        self._news: anyio.Event | None = None

    def step(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        self.steps += 1
        if self.full:
            self._tell()
            raise StoreError(self.full)
        effects = [effect for event in events for effect in self._one(event)]
        effects += self._hand_over()
        self.happened += events
        self._tell()
        return effects

    def next_due(self) -> int | None:
        due_ms, self.due_ms = self.due_ms, None
        return due_ms

    def _tell(self) -> None:
        if self._news is not None:
            anyio.from_thread.run_sync(self._news.set)

    def _one(self, event: Event) -> Iterable[Effect]:
        if isinstance(event, Submit):
            record = next(self._records)
            fields = {"src": NODE, "dst": str(event.destination), "savefwd": str(event.level)}
            fields |= {"app_key": event.app_key, **(event.sealed or {})}
            self.rows[record] = Frame(fields, event.body)
            yield Submitted(event.ask, record, f"mid-{record}")
        elif isinstance(event, Take):
            self.takes.append(event)
        elif isinstance(event, Left):
            self.takes = [take for take in self.takes if take.holder != event.holder]
            for row in [row for row, holder in self.held.items() if holder == event.holder]:
                del self.held[row]
                self.again.add(row)
        elif isinstance(event, Done):
            self.rows.pop(event.row)
            self.held.pop(event.row)
            yield Reported(event.ask, {"row": event.row})
        elif isinstance(event, Manage):
            yield Reported(event.ask, {"command": event.command, **event.fields})
        yield from self.answer(event)

    def _hand_over(self) -> Iterable[Effect]:
        for take in list(self.takes):
            free = [row for row in self.rows if row not in self.held]
            if free:
                self.takes.remove(take)
                self.held[free[0]] = take.holder
                yield Taken(take.ask, free[0], self.rows[free[0]], free[0] in self.again)
            elif not take.wait:
                self.takes.remove(take)
                yield Taken(take.ask)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that shows after a step."""
        with anyio.fail_after(WAIT_S):
            while not condition():
                self._news = anyio.Event()
                if not condition():
                    await self._news.wait()

    def of(self, *kinds: type) -> list[Any]:
        """What happened of these kinds."""
        return [event for event in self.happened if isinstance(event, kinds)]

    async def closed(self, count: int = 1) -> None:
        await self.until(lambda: len(self.of(Closed)) >= count)


@attrs.frozen
class Shell:
    """A program that runs."""

    rules: Rules
    program: Program
    path: str  # of its Unix socket
    direct: int  # its port for other endpoints


@asynccontextmanager
async def shell(
    folder: Path,
    rules: Rules | None = None,
    *,
    port: int | None = None,
    token: str | None = None,
    sealing: Sealing | None = None,
    tls: Any = None,
    body_bytes_max: int = 100_000,
) -> AsyncIterator[Shell]:
    """Run a program, that has a platform at that port of this machine."""
    rules = rules or Rules()
    path = folder / "s"
    listener = await anyio.create_unix_listener(path, mode=0o600)
    endpoints = await anyio.create_tcp_listener(local_host="127.0.0.1")
    platform = None
    if port is not None:
        address = Address("tcp", "127.0.0.1", port)
        platform = Platform(addresses=(address,), options=Options(token=token))
    outside = Outside(
        platform=platform,
        endpoints=endpoints,
        tls=tls,
        applications=listener,
        body_bytes_max=body_bytes_max,
    )
    program = Program(rules, NODE, outside, sealing)
    direct = endpoints.extra(SocketAttribute.local_port)
    async with listener, endpoints, anyio.create_task_group() as tasks:
        tasks.start_soon(program.run)
        yield Shell(rules, program, str(path), direct)
        tasks.cancel_scope.cancel()


class Peer:
    """The other end of a connection that the program made."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._reader = RequestFrames(Heads(limits()), limits())
        self._frames: list[Frame] = []

    async def read(self) -> Frame:
        """The next frame. Raises EndOfStream."""
        with anyio.fail_after(WAIT_S):
            while not self._frames:
                self._frames += self._reader.receive(await self.stream.receive())
        return self._frames.pop(0)

    async def say(
        self, fields: dict[str, str] | None = None, body: bytes = b"", status: int = 200
    ) -> None:
        await self.stream.send(encode_response(Frame(fields or {}, body, status)))

    async def at_end(self) -> bool:
        try:
            await self.read()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
        return False


class FakePlatform:
    """Listens, and hands out one connection after the other."""

    def __init__(self, listener: SocketListener, port: int) -> None:
        self._listener = listener
        self.port = port
        self.peers: list[Peer] = []

    async def accept(self) -> Peer:
        with anyio.fail_after(WAIT_S):
            self.peers.append(Peer(await self._listener.accept()))
        return self.peers[-1]


@asynccontextmanager
async def fake_platform(port: int = 0) -> AsyncIterator[FakePlatform]:
    multi = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    listener: Any = multi.listeners[0]
    async with multi:
        platform = FakePlatform(listener, multi.extra(SocketAttribute.local_port))
        yield platform
    for peer in platform.peers:
        await anyio.aclose_forcefully(peer.stream)


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
