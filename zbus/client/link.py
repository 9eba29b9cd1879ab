"""A connection for programs that block, made again when it breaks; threads may share it.

There is no thread in the background. Whoever waits for an answer reads for all that wait: one
thread pays nothing for the others that might be there. (`Exchange` is the core; ADR 23.)
"""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any, TypeVar

from zbus.client.errors import ConnectionLost
from zbus.client.exchange import Call, Exchange
from zbus.client.options import Address, Options
from zbus.client.requests import Request
from zbus.client.tls import TlsSocket

T = TypeVar("T")

RECEIVE_BYTES = 64 << 10


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
