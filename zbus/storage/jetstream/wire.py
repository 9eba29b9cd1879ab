"""The client's side of the NATS protocol, without a socket: bytes in, operations out.

Only what the engine needs of the NATS client protocol, as its reference page describes it: the
server sends INFO, MSG, HMSG, PING, PONG, +OK and -ERR, the client CONNECT, PUB, HPUB, SUB and PONG.
A server is trusted no more than any peer: lines and payloads have limits, numbers are digits.

Tests: `tests/storage/jetstream/test_wire.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec

from zbus.documents import NOT_JSON

LINE_BYTES_MAX: Final = 4 << 10
INFO_BYTES_MAX: Final = 64 << 10
"""INFO lists the servers of a cluster, so it may be longer than other lines."""

_HEADER_LINE: Final = b"NATS/1.0"
_DIGITS: Final = 19


class ProtocolError(ValueError):
    """The server sent something else than the protocol; the connection is closed."""


class Info(msgspec.Struct, frozen=True):
    """What a server says of itself when a connection begins."""

    server_name: str = ""
    version: str = ""
    max_payload: int = 1 << 20
    jetstream: bool = False
    headers: bool = False
    tls_required: bool = False


class Delivered(NamedTuple):
    """A message: `status` is that of its header block, 0 without one."""

    subject: str
    reply: str
    status: int
    headers: dict[str, str]
    body: bytes


class Refused(NamedTuple):
    """-ERR: the text, without quotes."""

    text: str


class Ping(NamedTuple):
    """To be answered with `PONG`."""


class Pong(NamedTuple):
    """The answer to a PING."""


Operation: TypeAlias = "Info | Delivered | Refused | Ping | Pong"

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"


def encode_connect(user: str, password: str, token: str, *, tls: bool) -> bytes:
    """CONNECT; empty texts are left out."""
    options: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "tls_required": tls,
        "name": "zbus",
        "lang": "python",
        "version": "1",
        "protocol": 1,
        "headers": True,
        "no_responders": True,
    }
    given = {"user": user, "pass": password, "auth_token": token}
    options.update({name: text for name, text in given.items() if text})
    return b"CONNECT %b\r\n" % msgspec.json.encode(options)


def encode_subscribe(subject: str, number: int) -> bytes:
    return b"SUB %b %d\r\n" % (subject.encode(), number)


def encode_publish(
    subject: str, reply: str, body: bytes, headers: dict[str, str] | None = None
) -> list[bytes]:
    """PUB, or HPUB with headers, in pieces, so that a large body is not copied."""
    to = f"{subject} {reply}".rstrip().encode()
    if not headers:
        return [b"PUB %b %d\r\n" % (to, len(body)), body, b"\r\n"]
    lines = "".join([f"{name}: {text}\r\n" for name, text in headers.items()]).encode()
    block = b"%b\r\n%b\r\n" % (_HEADER_LINE, lines)
    sizes = len(block), len(block) + len(body)
    return [b"HPUB %b %d %d\r\n%b" % (to, *sizes, block), body, b"\r\n"]


class Reader:
    """Cuts the bytes of a server into operations. `payload_max` limits one message."""

    def __init__(self, payload_max: int) -> None:
        self.payload_max = payload_max
        self._buffer = bytearray()
        self._message: tuple[str, str, int, int] | None = None  # whose payload comes next

    def receive(self, data: bytes) -> list[Operation]:
        """Give the operations that are complete now. Raises ProtocolError."""
        self._buffer += data
        found: list[Operation] = []
        while (one := self._next()) is not None:
            if one:
                found.append(one[0])
        return found

    def _next(self) -> tuple[Operation, ...] | None:
        """One operation, or none that is of interest; None: more bytes are needed."""
        if self._message is not None:
            return self._payload(*self._message)
        end = self._buffer.find(b"\r\n", 0, INFO_BYTES_MAX)
        if end < 0:
            if len(self._buffer) > LINE_BYTES_MAX and self._buffer[:5].upper() != b"INFO ":
                raise ProtocolError("a line is too long")
            if len(self._buffer) >= INFO_BYTES_MAX:
                raise ProtocolError("INFO is too long")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return self._line(line)

    def _line(self, line: bytes) -> tuple[Operation, ...]:
        word, _, rest = line.partition(b" ")
        word = word.upper()
        if word in (b"MSG", b"HMSG"):
            if len(line) > LINE_BYTES_MAX:
                raise ProtocolError("a line is too long")
            self._message = self._begin(word, rest)
            return ()
        if word == b"INFO":
            try:
                return (msgspec.json.decode(rest, type=Info),)
            except NOT_JSON as error:
                raise ProtocolError(f"INFO is not what it should be: {error}") from None
        if word == b"-ERR":
            return (Refused(rest.strip().strip(b"'").decode("utf-8", "replace")),)
        if word == b"PING":
            return (Ping(),)
        if word == b"PONG":
            return (Pong(),)
        if word == b"+OK":
            return ()
        raise ProtocolError(f"unknown operation {word[:20]!r}")

    def _begin(self, word: bytes, rest: bytes) -> tuple[str, str, int, int]:
        """Subject, reply, bytes of the header block and of all."""
        sizes = 2 if word == b"HMSG" else 1
        parts = rest.split()
        if len(parts) not in (2 + sizes, 3 + sizes):
            raise ProtocolError(f"{word.decode()} with {len(parts)} parts")
        numbers = [decode_number(text) for text in parts[-sizes:]]
        head, size = numbers[0] if sizes > 1 else 0, numbers[-1]
        if head > size or size > self.payload_max:
            raise ProtocolError(f"a message of {size:,} bytes: the limit is {self.payload_max:,}")
        reply = parts[2].decode("utf-8", "replace") if len(parts) == 3 + sizes else ""
        return parts[0].decode("utf-8", "replace"), reply, head, size

    def _payload(self, subject: str, reply: str, head: int, size: int) -> tuple[Operation] | None:
        if len(self._buffer) < size + 2:
            return None
        if self._buffer[size : size + 2] != b"\r\n":
            raise ProtocolError("a message is longer than it says")
        status, headers = decode_headers(bytes(self._buffer[:head])) if head else (0, {})
        body = bytes(self._buffer[head:size])
        del self._buffer[: size + 2]
        self._message = None
        return (Delivered(subject, reply, status, headers, body),)


def decode_number(text: str | bytes) -> int:
    """Raises ProtocolError unless it is written in digits alone, 19 at most."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ProtocolError(f"{text[:20]!r} is no number")
    return int(text)


def decode_headers(block: bytes) -> tuple[int, dict[str, str]]:
    """Status, 0 if there is none, and header lines; names as they were sent. Raises
    ProtocolError."""
    lines = block.split(b"\r\n")
    first = lines[0]
    if not first.startswith(_HEADER_LINE):
        raise ProtocolError("a header block does not begin with its version")
    code = first[len(_HEADER_LINE) :].split(maxsplit=1)
    headers = {}
    for line in lines[1:]:
        name, colon, text = line.partition(b":")
        if colon:
            headers[name.decode("utf-8", "replace")] = text.strip().decode("utf-8", "replace")
    return decode_number(code[0]) if code else 0, headers
