"""Connections without a network: the broker's loop reads and writes them like sockets.

A socket holds what has arrived and was not read yet, in both directions. The client's side of it
is a `Connection`: bytes arrive as it sends them, piece by piece, and the broker's answers stay in
the socket until the client takes them, so that a client which takes nothing stalls the broker.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.readiness import GONE, READ, WRITE, Events, Readiness
from zbus.server.loop.socket_connection import SocketConnection
from zbus.testing.world import Reply, take_reply

ROOM_BYTES = 64 << 10
"""What a socket takes before its reader has to take something out."""


class Socket:
    """The broker's end. It has of a socket what the loop uses."""

    def __init__(self, file: int, room_bytes: int = ROOM_BYTES) -> None:
        self._file = file
        self.inbound = bytearray()  # has arrived for the broker
        self.outbound = bytearray()  # has arrived for the client
        self.room_bytes = room_bytes
        self.ended = False  # the client sends no more
        self.broken = False  # reset by the client
        self.shut = False  # the broker sends no more
        self.closed = False  # by the broker

    def fileno(self) -> int:
        return self._file

    def ready(self) -> int:
        """READ, WRITE and GONE, if they are."""
        readable = READ if self.inbound or self.ended or self.broken else 0
        writable = WRITE if self.broken or len(self.outbound) < self.room_bytes else 0
        return readable | writable | (GONE if self.ended or self.broken else 0)

    def recv(self, count: int) -> bytes:
        if self.broken:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the client")
        data = bytes(self.inbound[:count])
        del self.inbound[:count]
        if not data and not self.ended:
            raise BlockingIOError
        return data

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """It has the room that it has."""

    def send(self, data: bytes) -> int:
        if self.broken:
            raise BrokenPipeError(errno.EPIPE, "reset by the client")
        room = self.room_bytes - len(self.outbound)
        if room <= 0 and data:
            raise BlockingIOError
        self.outbound += data[:room]
        return min(room, len(data))

    def shutdown(self, how: int) -> None:
        if self.broken:
            raise OSError(errno.ENOTCONN, "reset by the client")
        self.shut = True

    def close(self) -> None:
        self.closed = True


class Watched(Protocol):
    """A socket of a simulation, also one at which connections wait."""

    def fileno(self) -> int: ...

    def ready(self) -> int:
        """READ, WRITE and GONE, if they are."""


class Ready(Readiness):
    """Which sockets have something: in the order of their numbers, or as `shuffle` has it."""

    def __init__(self, shuffle: Callable[[Events], None]) -> None:
        self.shuffle = shuffle
        self._watched: dict[int, tuple[Watched, object, int]] = {}
        self._listening: dict[int, Watched] = {}

    def fileno(self) -> int:
        raise NotImplementedError("a simulation never waits")

    def listen(self, sock: Watched) -> None:
        """An acceptor is going to be watched for this socket."""
        self._listening[sock.fileno()] = sock

    def watch(self, file: int, events: int, target: object) -> None:
        if not events:
            self._watched.pop(file, None)
        elif isinstance(target, SocketConnection):
            self._watched[file] = cast("Watched", target.sock), target, events
        elif file in self._listening:
            self._watched[file] = self._listening[file], target, events

    def wait(self, seconds: float, events_max: int) -> Events:
        found: Events = []
        for sock, target, events in self._watched.values():
            ready = sock.ready() & events
            if ready:
                found.append((target, ready))
        self.shuffle(found)
        return found[:events_max]

    def has_some(self) -> bool:
        """Whether any has something."""
        return any([sock.ready() & events for sock, _, events in self._watched.values()])

    def close(self) -> None:
        self._watched.clear()


class Post(Mailbox):
    """A mailbox without a socket: a post comes from the broker's own thread."""

    def __init__(self) -> None:
        self._posted = deque()
        self.receiver = cast(socket.socket, Socket(0))

    def post(self, call: Callable[[], None]) -> None:
        self._posted.append(call)

    def run(self) -> None:
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    @property
    def signalled(self) -> bool:
        return bool(self._posted)

    def close(self) -> None:
        pass


class Connection:
    """The client's end."""

    def __init__(self, sock: Socket, name: str) -> None:
        self.socket = sock
        self.name = name
        self._received = bytearray()

    @property
    def alive(self) -> bool:
        """False once either side has ended the connection."""
        sock = self.socket
        return not (sock.broken or sock.closed or sock.shut)

    def send(self, data: bytes) -> None:
        """These bytes arrive at the broker, which reads them in its next turn."""
        if not self.socket.broken and not self.socket.closed:
            self.socket.inbound += data

    def receive(self, bytes_max: int | None = None) -> bytes:
        """Take what has come, at most that much."""
        outbound = self.socket.outbound
        data = bytes(outbound if bytes_max is None else outbound[:bytes_max])
        del outbound[: len(data)]
        return data

    def replies(self, bytes_max: int | None = None) -> list[Reply]:
        """The whole replies among what has come."""
        self._received += self.receive(bytes_max)
        found = []
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            status_line, *lines = self._received[:end].decode("utf-8", "replace").split("\r\n")
            headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
            if "transfer-encoding" in headers:
                reply, after = take_reply(bytes(self._received))
                if reply is None:
                    break
                del self._received[:after]
                found.append(reply)
                continue
            after = end + 4 + int(headers.get("content-length", "0"))
            if len(self._received) < after:
                break
            found.append(
                Reply(int(status_line.split()[1]), headers, bytes(self._received[end + 4 : after]))
            )
            del self._received[:after]
        return found

    def finish(self) -> None:
        """Send no more; replies may still come."""
        self.socket.ended = True

    def reset(self) -> None:
        """Gone, at once and without a word: what was on the way is lost."""
        self.socket.broken = True
        self.socket.inbound.clear()
        self.socket.outbound.clear()
