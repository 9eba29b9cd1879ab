"""A connection for programs that block, made again when it breaks; threads may share it.

There is no thread in the background. A request that waits for an answer reads for all that wait:
one thread pays nothing for the others that might be there. (`RequestTracker` is the core; ADR 23.)
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from zbus.client.errors import ConnectionLost
from zbus.client.links.exchange import Exchange
from zbus.client.links.forking import follow_forks
from zbus.client.links.request_tracker import Call, RequestTracker
from zbus.client.links.sockets import Socket, open_socket
from zbus.client.messages import Delivery
from zbus.client.options import Addresses, Options
from zbus.client.requests import Pulling, Request

T = TypeVar("T")
AnyExchange = TypeVar("AnyExchange", bound=Exchange)

LOOK_UP_S = 1.0
"""No wait is longer: a signal that comes just before a system call begins does not end that call,
so Ctrl-C would be heard only when the wait is over."""


class Connection(Generic[AnyExchange]):
    """One connection, made again when it breaks, and what is exchanged on it."""

    def __init__(self, options: Options, make: Callable[[], AnyExchange]) -> None:
        self._options = options
        self._make = make
        self.closed = False
        self.connection_count = 0
        """How many have been made so far."""
        self._begin()
        follow_forks(self)

    def _begin(self) -> None:
        self._exchange = self._make()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # threads in `_changed`
        self._driving = False  # a thread reads, or makes a connection, for all
        self._taking = False  # it has bytes that the exchange has not
        self._dropped: list[Socket] = []  # for it to close: it may be waiting for them
        self._sending = threading.Lock()
        self._socket: Socket | None = None
        self._quiet_s = 0.0  # how long it was waited for what comes, in vain

    def forked(self, parent: int) -> None:
        """A child has an identity, a connection and locks of its own. What was under way is the
        parent's: what becomes of it is not known here."""
        inherited = [*self._dropped] if self._socket is None else [*self._dropped, self._socket]
        for connection in inherited:
            connection.disown()
        self._exchange.forked(parent)
        self._begin()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._exchange.close()
            self._drop()
            self._changed.notify_all()

    def flush(self) -> None:
        """Send what is to be sent. What cannot be is sent by the next connection."""
        with self._sending:
            connection = self._socket
            if connection is None:
                return
            try:
                with self._lock:
                    data = self._exchange.take() if connection is self._socket else b""
                if data:
                    connection.send(data, self._options.timeout_s)
            except (OSError, ValueError) as error:
                self._broke(connection, getattr(error, "strerror", None) or str(error))
            except BaseException:
                # Half of it may be sent: nothing can follow on this connection.
                self._broke(connection, "interrupted while a request was sent")
                raise

    def drive(self, until_s: float = math.inf) -> bool:
        """Do the next thing that brings it forward, within a second, and until then at most;
        whether anything came. While another thread does that, this one waits for it."""
        with self._lock:
            if self._driving:
                self._waiting += 1
                try:
                    return self._changed.wait(max(0.0, min(until_s - time.monotonic(), LOOK_UP_S)))
                finally:
                    self._waiting -= 1
            self._driving = True
            try:
                return self._drive(time.monotonic(), until_s)
            finally:
                self._driven()

    def fileno(self) -> int:
        """Of the socket, for an event loop; -1 while there is none. The next connection may have
        the same number, and a loop knows nothing of it: compare `connection_count`."""
        connection = self._socket
        return -1 if connection is None else connection.fileno()

    def _driven(self) -> None:
        self._driving = False
        if self._taking:
            self._taking = False
            if self._socket is not None:
                self._lose("interrupted while an answer was received")
        while self._dropped:
            self._dropped.pop().close()
        if self._waiting:
            self._changed.notify_all()

    def _drive(self, now_s: float, end_s: float) -> bool:
        """Pause, connect, or receive. The lock is held, but not while this waits. Returns whether
        anything came."""
        exchange, changed = self._exchange, self._changed
        connection = self._socket
        if connection is None:
            pause_s = min(exchange.attempts.retry_at_s, end_s) - now_s
            if pause_s > 0:
                changed.wait(min(pause_s, LOOK_UP_S))
            elif self._connect(end_s) is None:
                try:
                    changed.release()
                    self.flush()
                finally:
                    changed.acquire()
            return False
        data, why, came, wait_s = b"", "", False, min(end_s - now_s, LOOK_UP_S)
        try:
            changed.release()
            came = connection.wait(wait_s)
            if came:
                self._taking = True
                data = connection.receive()
        except BlockingIOError:
            self._taking = False
            return False
        except OSError as error:
            why = error.strerror or str(error)
        finally:
            changed.acquire()
        self._quiet_s = 0.0 if came else self._quiet_s + wait_s
        if not came:
            if self._quiet_s < exchange.patience_s:
                return False
            why = f"nothing came for {exchange.patience_s:g} s"
        if connection is self._socket and not (data and exchange.receive(data)):
            self._lose(why)
        self._taking = False
        if exchange.has_news and self._socket is not None:
            # An answer decided what is to be sent.
            try:
                changed.release()
                self.flush()
            finally:
                changed.acquire()
        return came

    def _connect(self, until_s: float) -> str | None:
        """The lock is held, and is not while this waits. Returns why there is no connection."""
        connection, why = None, ""
        timeout_s = max(0.001, min(self._options.connect_timeout_s, until_s - time.monotonic()))
        try:
            self._changed.release()
            connection = open_socket(self._exchange.attempts.address, self._options, timeout_s)
        except OSError as error:
            why = self._exchange.attempts.not_made(error)
        finally:
            self._changed.acquire()
        now_s = time.monotonic()
        if connection is None:
            # Who had less patience than an attempt is due says nothing about the broker.
            if timeout_s == self._options.connect_timeout_s or now_s < until_s:
                self._exchange.lost(now_s, why)
        elif self.closed:
            connection.close()
            why = "the client was closed"
        else:
            self._socket = connection
            self.connection_count += 1
            self._quiet_s = 0.0
            self._exchange.connected()
            return None
        return why

    def _broke(self, connection: Socket, why: str) -> None:
        with self._lock:
            if connection is self._socket:
                self._lose(why)
                self._changed.notify_all()

    def _lose(self, why: str) -> None:
        self._drop()
        self._exchange.lost(time.monotonic(), self._exchange.attempts.lost(why))

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.shutdown()  # wakes a thread that reads from it
            if self._driving:
                self._dropped.append(connection)
            else:
                connection.close()


class Link(Connection[RequestTracker]):
    """The calls under way on a connection."""

    def __init__(self, addresses: Addresses, options: Options) -> None:
        make = partial(RequestTracker, options, random.SystemRandom(), addresses)
        super().__init__(options, make)

    def open(self) -> None:
        """Connect, with one attempt for each address. Raises ConnectionLost."""
        with self._lock:
            errors = []
            for _ in self._exchange.attempts.addresses:
                error = self._connect(time.monotonic() + self._options.connect_timeout_s)
                if error is None:
                    return
                errors.append(error)
        raise ConnectionLost("; ".join(errors))

    def run(self, request: Request[T]) -> T:
        """Send, wait for the answer, return what it means."""
        call = self.submit(request)
        try:
            self.flush()
            self.wait(call)
            return call.result()
        except BaseException:
            self.give_up(call)
            raise

    def give_up(self, call: Call[Any]) -> None:
        """The caller waits no more. The broker learns it with the next request, if not now."""
        with self._lock:
            self._exchange.give_up(call, ConnectionLost("it was given up", call.sent > 0))
            has_news = self._exchange.has_news
        if has_news:
            self.flush()

    def last_time(self, call: Call[Any]) -> None:
        """If its answer is lost, or it was not sent yet, it is not sent again."""
        with self._lock:
            self._exchange.last_time(call)

    def take_kept(self, pulling: Pulling) -> list[Delivery]:
        """See `RequestTracker`."""
        with self._lock:
            return self._exchange.take_kept(pulling)

    def put_back(self, pulling: Pulling, deliveries: list[Delivery]) -> None:
        """See `RequestTracker`."""
        with self._lock:
            self._exchange.put_back(pulling, deliveries)

    def submit(self, request: Request[T]) -> Call[T]:
        """Begin a request; it is sent by `flush`, or by a caller that waits."""
        with self._lock:
            if self.closed:
                raise ConnectionLost("the client is closed")
            return self._exchange.submit(request, time.monotonic())

    def wait(self, call: Call[Any], until_s: float | None = None) -> bool:
        """Wait until the call is done, or until a time; whether it is done."""
        changed, exchange = self._changed, self._exchange
        if exchange.out_count:
            self.flush()  # the thread that was to do it was interrupted
        with self._lock:
            while not call.done:
                now_s = time.monotonic()
                end_s = call.deadline_s if until_s is None else min(call.deadline_s, until_s)
                if now_s >= end_s:
                    exchange.expire(now_s)
                    return call.done
                if self._driving:
                    self._waiting += 1
                    try:
                        changed.wait(min(end_s - now_s, LOOK_UP_S))
                    finally:
                        self._waiting -= 1
                    continue
                self._driving = True
                try:
                    self._drive(now_s, end_s)
                finally:
                    self._driven()
        return True
