"""A connection for trio and asyncio (through anyio), made again when it breaks.

One task receives for all; the caller sends. (`RequestTracker` is the core; ADR 23.)
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute, TaskGroup

from zbus.client.errors import ConnectionLost
from zbus.client.links.forking import disown, follow_forks, require_own
from zbus.client.links.request_tracker import Call, RequestTracker
from zbus.client.messages import Delivery
from zbus.client.options import Address, Addresses, Options
from zbus.client.requests import Pulling, Request

T = TypeVar("T")

RECEIVE_BYTES = 64 << 10

_SMALL_BYTES = 32 << 10
"""The system takes this much at once, unless the broker has not read for long."""

CLOSED_EARLY = "it was closed during the TLS handshake"

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


async def open_stream(address: Address, options: Options) -> ByteStream:
    """A connection. Raises OSError."""
    with anyio.move_on_after(options.connect_timeout_s):
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


def in_asyncio() -> bool:
    """It is asyncio's event loop that runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def uncancelled(sends: Coroutine[Any, Any, None]) -> None:
    """Do this to its end, and be cancelled only then. Tasks of asyncio can be cancelled (by
    `asyncio.timeout`) whatever anyio shields."""
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


class AsyncLink:
    """It works between `start` and `stop`."""

    def __init__(self, addresses: Addresses, options: Options) -> None:
        self._addresses = addresses
        self._options = options
        self._closed = False
        self._running: tuple[TaskGroup, anyio.CancelScope] | None = None
        self._parent = 0  # the process that has the connection, and forked this one
        self._begin()
        follow_forks(self)

    def _begin(self) -> None:
        self._exchange = RequestTracker(self._options, random.SystemRandom(), self._addresses)
        self._stream: ByteStream | None = None
        self._sending = anyio.Lock()
        self._wanted = anyio.Event()  # a request waits for a connection

    def forked(self, parent: int) -> None:
        """One that works belongs to an event loop, which stays in the parent; others begin anew."""
        if self._running is not None:
            self._parent = self._parent or parent
        disown_stream(self._stream)
        self._exchange.forked(parent)
        self._begin()

    @property
    def inherited(self) -> bool:
        """It belongs to the process that forked this one."""
        return self._parent != 0

    def require_own(self, what: str = "client") -> None:
        """Raise RuntimeError if the connection belongs to the process that forked this one."""
        require_own(what, self._parent)

    async def start(self) -> TaskGroup:
        """Receive from now on. Returns the group of that task: more can be run in it."""
        tasks, receiving = self._running = anyio.create_task_group(), anyio.CancelScope(shield=True)
        await tasks.__aenter__()
        tasks.start_soon(self._receive, receiving)
        return tasks

    async def stop(self) -> None:
        """Close the connection, and end all tasks of the group."""
        with anyio.CancelScope(shield=True):
            await self.close()
        assert self._running is not None, "it was not started"
        tasks, receiving = self._running
        receiving.cancel()
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)
        self._running = None

    async def open(self) -> None:
        """Connect, with one attempt for each address. Raises ConnectionLost."""
        self.require_own()
        errors = []
        for _ in self._addresses:
            if (why := await self._connect()) is None:
                return
            errors.append(why)
        raise ConnectionLost("; ".join(errors))

    async def close(self) -> None:
        self._closed = True
        self._exchange.close()
        await self._drop()

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
        if self._exchange.has_news and self._running is not None and not self._closed:
            self._running[0].start_soon(self.flush)

    def now_s(self) -> float:
        """By the clock of the event loop."""
        return anyio.current_time()

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
        self.require_own()
        if self._closed:
            raise ConnectionLost("the client is closed")
        call = self._exchange.submit(request, anyio.current_time())
        if self._stream is None:
            self._wanted.set()
        return call

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
            if in_asyncio():
                await uncancelled(stream.send(data))
            else:
                await stream.send(data)
        if sending.cancelled_caught:
            raise anyio.BrokenResourceError("the broker does not read")

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
        exchange = self._exchange
        with receiving:
            while True:
                stream = self._stream
                if stream is None:
                    if not len(exchange):
                        self._wanted = anyio.Event()
                        await self._wanted.wait()
                    await anyio.sleep(max(0.0, exchange.attempts.retry_at_s - anyio.current_time()))
                    if await self._connect() is None:
                        await self.flush()
                    continue
                try:
                    data = await stream.receive(RECEIVE_BYTES)
                except BROKEN as error:
                    await self._lose(stream, str(error) or "it was closed")
                else:
                    if not exchange.receive(data):
                        await self._lose(stream, "it was closed")
                    self._flush_soon()

    async def _connect(self) -> str | None:
        try:
            stream = await open_stream(self._exchange.attempts.address, self._options)
        except OSError as error:
            why = self._exchange.attempts.not_made(error)
            self._exchange.lost(anyio.current_time(), why)
            return why
        self._stream = stream
        self._exchange.connected()
        return None

    async def _lose(self, stream: ByteStream, why: str) -> None:
        if stream is self._stream:
            self._stream = None
            self._exchange.lost(anyio.current_time(), self._exchange.attempts.lost(why))
            await anyio.aclose_forcefully(stream)

    async def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await anyio.aclose_forcefully(stream)
