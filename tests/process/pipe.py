"""A pipelining client that is fast enough to load a broker from Python."""

from __future__ import annotations

import socket
from typing import NamedTuple

from tests.limits import WAIT_S


class Reply(NamedTuple):
    status: int
    head: bytes
    body: bytes


def header(head: bytes, name: bytes) -> bytes | None:
    """The value of a header."""
    at = head.find(b"\r\n" + name + b": ")
    if at < 0:
        return None
    start = at + len(name) + 4
    stop = head.find(b"\r\n", start)
    return head[start:] if stop < 0 else head[start:stop]


def number(head: bytes, name: bytes, default: int = -1) -> int:
    value = header(head, name)
    return default if value is None else int(value)


def ask(target: str | bytes, body: bytes = b"", lines: bytes = b"") -> bytes:
    """The bytes of a plain request: such are answered in order."""
    target = target.encode() if isinstance(target, str) else target
    length = b"content-length: %d\r\n" % len(body) if body else b""
    return b"GET %b HTTP/1.1\r\nhost: localhost\r\n%b%b\r\n%b" % (target, lines, length, body)


class Pipe:
    """A connection. A broker that is gone is an OSError or EOFError."""

    def __init__(self, port: int, timeout_s: float = WAIT_S) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._at = 0

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, target: str | bytes, body: bytes = b"", lines: bytes = b"") -> Reply:
        self.send(ask(target, body, lines))
        return self.read()

    def read(self) -> Reply:
        """The next reply."""
        while (stop := self._buffer.find(b"\r\n\r\n", self._at)) < 0:
            self._more()
        head = self._buffer[self._at : stop]
        end = stop + 4 + number(head, b"content-length", 0)
        if end > len(self._buffer):
            behind = end - self._at
            self._buffer, self._at = self._buffer[self._at :], 0
            pieces, have = [self._buffer], len(self._buffer)
            while have < behind:
                pieces.append(self._receive())
                have += len(pieces[-1])
            self._buffer = b"".join(pieces)
            stop = self._buffer.find(b"\r\n\r\n")
            end = behind
        self._at = end
        return Reply(int(head[9:12]), head, self._buffer[stop + 4 : end])

    def _more(self) -> None:
        self._buffer, self._at = self._buffer[self._at :] + self._receive(), 0

    def _receive(self) -> bytes:
        data = self.sock.recv(1 << 18)
        if not data:
            raise EOFError("the broker closed")
        return data

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
