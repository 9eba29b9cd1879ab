"""The blocking client: plain sockets, no thread in the background, safe to share between threads.

Whoever waits for an answer reads for all that wait. So one thread pays nothing for the others that
might be there, and many threads share one connection. (`Exchange` is the core; ADR 23.)
"""

from __future__ import annotations

import functools
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from zbus.client import commands
from zbus.client.consuming import Consuming
from zbus.client.errors import ConnectionLost, NotFound, Timeout, ZbusError
from zbus.client.exchange import Call, Exchange
from zbus.client.messages import Delivery
from zbus.client.options import Address, Options, parse_url
from zbus.client.requests import Request
from zbus.client.tls import TlsSocket

P = ParamSpec("P")
T = TypeVar("T")

RECEIVE_BYTES = 64 << 10
FLUSH_COUNT = 64
"""Requests that a pipeline gathers before it sends them."""

LEAVE_S = 5.0
"""How long a consumer that is closed waits for the end of its pull."""


def open_socket(address: Address, options: Options) -> socket.socket | TlsSocket:
    """A connection. Raises OSError (TLS errors are OSErrors too)."""
    if address.kind == "unix":
        unix = socket.socket(socket.AF_UNIX)
        try:
            unix.settimeout(options.connect_timeout_s)
            unix.connect(address.host)
        except BaseException:
            unix.close()
            raise
        return unix
    connection = socket.create_connection(address[1:], options.connect_timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.kind == "tcp":
        return connection
    return TlsSocket(connection, options.tls(), address.host)


class Link:
    """One connection, made again when it breaks, and the calls under way on it."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options
        self._exchange = Exchange(options, random.SystemRandom())
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0  # threads in `_changed`
        self._driving = False  # a thread reads, or makes a connection, for all
        self._sending = threading.Lock()
        self._socket: socket.socket | TlsSocket | None = None
        self._timeout_s = -1.0  # of the socket
        self._closed = False

    def open(self) -> None:
        """Connect, once. Raises ConnectionLost."""
        with self._changed:
            error = self._connect()
        if error is not None:
            raise ConnectionLost(error)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._exchange.close()
            self._drop()
            self._changed.notify_all()

    def run(self, request: Request[T]) -> T:
        """Send, wait for the answer, return what it means."""
        call = self.submit(request)
        self.flush()
        self.wait(call)
        return call.result()

    def submit(self, request: Request[T]) -> Call[T]:
        """Begin a request; it is sent by `flush`, or by whoever waits."""
        with self._changed:
            if self._closed:
                raise ConnectionLost("the client is closed")
            return self._exchange.submit(request, time.monotonic())

    def flush(self) -> None:
        """Send what is to be sent. What cannot be is sent by the next connection."""
        with self._sending:
            with self._changed:
                connection = self._socket
                data = self._exchange.take() if connection is not None else b""
            if connection is None or not data:
                return
            try:
                connection.sendall(data)
            except OSError as error:
                self._broke(connection, error)

    def wait(self, call: Call[Any], until_s: float | None = None) -> bool:
        """Wait until the call is done, or until a time; whether it is done."""
        changed, exchange = self._changed, self._exchange
        with changed:
            while not call.done:
                now_s = time.monotonic()
                end_s = call.deadline_s if until_s is None else min(call.deadline_s, until_s)
                if now_s >= end_s:
                    exchange.expire(now_s)
                    return call.done
                if self._driving:
                    self._waiting += 1
                    try:
                        changed.wait(end_s - now_s)
                    finally:
                        self._waiting -= 1
                    continue
                self._driving = True
                try:
                    self._drive(now_s, end_s)
                finally:
                    self._driving = False
                    if self._waiting:
                        changed.notify_all()
        return True

    def _drive(self, now_s: float, end_s: float) -> None:
        """Do the next thing that brings all forward: pause, connect, or receive. The lock is held,
        but not while this waits."""
        exchange, changed = self._exchange, self._changed
        connection = self._socket
        if connection is None:
            pause_s = min(exchange.retry_at_s, end_s) - now_s
            if pause_s > 0:
                changed.wait(pause_s)
            elif self._connect() is None:
                changed.release()
                try:
                    self.flush()
                finally:
                    changed.acquire()
            return
        changed.release()
        why: OSError | None = None
        try:
            # A call's first wait is as long as the last one's, mostly: then nothing is to be set.
            left_s = end_s - now_s
            if not left_s <= self._timeout_s <= left_s + 0.05:
                self._timeout_s = left_s + 0.05
                connection.settimeout(self._timeout_s)
            data = connection.recv(RECEIVE_BYTES)
        except TimeoutError:
            return
        except OSError as error:
            data, why = b"", error
        finally:
            changed.acquire()
        if connection is self._socket and not (data and exchange.receive(data)):
            self._lose(why)

    def _connect(self) -> str | None:
        """The lock is held, and is not while this waits. Returns why there is no connection."""
        self._changed.release()
        connection, why = None, ""
        try:
            connection = open_socket(self._address, self._options)
        except OSError as error:
            why = f"no connection to {self._address}: {error.strerror or error}"
        finally:
            self._changed.acquire()
        if connection is None:
            self._exchange.lost(time.monotonic(), why)
        elif self._closed:
            connection.close()
            why = "the client was closed"
        else:
            self._socket = connection
            self._timeout_s = -1.0
            self._exchange.connected()
            return None
        return why

    def _broke(self, connection: socket.socket | TlsSocket, error: OSError) -> None:
        with self._changed:
            if connection is self._socket:
                self._lose(error)
                self._changed.notify_all()

    def _lose(self, error: OSError | None) -> None:
        self._drop()
        why = "it was closed" if error is None else error.strerror or str(error)
        self._exchange.lost(time.monotonic(), f"lost the connection to {self._address}: {why}")

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            try:
                # Wakes a thread that reads from it.
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()


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
        self._address = parse_url(url)
        self._options = options
        self._link = Link(self._address, options)

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


class Consumer:
    """The messages of a group, one after another. Made by `consume`."""

    def __init__(
        self,
        address: Address,
        options: Options,
        make: Callable[..., Consuming],
        query: Request[dict[str, Any]],
    ) -> None:
        self._link = Link(address, options)
        self._make = make
        self._query = query
        self._core: Consuming | None = None
        self._lock = threading.Lock()  # of the core: the keeper looks at it too
        self._pull: Call[list[Delivery]] | None = None
        self._sent: deque[Call[Any]] = deque()  # acknowledgements on their way
        self._keeper: threading.Thread | None = None
        self._stop = threading.Event()
        self._managed = False
        self._closed = False

    def __enter__(self) -> Self:
        self._managed = True
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(kind is not None, quiet=kind is not None)

    def __iter__(self) -> Iterator[Delivery]:
        self._open()
        try:
            while (delivery := self.next()) is not None:
                yield delivery
        except GeneratorExit:
            # Whether the body came to its end is not known here, so it is done again.
            if not self._managed:
                self._close(failed=True, quiet=True)
            raise
        except BaseException:
            if not self._managed:
                self._close(failed=True, quiet=True)
            raise
        if not self._managed:
            self.close()

    def _open(self) -> Consuming:
        core = self._core
        if core is None:
            core = self._core = self._make(info=self._link.run(self._query))
            if core.leases:
                self._keeper = threading.Thread(target=self._keep, name="zbus-lease", daemon=True)
                self._keeper.start()
        return core

    def next(self) -> Delivery | None:
        """The next message, and the one before is done; None when `timeout_ms` is over."""
        core = self._open()
        while True:
            now_s = time.monotonic()
            with self._lock:
                delivery = core.step(now_s)
                requests = core.requests(now_s)
                finished = delivery is None and core.finished(now_s)
                pull = None if finished else core.pull(now_s)
            for request in requests:
                self._sent.append(self._link.submit(request))
            if pull is not None:
                self._pull = self._link.submit(pull)
            if requests or pull is not None:
                self._link.flush()
            self._check(wait=finished)
            if delivery is not None or finished:
                return delivery
            assert self._pull is not None
            self._take(self._pull)

    def _take(self, call: Call[list[Delivery]], until_s: float | None = None) -> None:
        assert self._core is not None
        done = self._link.wait(call, until_s)
        self._pull = None
        try:
            deliveries = call.result() if done else []
        except BaseException:
            with self._lock:
                self._core.pull_failed()
            raise
        with self._lock:
            self._core.took(deliveries)

    def ack(self, delivery: Delivery) -> None:
        """This message is done, whatever becomes of the loop."""
        core = self._open()
        with self._lock:
            core.ack(delivery, time.monotonic())

    def nack(self, delivery: Delivery, *, delay_ms: int = 0, front: bool = True) -> None:
        """This message is to come again: at once, or after `delay_ms`."""
        core = self._open()
        with self._lock:
            request = core.nack(delivery, delay_ms, front)
        if request is not None:
            _unless_gone(lambda: self._link.run(request))

    def close(self) -> None:
        """Acknowledge what is done, give back what nobody has seen, leave the group."""
        self._close(failed=False, quiet=False)

    def _close(self, failed: bool, quiet: bool) -> None:
        """`quiet`: another error is on its way already."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        try:
            if self._core is not None:
                self._leave(self._core, failed)
        except ZbusError:
            if not quiet:
                raise
        finally:
            self._link.close()
            if self._keeper is not None:
                self._keeper.join()

    def _leave(self, core: Consuming, failed: bool) -> None:
        with self._lock:
            requests = core.close()
        for request in requests:
            self._sent.append(self._link.submit(request))
        self._link.flush()
        if self._pull is not None:
            # Messages may have been on their way to us.
            try:
                self._take(self._pull, time.monotonic() + LEAVE_S)
            except ZbusError:
                pass
        with self._lock:
            requests = core.give_back(failed, time.monotonic())
        calls = [self._link.submit(request) for request in requests]
        self._link.flush()
        self._check(wait=True)
        for call in calls:
            self._link.wait(call)
            _unless_gone(call.result)

    def _check(self, wait: bool) -> None:
        """Whether acknowledgements went well."""
        sent = self._sent
        while sent and (wait or sent[0].done):
            if not sent[0].done:
                self._link.wait(sent[0])
            sent.popleft().result()

    def _keep(self) -> None:
        """The thread that keeps leases while the user works."""
        core = self._core
        assert core is not None
        while not self._stop.wait(core.keep_every_s):
            with self._lock:
                requests = [*core.flush(), *core.extensions()]
            for request in requests:
                try:
                    self._link.run(request)
                except (NotFound, ConnectionLost, Timeout):
                    pass  # they come again; the loop will notice what is wrong
                except ZbusError:
                    return


def _unless_gone(do: Callable[[], object]) -> None:
    """What is not leased any more comes again by itself."""
    try:
        do()
    except NotFound:
        pass
