"""The watch of the blocking client: `Watching` over a connection of its own."""

from __future__ import annotations

import threading
import time
from typing import Self

from zbus.client.links.forking import Unpicklable, follow_forks, require_own
from zbus.client.links.sockets import Socket, open_socket
from zbus.client.messages import Delivery
from zbus.client.options import Addresses, Options
from zbus.client.readers.watching import Watching


class Watcher(Unpicklable):
    """The messages of a topic, one after another. Made by `watch`. Belongs to one thread; `close`
    may be called by another, and ends the loop."""

    def __init__(self, addresses: Addresses, options: Options, core: Watching) -> None:
        self._addresses = addresses
        self._options = options
        self._core = core
        self._socket: Socket | None = None
        self._lock = threading.Lock()  # of the socket's coming and going
        self._closed = threading.Event()
        self._parent = 0  # the process that watches, and forked this one
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """What is begun belongs to the parent."""
        self._parent = self._parent or parent
        self._lock = threading.Lock()
        self._closed = threading.Event()
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.disown()

    def open(self) -> Self:
        """Connect, until the broker has said where the stream begins."""
        try:
            while not self._core.begun and not self._closed.is_set():
                self._drive(None)
                if self._core.error is not None:
                    raise self._core.error
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        delivery = self.next()
        if delivery is None:
            raise StopIteration
        return delivery

    def next(self) -> Delivery | None:
        """The next message; None when `timeout_ms` is over, or the watch is closed."""
        require_own("watch", self._parent)
        core = self._core
        end_s = None
        try:
            while not self._closed.is_set():
                delivery = core.step()
                if delivery is not None:
                    return delivery
                if core.timeout_ms is not None:
                    now_s = time.monotonic()
                    end_s = now_s + core.timeout_ms / 1000 if end_s is None else end_s
                    if now_s >= end_s:
                        return None
                self._drive(end_s)
        except Exception:
            self.close()
            raise
        except BaseException:
            # Some of an event may have been read: it goes on where it was, on a new connection.
            self._drop()
            raise
        return None

    def _drive(self, end_s: float | None) -> None:
        """Do the next thing that brings us forward: pause, connect, or receive."""
        core, now_s = self._core, time.monotonic()
        patience_s = core.patience_s
        left_s = patience_s if end_s is None else min(patience_s, max(0.0, end_s - now_s))
        connection = self._socket
        if connection is None:
            if now_s < core.attempts.retry_at_s:
                self._closed.wait(min(core.attempts.retry_at_s - now_s, left_s))
            else:
                self._connect()
            return
        try:
            if connection.wait(left_s):
                data, why = connection.receive(), "it was closed"
            elif left_s < patience_s:
                return
            else:
                data, why = b"", f"nothing came for {patience_s:g} s"
        except BlockingIOError:
            return
        except OSError as error:
            data, why = b"", error.strerror or str(error)
        if not (data and core.receive(data)):
            self._lost(self._core.attempts.lost(why))

    def _connect(self) -> None:
        try:
            connection = open_socket(
                self._core.attempts.address, self._options, self._options.connect_timeout_s
            )
        except OSError as error:
            self._lost(self._core.attempts.not_made(error))
            return
        with self._lock:
            if self._closed.is_set():
                connection.close()
                return
            self._socket = connection
        try:
            connection.send(self._core.connected(), self._options.connect_timeout_s)
        except OSError as error:
            self._lost(self._core.attempts.lost(error))

    def _lost(self, why: str) -> None:
        self._drop()
        self._core.lost(time.monotonic(), why)

    def _drop(self) -> None:
        with self._lock:
            connection, self._socket = self._socket, None
        if connection is not None:
            connection.shutdown()  # wakes a thread that reads from it
            connection.close()
