"""What the system has of the sockets of several workers, without the system.

A *handle* is what a worker has of a socket, by a number of its own; what it stands for goes when
its last handle does, as with a connection that was handed over. Bytes between two workers wait in
their pipe until the world moves them, so that they come late, in pieces, or not at all. Sockets
that listen, and those where connections are handed over, belong to the parent: what waits there is
still there when a worker that was killed begins again.
"""

from __future__ import annotations

import array
import errno
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from zbus.server.loop.readiness import READ
from zbus.testing.simulation.network import ROOM_BYTES, Socket
from zbus.workers import handing_over, upstream

WAITING_MAX: Final = 10
"""Messages that wait at a socket for datagrams, as in Linux."""

Rights = Sequence[tuple[int, int, Any]]


class Plain(Socket):
    """A client's connection, as the system of the server has it."""

    family = socket.AF_INET

    def __init__(self, number: int, room_bytes: int) -> None:
        super().__init__(number, room_bytes)
        self.handles = 0
        self.name = (f"10.0.0.{1 + number % 3}", 1_024 + number)

    def send(self, data: bytes) -> int:
        return super().send(bytes(data))

    def abandon(self) -> None:
        """Who had it was killed: who asked and was not read is told so."""
        if self.inbound:
            self.broken = True
        self.closed = True


class End(Plain):
    """One end of a connection between two workers."""

    family = socket.AF_UNIX

    def __init__(self, number: int) -> None:
        super().__init__(number, ROOM_BYTES)
        self.peer: End = self
        self.begun = False  # something of what it has sent has come
        self.unread = False  # when it was closed

    def send(self, data: bytes) -> int:
        if self.peer.closed:
            raise BrokenPipeError(errno.EPIPE, "the other worker has closed it")
        return super().send(data)

    def close(self) -> None:
        self.unread = bool(self.inbound)
        self.inbound.clear()
        super().close()

    abandon = close


class Pipe:
    """Such a connection, and the bytes that are on their way."""

    def __init__(self, one: End, other: End, target: int) -> None:
        """`target`: the worker that is asked over it."""
        one.peer, other.peer = other, one
        self.target = target
        self.ends = one, other
        self.slow_until_ms = 0
        self.machines: tuple[str, str] = ("", "")  # where the two ends are
        self.silent = False  # one of them is not there any more, and the other is not told

    def move(self, bytes_max: int) -> bool:
        """So many bytes arrive, at most; whether anything did."""
        moved = False
        for source in () if self.silent else self.ends:
            target = source.peer
            if not source.begun:  # the first word is small, and comes in one piece
                bytes_max = max(bytes_max, source.outbound.find(b"\n") + 1)
            size = min(bytes_max, ROOM_BYTES - len(target.inbound), len(source.outbound))
            if target.closed or target.broken:
                source.outbound.clear()
            elif size > 0:
                target.inbound += source.outbound[:size]
                del source.outbound[:size]
                source.begun = True
                moved = True
            if not source.outbound and (source.closed or source.shut) and not target.ended:
                moved = target.ended = True
            if target.ended and source.unread and not target.inbound:
                target.broken = True
        return moved

    def cut(self) -> None:
        """It breaks, and what was on its way is lost."""
        self.silent = False
        for end in self.ends:
            end.broken = True
            end.inbound.clear()
            end.outbound.clear()

    @property
    def over(self) -> bool:
        return all(end.closed for end in self.ends)


class Handle:
    """What a worker has of a connection."""

    def __init__(self, system: System, inner: Plain | None, family: int) -> None:
        self.system = system
        self.owner = system.running
        self.number = system.next_number()
        self.family = family
        self.inner: Any = inner  # None: not connected yet
        if inner is not None:
            inner.handles += 1
        system.handles[self.number] = self

    def fileno(self) -> int:
        return self.number

    def ready(self) -> int:
        return int(self.inner.ready())

    def recv(self, count: int) -> bytes:
        return bytes(self.inner.recv(count))

    def send(self, data: bytes) -> int:
        sent = int(self.inner.send(data))
        self.system.sent_bytes += sent
        return sent

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, level: int, option: int, value: int) -> None:
        pass

    def getpeername(self) -> object:
        if self.inner.broken:
            raise OSError(errno.ENOTCONN, "reset by the client")
        return self.inner.name

    def shutdown(self, how: int) -> None:
        self.inner.shutdown(how)

    def connect(self, path: str) -> None:
        self.inner = self.system.open_pipe(path)
        self.inner.handles += 1

    def close(self) -> None:
        self.let_go(killed=False)

    def let_go(self, killed: bool) -> None:
        """By the worker, or by the system when the worker has ended."""
        if self.system.handles.pop(self.number, None) is None or self.inner is None:
            return
        self.inner.handles -= 1
        if not self.inner.handles:
            self.inner.abandon() if killed else self.inner.close()

    # -- handing over -------------------------------------------------------------------------

    def sendmsg(self, data: Sequence[bytes], rights: Rights, flags: int, path: str) -> None:
        """A datagram with descriptors."""
        given = [self.system.handles[file].inner for _, _, files in rights for file in files]
        inbox = self.system.inboxes.get(path)
        if inbox is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody takes connections there")
        inbox.put(b"".join(data), given)


class Waiting:
    """Connections that wait to be accepted."""

    def __init__(self, system: System, worker: int) -> None:
        self.system = system
        self.worker = worker
        self.number = system.next_number()
        self.waiting: deque[Plain] = deque()

    def fileno(self) -> int:
        return self.number

    def ready(self) -> int:
        return READ if self.waiting else 0

    def accept(self) -> tuple[Handle, object]:
        if not self.waiting:
            raise BlockingIOError
        inner = self.waiting.popleft()
        return Handle(self.system, inner, inner.family), inner.name

    def close(self) -> None:
        """The parent keeps it."""


class Inbox:
    """Where connections are handed over."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.number = system.next_number()
        self.messages: deque[tuple[bytes, list[Plain]]] = deque()

    def fileno(self) -> int:
        return self.number

    def ready(self) -> int:
        return READ if self.messages else 0

    def put(self, data: bytes, given: list[Plain]) -> None:
        if len(self.messages) >= WAITING_MAX:
            raise BlockingIOError
        for inner in given:
            inner.handles += 1
        self.messages.append((data, given))

    def recvmsg(self, size: int, space: int) -> tuple[bytes, Rights, int, None]:
        if not self.messages:
            raise BlockingIOError
        data, given = self.messages.popleft()
        files = array.array("i", [Handle(self.system, one, one.family).number for one in given])
        for inner in given:
            inner.handles -= 1  # that of the message
        return data[:size], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())], 0, None

    def close(self) -> None:
        """The parent keeps it."""


class System:
    """All of them. While a worker runs it takes the place of the module `socket` for what workers
    do with each other."""

    modules: tuple[Any, ...] = (upstream, handing_over)

    def __init__(self) -> None:
        self.running = -1  # the worker that has its turn
        self.handles: dict[int, Handle] = {}
        self.listening: dict[str, Waiting] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.pipes: list[Pipe] = []
        self.refusing = False  # the other worker has too many that wait
        self.sent_bytes = 0  # by all processes
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def __getattr__(self, name: str) -> Any:
        """What else is in the module: constants."""
        return getattr(socket, name)

    def socket(self, family: int = -1, kind: int = -1, fileno: int | None = None) -> Handle:
        if fileno is not None:
            return self.handles[fileno]
        return Handle(self, None, family)

    def open_pipe(self, path: str) -> End:
        if self.refusing:
            raise BlockingIOError(errno.EAGAIN, "too many wait to be accepted")
        listening = self.listening.get(path)
        if listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        one, other = End(self.next_number()), End(self.next_number())
        self.pipes.append(Pipe(one, other, listening.worker))
        listening.waiting.append(other)
        return one

    def end(self, worker: int) -> None:
        """The worker was killed: what it had is closed."""
        for handle in [one for one in self.handles.values() if one.owner == worker]:
            handle.let_go(killed=True)

    def forget_the_dead(self) -> None:
        self.pipes = [pipe for pipe in self.pipes if not pipe.over]

    @contextmanager
    def run(self, worker: int) -> Iterator[None]:
        """This worker does something."""
        self.running = worker
        for module in self.modules:
            module.socket = self
        try:
            yield
        finally:
            self.running = -1
            for module in self.modules:
                module.socket = socket
