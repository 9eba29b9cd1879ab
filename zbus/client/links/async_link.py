"""A connection for trio and asyncio (through anyio), made again when it breaks.

One task receives for all; the caller sends. (`RequestTracker` is the core; ADR 23.)
"""

from __future__ import annotations

import math
import random
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute, TaskGroup

from zbus.client.errors import ConnectionLost
from zbus.client.links.async_backend import running_flavour
from zbus.client.links.exchange import Exchange
from zbus.client.links.forking import disown, follow_forks, require_own
from zbus.client.links.request_tracker import Call, RequestTracker
from zbus.client.messages import Delivery
from zbus.client.options import Address, Addresses, Options
from zbus.client.requests import Pulling, Request

T = TypeVar("T")
AnyExchange = TypeVar("AnyExchange", bound=Exchange)

RECEIVE_BYTES = 64 << 10

_SMALL_BYTES = 32 << 10
"""The system takes this much at once, unless the broker has not read for long."""

CLOSED_EARLY = "it was closed during the TLS handshake"

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


async def open_stream(
    address: Address, options: Options, timeout_s: float | None = None
) -> ByteStream:
    """A connection. Raises OSError."""
    with anyio.move_on_after(options.connect_timeout_s if timeout_s is None else timeout_s):
        if address.kind == "unix":
            return await anyio.connect_unix(address.host)
        if address.kind == "tcp":
            return await anyio.connect_tcp(address.host, address.port)
        try:
            return await anyio.connect_tcp(
                address.host,
                address.port,
                tls=True,
                ssl_context=options.tls(),
                tls_hostname=address.host,
                tls_standard_compatible=False,
            )
        except anyio.EndOfStream:
            raise OSError(CLOSED_EARLY) from None
        except anyio.BrokenResourceError as error:
            cause = error.__cause__
            raise cause if isinstance(cause, ssl.SSLError) else OSError(CLOSED_EARLY) from None
    raise TimeoutError("timed out")


async def uncancelled(sends: Coroutine[Any, Any, None]) -> None:
    """Do this to its end, and be cancelled only then. Tasks of asyncio can be cancelled (by
    `asyncio.timeout`) whatever anyio shields."""
    import asyncio  # here: only who uses it waits for it to be imported

    task = asyncio.ensure_future(sends)
    cancelled: BaseException | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def disown_stream(stream: ByteStream | None) -> None:
    """In a child: the connection is the parent's alone."""
    if stream is not None:
        connection = stream.extra(SocketAttribute.raw_socket, None)
        if connection is not None:
            disown(connection.fileno())


class AsyncConnection(Generic[AnyExchange]):
    """One connection, made again when it breaks, and what is exchanged on it."""

    def __init__(self, options: Options, make: Callable[[], AnyExchange]) -> None:
        self._options = options
        self._make = make
        self.closed = False
        self._begin()
        follow_forks(self)

    def _begin(self) -> None:
        self._exchange = self._make()
        self._stream: ByteStream | None = None
        self._sending = anyio.Lock()
        self._quiet_s = 0.0  # how long it was waited for what comes, in vain

    def forked(self, parent: int) -> None:
        """In a child: what was under way is the parent's."""
        disown_stream(self._stream)
        self._exchange.forked(parent)
        self._begin()

    def now_s(self) -> float:
        """By the clock of the event loop."""
        return anyio.current_time()

    async def close(self) -> None:
        self.closed = True
        self._exchange.close()
        await self._drop()

    async def flush(self) -> None:
        """Send what is to be sent. What cannot be is sent by the next connection."""
        exchange = self._exchange
        while exchange.out_count and self._stream is not None:
            async with self._sending:
                # Cancelled before anything is sent: then nothing is half sent.
                await anyio.lowlevel.checkpoint_if_cancelled()
                stream = self._stream
                if stream is None or not exchange.out_count:
                    return
                await self._send(stream, exchange.take())

    async def _send(self, stream: ByteStream, data: bytes) -> None:
        """A caller whose time is over may not end the sending of what is small: the connection
        would end with it, and with the connection what comes for pulls of groups without
        acknowledgements."""
        try:
            if len(data) <= _SMALL_BYTES:
                await self._send_whole(stream, data)
                return
            await stream.send(data)
        except BROKEN as error:
            await self._lose(stream, str(error) or type(error).__name__)
        except BaseException:
            if len(data) <= _SMALL_BYTES:
                raise  # it is sent
            # Half of it may be sent: nothing can follow on this connection.
            with anyio.CancelScope(shield=True):
                await self._lose(stream, "a request was cancelled while it was sent")
            raise

    async def _send_whole(self, stream: ByteStream, data: bytes) -> None:
        """Do not end before it is sent, unless the broker does not read."""
        with anyio.move_on_after(self._options.timeout_s, shield=True) as sending:
            if running_flavour() == "asyncio":
                await uncancelled(stream.send(data))
            else:
                await stream.send(data)
        if sending.cancelled_caught:
            raise anyio.BrokenResourceError("the broker does not read")

    async def drive(self, until_s: float = math.inf) -> None:
        """Do the next thing that brings all forward: pause, connect, or receive."""
        exchange, stream, now_s = self._exchange, self._stream, anyio.current_time()
        if stream is None:
            pause_s = min(exchange.attempts.retry_at_s, until_s) - now_s
            if pause_s > 0:
                await anyio.sleep(pause_s)
            elif await self._connect(until_s) is None:
                await self.flush()
            return
        data, why = b"", ""
        wait_s = max(0.0, min(until_s - now_s, exchange.patience_s - self._quiet_s))
        with anyio.move_on_after(wait_s) as waiting:
            try:
                data = await stream.receive(RECEIVE_BYTES)
            except BROKEN as error:
                why = str(error)
        self._quiet_s = self._quiet_s + wait_s if waiting.cancelled_caught else 0.0
        if waiting.cancelled_caught:
            if self._quiet_s < exchange.patience_s:
                return
            why = f"nothing came for {exchange.patience_s:g} s"
        if not (data and exchange.receive(data)):
            await self._lose(stream, why)

    async def _connect(self, until_s: float = math.inf) -> str | None:
        """Returns why there is no connection."""
        attempts, patience_s = self._exchange.attempts, self._options.connect_timeout_s
        timeout_s = max(0.001, min(patience_s, until_s - anyio.current_time()))
        try:
            stream = await open_stream(attempts.address, self._options, timeout_s)
        except OSError as error:
            why, now_s = attempts.not_made(error), anyio.current_time()
            # Who had less patience than an attempt is due says nothing about the broker.
            if timeout_s == patience_s or now_s < until_s:
                self._exchange.lost(now_s, why)
            return why
        self._stream = stream
        self._quiet_s = 0.0
        self._exchange.connected()
        return None

    async def _lose(self, stream: ByteStream, why: str) -> None:
        if stream is self._stream:
            self._exchange.lost(anyio.current_time(), self._exchange.attempts.lost(why))
            await self._drop()

    async def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)


class AsyncLink(AsyncConnection[RequestTracker]):
    """The calls under way on a connection. It works between `start` and `stop`."""

    def __init__(self, addresses: Addresses, options: Options) -> None:
        make = partial(RequestTracker, options, random.SystemRandom(), addresses)
        self._running: tuple[TaskGroup, anyio.CancelScope] | None = None
        self._parent = 0  # the process that has the connection, and forked this one
        super().__init__(options, make)

    def _begin(self) -> None:
        super()._begin()
        self._wanted = anyio.Event()  # a request waits for a connection

    def forked(self, parent: int) -> None:
        """One that works belongs to an event loop, which stays in the parent; others begin anew."""
        if self._running is not None:
            self._parent = self._parent or parent
        super().forked(parent)

    async def start(self) -> TaskGroup:
        """Receive from now on. Returns the group of that task: more can be run in it."""
        tasks, receiving = self._running = anyio.create_task_group(), anyio.CancelScope(shield=True)
        await tasks.__aenter__()
        tasks.start_soon(self._receive, receiving)
        return tasks

    async def stop(self) -> None:
        """Close the connection, and end all tasks of the group."""
        await self.close()
        assert self._running is not None, "it was not started"
        tasks, receiving = self._running
        receiving.cancel()
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)
        self._running = None

    async def open(self) -> None:
        """Connect, with one attempt for each address. Raises ConnectionLost."""
        require_own("client", self._parent)
        errors = []
        for _ in self._exchange.attempts.addresses:
            if (why := await self._connect()) is None:
                return
            errors.append(why)
        raise ConnectionLost("; ".join(errors))

    async def run(self, request: Request[T]) -> T:
        """Send, wait for the answer, return what it means."""
        call = self.submit(request)
        try:
            await self.flush()
            await self.wait(call)
            return call.result()
        except BaseException:
            self._exchange.give_up(call, ConnectionLost("it was given up", call.sent > 0))
            self._flush_soon()
            raise

    def _flush_soon(self) -> None:
        """Send what an answer or a cancelled caller leaves to be sent: by a task of its own, since
        neither may wait."""
        if self._exchange.has_news and self._running is not None and not self.closed:
            self._running[0].start_soon(self.flush)

    def last_time(self, call: Call[Any]) -> None:
        """If its answer is lost, or it was not sent yet, it is not sent again."""
        self._exchange.last_time(call)

    def take_kept(self, pulling: Pulling) -> list[Delivery]:
        """See `RequestTracker`."""
        return self._exchange.take_kept(pulling)

    def put_back(self, pulling: Pulling, deliveries: list[Delivery]) -> None:
        """See `RequestTracker`."""
        self._exchange.put_back(pulling, deliveries)

    def submit(self, request: Request[T]) -> Call[T]:
        """Begin a request; it is sent by `flush`."""
        require_own("client", self._parent)
        if self.closed:
            raise ConnectionLost("the client is closed")
        call = self._exchange.submit(request, anyio.current_time())
        if self._stream is None:
            self._wanted.set()
        return call

    async def wait(self, call: Call[Any], until_s: float | None = None) -> bool:
        """Wait until the call is done, or until a time; whether it is done."""
        if not call.done and self._exchange.out_count:
            await self.flush()  # the task that was to do it was cancelled
        if not call.done:
            event = anyio.Event()
            call.waiter = event.set
            end_s = call.deadline_s if until_s is None else min(call.deadline_s, until_s)
            with anyio.move_on_after(max(0.0, end_s - anyio.current_time())):
                await event.wait()
            if not call.done:
                self._exchange.expire(anyio.current_time())
        return call.done

    async def _receive(self, receiving: anyio.CancelScope) -> None:
        """Connect when a caller needs it, and receive. A cancelled caller may still, shielded, send
        a request and get its answer."""
        with receiving:
            while True:
                if self._stream is None and not len(self._exchange):
                    self._wanted = anyio.Event()
                    await self._wanted.wait()
                await self.drive()
                self._flush_soon()
