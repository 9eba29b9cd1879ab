"""A grammar of everything that a connection may send: requests of all commands, good and bad.

Requests come as HTTP in all framings, with containers in their bodies, and as messages of
WebSockets, as HTTP or JSON. Values are made for the kind of their parameter, as the table of
commands has it, so most requests are understood; and what is made may be broken at any place.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from tests.conformance.websocket_client import handshake
from tests.wire.frame_fuzz import Streams
from tests.wire.head_fuzz import spoil
from tests.wire.websocket_frames import close, frame
from zbus.dialects.zbus.schema.commands import ABSENT, TABLE
from zbus.dialects.zbus.schema.kinds import (
    Duration,
    Flag,
    Form,
    Kind,
    Number,
    Size,
    Switch,
    Text,
    Time,
    Word,
)
from zbus.wire.limits import DEFAULT_LIMITS
from zbus.wire.websocket import BINARY, PING, TEXT

TOPICS = ["T", "T", "T", "T", "T", "U", "U", "V", "V", "U", "V", "a.b", "ä", "queue"]
BAD_TOPICS = ["", "_log", "..", "T/..", "x" * 300, "%2F", "%zz", "T\0", "T U", "*", "\udcff"]
GROUPS = ["g", "h", "T", "g2", "é"]
TEXTS = [
    "",
    "a",
    "a.b",
    "a.*",
    "a.>",
    "*",
    "x" * 128,
    "x" * 2_000,
    "ä€",
    "%41%zz",
    "1",
    "a,b",
    '"',
    "a b",
]
STARTS = ["earliest", "latest", "0", "1", "3", "1,2", "time:0", "2027-01-15T08:00:00Z", "time:1e9"]
NUMBERS = ["0", "0", "1", "1", "2", "3", "5", "10", "100", "5000"]
ODD_NUMBERS = [
    "",
    "-1",
    "+1",
    "1e3",
    "0x1",
    "1_0",
    "00",
    "07",
    " 1",
    "²",
    "nan",
    "9" * 19,
    "9" * 400,
    str(2**31 - 1),
    str(2**31),
    str(2**63 - 1),
    str(2**63),
    "315360000000",
    "65536",
    "10001",
]
OFFSETS = ["0", "1", "2", "0-3", "0,2,4", "3,5-9,12", "0-99", "0-9999"]
PAUSES = ["1000", "1000,60000", "1,1", "none", "0", "5,4", "", "x", ",", "1,2,3", "9" * 30]
BAD_OFFSETS = ["5-4", "0-", "-", ",", "1,,2", "0-99999999999", "0-10000", "9" * 30, "1-2-3", ""]
ACCEPTS = [
    "text/event-stream",
    "application/x-ndjson",
    "application/vnd.zbus.messages",
    "text/html",
    "application/json",
    "application/vnd.zbus.batches",
    "*/*",
    ",;q=",
    "text/html;q=0.1,a/b",
]
LINES = [
    b"connection: close",
    b"expect: 100-continue",
    b"content-type: application/x-ndjson",
    b"content-type: application/vnd.zbus.messages",
    b"authorization: Bearer x",
    b"x-a: b",
    b"origin: http://elsewhere",
    b"sec-fetch-site: cross-site",
    b"last-event-id: 3",
]
BODIES = [b"", b"x", b"hello", b"\xff\x00", b"x" * 300, b"y" * 5_000, b"z" * 70_000, b'{"a":1}']
JSONS = [
    None,
    True,
    0,
    7,
    -1,
    1.5,
    "",
    "text",
    "ä",
    [],
    [1, {"a": []}],
    {},
    {"a": {"b": 1}},
]
COMMANDS = sorted(TABLE) + sorted(ABSENT) + [b"nothing", b""]
USUAL = [
    b"produce",
    b"consume",
    b"ack",
    b"nack",
    b"declare",
    b"query",
    b"read",
    b"extend",
    b"route",
]


class Grammar:
    """Chooses by `random`."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._frames = Streams(random)

    # -- connections ----------------------------------------------------------------------

    def stream(self) -> bytes:
        """What one connection sends."""
        random = self.random
        count = random.choice((1, 2, 5, 20))
        if random.random() < 0.35:
            before = [self.request() for _ in range(random.choice((0, 0, 0, 2)))]
            target = random.choice(("/", "/T", "/T/g", "/_log/T", "/?cmd=consume"))
            data = b"".join((*before, handshake(target), *(self.framed() for _ in range(count))))
        else:
            data = b"".join(self.request() for _ in range(count))
        if random.random() < 0.1 and data:
            data = self._frames.spoil(data)
        return data

    # -- requests as HTTP -----------------------------------------------------------------

    def request(self) -> bytes:
        random = self.random
        if random.random() < 0.01:
            return random.choice(
                (b"\r\n", b"\n\n", random.randbytes(30), b"PRI * HTTP/2.0\r\n\r\n")
            )
        body = self.body()
        framing = random.random()
        lines: list[bytes] = []
        if framing < 0.25:
            lines.append(b"transfer-encoding: chunked")
            wire = self.chunked(body)
        else:
            wire = body
            if body or framing < 0.5:
                lines.append(b"content-length: %d" % (len(body) + self._slip()))
        head = self.head(lines)
        return head + wire

    def head(self, lines: list[bytes]) -> bytes:
        """With the empty line."""
        random = self.random
        command, values = self.command()
        start, fields = self._spread(command, values)
        random.shuffle(fields)
        if random.random() < 0.95:
            lines.append(b"host: localhost")
        if random.random() < 0.2:
            lines.append(b"accept: " + random.choice(ACCEPTS).encode())
        if random.random() < 0.1:
            lines.append(random.choice(LINES))
        raw = b"\r\n".join((start, *lines, *fields))
        if random.random() < 0.03:
            raw = spoil(random, raw, DEFAULT_LIMITS)
        return raw + b"\r\n\r\n"

    def command(self) -> tuple[bytes, list[tuple[bytes, str]]]:
        """A command, and values for some of its parameters."""
        random = self.random
        command = random.choice(USUAL if random.random() < 0.75 else COMMANDS)
        values: list[tuple[bytes, str]] = []
        if command in TABLE:
            for name, kind in TABLE[command].kinds.items():
                wanted = 0.95 if name == b"topic" or kind is Form.OFFSETS else 0.12
                if name == b"timeout":
                    wanted = 0.4
                if random.random() < wanted:
                    values.append((name, self.value(name, kind)))
        if random.random() < 0.05:
            values.append((random.choice((b"id", b"cmd", b"topic", b"x", b"a b")), self.text()))
        if random.random() < 0.4:
            values.append((b"id", str(random.randrange(20))))
        return command, values

    def _spread(self, command: bytes, values: list[tuple[bytes, str]]) -> tuple[bytes, list[bytes]]:
        """The start line and the other lines: values are in the path, the query, or headers."""
        random = self.random
        method = random.choice((*["GET"] * 8, *["POST"] * 8, "PUT", "HEAD", "DELETE", "OPTIONS"))
        version = "1.0" if random.random() < 0.03 else "1.1"
        path, query, fields = "/", [], []
        if random.random() < 0.5:
            fields.append(b"cmd: " + command)
        elif random.random() < 0.95:
            query.append("cmd=" + command.decode())
        for plain, value in values:
            how = random.random()
            name = plain.replace(b"_", b"-") if random.random() < 0.3 else plain
            if name == b"topic" and how < 0.6 and path == "/":
                path = random.choice((*["/"] * 10, "/_log/", "//")) + self.encoded(value)
                if random.random() < 0.4:
                    path += "/" + self.encoded(random.choice(GROUPS))
            elif how < 0.5:
                query.append(f"{name.decode()}={self.encoded(value)}")
            else:
                line = name + b": " + value.encode("utf-8", "surrogateescape")
                fields.append(line.replace(b"\n", b" ").replace(b"\r", b" "))
        target = path + ("?" + random.choice((*["&"] * 20, ";")).join(query) if query else "")
        return f"{method} {target} HTTP/{version}".encode(), fields

    def encoded(self, value: str) -> str:
        """As it stands in an address; seldom as it is not allowed to."""
        raw = value.encode("utf-8", "surrogateescape")
        if self.random.random() < 0.02:
            return raw.decode("latin-1").encode("ascii", "replace").decode()
        return "".join(
            chr(byte) if chr(byte).isalnum() and byte < 128 else f"%{byte:02X}" for byte in raw
        )

    def value(self, name: bytes, kind: Kind) -> str:
        random = self.random
        if name == b"consume_group":
            return random.choice(GROUPS if random.random() < 0.9 else TEXTS)
        if name == b"recver":
            return random.choice((*TEXTS, f"session-{random.randrange(120):028d}"))
        match kind:
            case Number():
                return random.choice(NUMBERS if random.random() < 0.95 else ODD_NUMBERS)
            case Flag():
                return random.choice(("0", "1", "true", "false", "", "x"))
            case Switch():
                return random.choice((*("0", "1", "true", "false") * 4, "", "x"))
            case Duration() | Size() | Time():
                units = ("500ms", "30s", "5m", "1.5h", "7d", "1GiB", "2027-01-15T08:00:00Z", "x")
                return random.choice((*NUMBERS, *NUMBERS, *units))
            case Form.START:
                return random.choice(STARTS if random.random() < 0.9 else TEXTS)
            case Word(values):
                return random.choice((*values, "disk", "os", "memory", "json", "x"))
            case Form.NAME:
                return random.choice(TOPICS if random.random() < 0.98 else BAD_TOPICS)
            case Form.OFFSETS:
                return random.choice(OFFSETS if random.random() < 0.9 else BAD_OFFSETS)
            case Form.PAUSES:
                return random.choice(PAUSES)
            case Text() | Form.IDEMPOTENCY_KEY | Form.APPLICATION:
                return self.text()

    def text(self) -> str:
        return self.random.choice(TEXTS)

    def _slip(self) -> int:
        """A content-length is seldom not that of the body."""
        return self.random.choice((-1, 1, 100_000_000)) if self.random.random() < 0.01 else 0

    # -- bodies ---------------------------------------------------------------------------

    def body(self) -> bytes:
        random = self.random
        makers: list[Callable[[], bytes]] = [
            *[lambda: random.choice(BODIES)] * 4, self.ndjson, self.messages, self.json,
        ]  # fmt: skip
        body = random.choice(makers)()
        return self._frames.spoil(body) if body and random.random() < 0.05 else body

    def chunked(self, body: bytes) -> bytes:
        random = self.random
        most = random.choice((1, 10, 1_000, 100_000)) if len(body) < 1_000 else 10_000
        out, at = [], 0
        while at < len(body):
            piece = body[at : at + random.randint(1, most)]
            extension = random.choice((b"", b"", b";a=b", b";x"))
            out.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
            at += len(piece)
        out.append(b"0\r\n%b\r\n" % random.choice((b"", b"", b"a: b\r\n", b"id: 7\r\n")))
        data = b"".join(out)
        return self._frames.spoil(data) if random.random() < 0.03 else data

    def ndjson(self) -> bytes:
        return b"\n".join(self.json() for _ in range(self.random.choice((1, 2, 30))))

    def json(self) -> bytes:
        return msgspec.json.encode(self.random.choice(JSONS))

    def messages(self) -> bytes:
        """The container of messages."""
        random = self.random
        out = []
        for _ in range(random.choice((1, 2, 10))):
            body = random.choice(BODIES[:6])
            lines = [b"POST / HTTP/1.1", b"content-length: %d" % (len(body) + self._slip())]
            lines += [
                name + b": " + random.choice((b"1", b"a", b"0", b"ab", b"text/x"))
                for name in (b"id", b"tag", b"key", b"delay", b"idempotency-key", b"content-type")
                if random.random() < 0.2
            ]
            raw = b"\r\n".join(lines)
            if random.random() < 0.03:
                raw = spoil(random, raw, DEFAULT_LIMITS)
            out.append(raw + b"\r\n\r\n" + body)
        return b"".join(out)

    # -- frames ---------------------------------------------------------------------------

    def framed(self) -> bytes:
        """A message of a WebSocket, whole or in fragments, and what else comes there."""
        random = self.random
        how = random.random()
        if how < 0.02:
            return self._frames.many()
        if how < 0.05:
            return self._frames.wrong()
        if how < 0.06:
            return close(random.choice((1000, 1001, 4000)), random.choice((b"", b"bye")))
        if how < 0.1:
            return b"".join(self._frames.message())
        message = self.asked() if how < 0.6 else self._contained()
        kind = TEXT if message.isascii() else BINARY
        if random.random() < 0.7:
            return frame(kind, message)
        at = random.randint(0, len(message))
        between = frame(PING, b"p") if random.random() < 0.3 else b""
        return frame(kind, message[:at], fin=False) + between + frame(0, message[at:])

    def asked(self) -> bytes:
        """A request as JSON."""
        random = self.random
        command, values = self.command()
        request: dict[str, Any] = {"cmd": command.decode()}
        headers: dict[str, Any] = {}
        for name, value in values:
            said: Any = value.encode("utf-8", "replace").decode()
            if value.isascii() and value.isdecimal() and len(value) < 19 and random.random() < 0.5:
                said = int(value)
            elif random.random() < 0.03:
                said = random.choice(JSONS)
            (headers if random.random() < 0.2 else request)[name.decode()] = said
        if headers or random.random() < 0.02:
            request["headers"] = headers if random.random() < 0.98 else random.choice(JSONS)
        if random.random() < 0.6:
            request["body"] = random.choice(JSONS)
        elif random.random() < 0.1:
            request["body_base64"] = random.choice(("", "eHg=", "x", "====", "eHg", 1))
        data = msgspec.json.encode(request)
        if random.random() < 0.03:
            data = random.choice((b"{" * 2_000, b'{"a":' * 1_500, data[:-1], data + b"x", b"[1]"))
        return self._frames.spoil(data) if random.random() < 0.05 else data

    def _contained(self) -> bytes:
        """A request as HTTP."""
        body = self.random.choice(BODIES[:6])
        return self.head([b"content-length: %d" % (len(body) + self._slip())]) + body
