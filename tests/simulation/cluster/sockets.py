"""What is different where processes are on several machines: some sockets are TCP with TLS, and
owners open and close their own."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.simulation.workers.sockets import End, Handle, System, Waiting
from zbus.wire.tls import TlsStream
from zbus.workers import visitors
from zbus.workers.cluster import relay

_HELLO: Final = b"a certificate"
_LENGTH: Final = 2
_RECORD_BYTES: Final = 16 << 10


def _record(data: bytes) -> bytes:
    """It is understood as a whole, like one of TLS."""
    return len(data).to_bytes(_LENGTH) + data


class PlainTls:
    """`zbus.wire.tls.TlsStream` without ciphers: records, and nothing is said before both have
    shown who they are."""

    ended = False
    principal = ""

    def __init__(self, context: object, *, client: bool = False) -> None:
        self.established = False
        self.error = ""
        self.unsaid_bytes = 0
        self._is_client = client
        self._outgoing = _record(_HELLO) if client else b""
        self._unsaid = b""
        self._incoming = b""

    @property
    def over(self) -> bool:
        return bool(self.error)

    @property
    def speaks(self) -> bool:
        return bool(self._outgoing) or bool(self._unsaid and self.established)

    def receive(self, data: bytes) -> bytes:
        came, found = self._incoming + data, b""
        while len(came) >= _LENGTH and not self.error:
            end = _LENGTH + int.from_bytes(came[:_LENGTH])
            if len(came) < end:
                break
            record, came = came[_LENGTH:end], came[end:]
            if self.established:
                found += record
            else:
                self._shake(record)
        self._incoming = came
        return found

    def _shake(self, record: bytes) -> None:
        if record != _HELLO:
            self.error = "no certificate"
            return
        self.established = True
        if not self._is_client:
            self._outgoing = _record(_HELLO)

    def encrypt(self, data: bytes) -> bytes:
        said, self._outgoing = self._outgoing, b""
        self._unsaid += data
        if not self.established:
            self.unsaid_bytes = len(self._unsaid)
            return said
        data, self._unsaid, self.unsaid_bytes = self._unsaid, b"", 0
        starts = range(0, len(data), _RECORD_BYTES)
        return said + b"".join([_record(data[at : at + _RECORD_BYTES]) for at in starts])

    def close(self) -> bytes:
        return b""


class Listening(Waiting):
    """A socket at which a process listens itself: it is gone with it."""

    def __init__(self, system: ClusterSystem, worker: int, address: Any) -> None:
        super().__init__(system, worker)
        self.machine = system.machines[worker]
        self._address = address
        system.listening[address] = self

    def close(self) -> None:
        if self.system.listening.get(self._address) is self:
            del self.system.listening[self._address]
        for inner in self.waiting:
            inner.abandon()
        self.waiting.clear()


class FarHandle(Handle):
    """A socket to another machine: whether there is anybody is heard later, or never."""

    system: ClusterSystem

    def connect(self, path: Any) -> None:
        try:
            super().connect(path)
        except ConnectionRefusedError:
            self.inner = End(self.system.next_number())
            self.inner.handles += 1
            self.inner.broken = self.system.is_up(path[0])
        raise BlockingIOError(errno.EINPROGRESS, "under way")


class ClusterSystem(System):
    """Those of several machines. `is_up`: whether the machine of an address runs."""

    modules = (*System.modules, relay)

    def __init__(
        self, is_up: Callable[[str], bool], slow_until_ms: Callable[[str, str], int]
    ) -> None:
        """`slow_until_ms`: until when nothing gets from one machine to another."""
        super().__init__()
        self.is_up = is_up
        self.machines: dict[int, str] = {}  # of processes, by their numbers
        self._slow_until_ms = slow_until_ms

    def socket(self, family: int = -1, kind: int = -1, fileno: int | None = None) -> Handle:
        if family in (socket.AF_INET, socket.AF_INET6) and fileno is None:
            return FarHandle(self, None, family)
        return super().socket(family, kind, fileno)

    def open_pipe(self, path: Any) -> End:
        here = self.machines[self.running]
        inner = super().open_pipe(path)
        listening, pipe = self.listening[path], self.pipes[-1]
        assert isinstance(listening, Listening)
        pipe.machines = here, listening.machine
        pipe.slow_until_ms = self._slow_until_ms(*pipe.machines)
        return inner

    @contextmanager
    def run(self, worker: int) -> Iterator[None]:
        places: tuple[Any, ...] = (relay, visitors)
        for module in places:
            module.TlsStream = PlainTls
        try:
            with super().run(worker):
                yield
        finally:
            for module in places:
                module.TlsStream = TlsStream
