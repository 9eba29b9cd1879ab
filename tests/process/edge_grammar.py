"""A grammar of requests at the edge: dialects, tokens, codings, header lines and old HTTP.

A case is the bytes of one request, with what a judge has to know of it. Cases are mostly
understood, so that they reach the dialects, and each has few oddities. No case waits for messages:
a reply is due.
"""

from __future__ import annotations

import gzip
import zlib
from base64 import b64encode
from dataclasses import dataclass
from random import Random

import msgspec

from tests.conformance.websocket_client import handshake
from tests.wire.websocket_frames import close, frame

ADMIN = b"admin-token"
COUNTED = "Counted"
"""The topic whose messages are counted. No case but a produce of `counted` names it."""
TOPICS = ["T", "U", "Orders", "News"]
TOKENS = [*[ADMIN] * 20, b"shop-token", b"billing-token", b"wrong", b"", None, b"a b"]
"""None shows no token."""
TCHAR = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
STEERING = [
    b"x-accel-redirect", b"x-accel-buffering", b"x-sendfile", b"x-reproxy-url",
    b"surrogate-control",
    b"set-cookie", b"cookie", b"cache-control", b"location", b"refresh", b"date", b"server", b"via",
    b"content-location", b"content-disposition", b"content-security-policy", b"status", b"trailer",
    b"zbus-header-set-cookie", b"zbus-header-zbus-header-a", b"zbus-header-",
    b"zbus-header-content-length",
    b"traceparent", b"tracestate", b"baggage", b"ce-id", b"x-app", b"te", b"keep-alive", b"alt-svc",
    b"x-forwarded-for", b"forwarded", b"last-event-id", b"www-authenticate",
    b"strict-transport-security",
]  # fmt: skip
VALUES = [
    b"", b"1", b"a", b"/victim?cmd=remove", b"a=b; path=/", b"no-store", b"%41%zz",
    b"user=Am%C3%A9lie",
    b"\xc3\xa9", b"\xff\xfe", b"a\tb", b'"', b"x" * 300,
]  # fmt: skip
FORBIDDEN = [b"a\0b", b"a\x1bb", b"a\x7fb", b"a\rb", b"\x01"]
PARAMETERS = [
    "idempotency-key", "deliver-at", "group-ack", "group-max-attempts", "consume-window", "delay",
    "sender-headers", "retention-ms", "expire-ms", "tag", "key",
]  # fmt: skip
NUMBERS = ["0", "1", "5", "-1", "x", "", "1e3", "9" * 40, "7d", "PT1S"]
BODIES = [b"x", b"hello", b"\xff\0", b'{"a":1}', b'{"a":1}\n{"b":2}\n', b"x" * 5_000, b"z" * 70_000]
KINDS = [None, b"text/plain", b"application/json", b"application/x-ndjson", b"text/html", b"a"]
ADF = ["rpush", "lpush", "pull", "count", "lcancel", "rcancel", "delete", "clear", "createqueue"]
DELAY_QUEUE = [
    "sendMsg",
    "pullMsg",
    "longPollingMsg",
    "ackMsg",
    "getMsg",
    "deleteMsg",
    "getTopicInfo",
]
SEMQ = ["hello", "send", "lookup", "poll", "ack", "inquiry", "stat", "list", "bye", "x"]
MQ = [
    "produce", "produce/batch", "message", "ack", "unlock", "register", "unregister",
    "consumer/config",
    "config/c", "clustering/queue/offset", "find", "x",
]  # fmt: skip


@dataclass
class Case:
    """One request."""

    dialect: str
    method: str
    data: bytes
    token: bytes | None = None
    complete: bool = True  # what the head announces is there
    counted: bool = False  # its acknowledgement says that a message of COUNTED is stored
    command: bool = False  # it has a `cmd`, so its reply is in the framing of stock clients
    frames: bytes = b""  # sent once the connection is a WebSocket


class Parts:
    """What a request is made of."""

    def __init__(self, method: str, path: str) -> None:
        self.method = method
        self.path = path
        self.query: list[str] = []
        self.lines: list[bytes] = []
        self.body = b""

    def bytes(self, version: str, framing: list[bytes], body: bytes) -> bytes:
        target = self.path + ("?" + "&".join(self.query) if self.query else "")
        start = f"{self.method} {target} HTTP/{version}".encode()
        lines = [start, b"host: localhost", *self.lines, *framing, b"", b""]
        return b"\r\n".join(lines) + body


class EdgeGrammar:
    """Chooses by `random`."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def case(self) -> Case:
        random = self.random
        makers = [
            *[self._native] * 5, self._counted, self._counted,
            self._mq, self._semq, self._adf, self._camellia, self._websocket,
        ]  # fmt: skip
        return random.choice(makers)()

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    # -- dialects -------------------------------------------------------------------------

    def _native(self) -> Case:
        random = self.random
        parts = Parts(random.choice(("GET", "POST", "PUT", "HEAD")), f"/{random.choice(TOPICS)}")
        if self._chance(0.5):
            parts.path += "/g"
        command = random.choice(
            ("produce", "consume", "declare", "query", "ack", "read", "peek", "")
        )
        if command:
            line = self._chance(0.4)
            parts.lines += [b"cmd: " + command.encode()] * line
            parts.query += ["cmd=" + command] * (not line)
        parts.query.append("timeout=0")  # a GET without a `cmd` consumes, too
        self._parameters(parts)
        if command == "produce" or self._chance(0.2):
            parts.body = random.choice(BODIES)
        self._header_lines(parts)
        return self._framed("zbus", parts, command=bool(command))

    def _counted(self) -> Case:
        """A produce that may be odd, and of which the broker's word is kept."""
        parts = Parts("POST", f"/{COUNTED}")
        parts.body = self.random.choice(BODIES)
        self._header_lines(parts)
        case = self._framed("zbus", parts)
        case.counted = True
        return case

    def _parameters(self, parts: Parts) -> None:
        """`-` and `_` forms, in the query or as lines, sometimes both, sometimes at odds."""
        random = self.random
        for name in random.sample(PARAMETERS, random.choice((0, 0, 1, 2))):
            forms = random.choice(
                ([name], [name.replace("-", "_")], [name, name.replace("-", "_")])
            )
            values = random.choices(NUMBERS, k=2)
            for form, value in zip(forms, values, strict=False):
                self._parameter(parts, form, value)
            if self._chance(0.2):
                parts.lines.append(f"{name}: {values[0]}".encode())
                parts.query.append(f"{name}={values[1]}")
            if self._chance(0.1):
                parts.lines.append(b"connection: " + name.encode())

    def _parameter(self, parts: Parts, name: str, value: str) -> None:
        if self._chance(0.5):
            parts.query.append(f"{name}={value}")
        else:
            parts.lines.append(f"{name}: {value}".encode())

    def _mq(self) -> Case:
        random = self.random
        parts = Parts(random.choice(("GET", "POST", "POST")), "/mq/" + random.choice(MQ))
        fields = [
            "topic=T",
            "consumer=c",
            "producer=p",
            "message=x",
            "requestId=0-0",
            "pullTimeout=0",
        ]
        fields += ["consumeTimeout=1", "keys=a", "delayLevel=1", "id=0", 'messages=["a","b"]']
        return self._form("mq", parts, fields, keep=("pullTimeout=0",))

    def _camellia(self) -> Case:
        random = self.random
        parts = Parts("POST", "/camellia/delayQueue/" + random.choice(DELAY_QUEUE))
        fields = ["topic=U", "msg=x", "delayMillis=0", "msgId=1", "ackTimeoutMillis=100", "batch=2"]
        return self._form("camellia", parts, fields, keep=("longPollingTimeoutMillis=1",))

    def _form(self, dialect: str, parts: Parts, fields: list[str], keep: tuple[str, ...]) -> Case:
        """Most fields, in the query or in a form; `keep` stand in the query, so nothing waits."""
        fields = [field for field in fields if self._chance(0.96)]
        parts.query += keep
        if parts.method == "POST" and self._chance(0.6):
            parts.body = "&".join(fields).encode()
            parts.lines.append(b"content-type: application/x-www-form-urlencoded")
        else:
            parts.query += [field.replace('"', "%22") for field in fields]
        self._header_lines(parts)
        return self._framed(dialect, parts)

    def _semq(self) -> Case:
        random = self.random
        command = "semq_" + random.choice(SEMQ)
        parts = Parts("POST", random.choice(("/semq", "/semq/1:10008", "/semq/1:1")))
        parts.query += [
            "cmd=" + command,
            "node=1:1",
            "src=1:1",
            "dst=1:10008",
            "wait=0",
            "savefwd=0",
        ]
        parts.query += ["lk0=1:1/1/1/42", "epoch=9f00000000000001", "seq=1"] * self._chance(0.7)
        parts.body = random.choice(BODIES) * self._chance(0.7)
        self._header_lines(parts)
        return self._framed("semq", parts, command=True)

    def _adf(self) -> Case:
        random = self.random
        action = random.choice(ADF)
        path = f"/queue/{action}{random.choice(('', '.json', '.bin'))}"
        parts = Parts(random.choice(("POST", "POST", "GET")), path)
        parts.query += [
            f"queue={random.choice(('q', '%2Fq'))}",
            f"requestid={random.randrange(20)}",
        ]
        parts.query += ["timeout=1"] * (action == "pull")
        parts.body = random.choice(BODIES) if action.endswith("push") else b""
        self._header_lines(parts)
        return self._framed("adf", parts)

    def _websocket(self) -> Case:
        """A WebSocket of the broker's own, of SEMQ or of Adf, and a few frames."""
        random = self.random
        path = random.choice(("/", "/T", "/queue/json", "/queue/json/", "/queue/bin", "/semq"))
        token = self._token()
        data = handshake(path, *(["token: " + token.decode()] if token is not None else []))
        asked = [
            b'{"cmd":"ping"}', b'{"cmd":"produce","topic":"T","body":"x","set-cookie":"a=b"}',
            b'{"cmd":"consume","topic":"T","consume_group":"g","timeout":0}', b"{", b"\xff",
            b'{"action":"rpush","requestid":"1","queue":"q","body":"x"}',
            b'{"action":"count","requestid":"2","queue":"q"}', bytes(range(40)),
            b"POST /T?cmd=produce HTTP/1.1\r\nx-accel-redirect: /a\r\ncontent-length: 1\r\n\r\nx",
        ]  # fmt: skip
        messages = random.choices(asked, k=random.choice((1, 2, 6)))
        frames = b"".join(frame(1 if message.isascii() else 2, message) for message in messages)
        return Case("websocket", "GET", data, token, frames=frames + close(1000))

    # -- what all have --------------------------------------------------------------------

    def _token(self) -> bytes | None:
        return self.random.choice(TOKENS)

    def _credentials(self, parts: Parts) -> bytes | None:
        """As `token`, Bearer, or Basic with the token on either side."""
        token = self._token()
        if token is None:
            return None
        forms = (
            b"token: " + token,
            b"authorization: Bearer " + token,
            b"authorization: Basic " + b64encode(token + b":"),
            b"authorization: Basic " + b64encode(b"user:" + token),
            b"authorization: Basic " + token,
        )
        parts.lines.append(self.random.choices(forms, (8, 2, 2, 2, 1))[0])
        return token

    def _header_lines(self, parts: Parts) -> None:
        """Lines of a message as ADR 41 has them."""
        random = self.random
        for _ in range(random.choice((0, 0, 1, 2, 5))):
            name = random.choice(STEERING)
            if self._chance(0.2):
                name = bytes(random.choices(TCHAR, k=random.choice((1, 5, 40))))
            parts.lines.append(name + b": " + random.choice(VALUES))
        if self._chance(0.05):
            parts.lines.append(b"x-bad: " + random.choice(FORBIDDEN))
        if self._chance(0.05):
            count = random.choice((60, 63, 64, 65, 85, 99, 100, 101, 1_000))
            parts.lines += [b"x-many-%d: %d" % (number, number) for number in range(count)]
        if self._chance(0.05):
            size = random.choice((7_000, 8_100, 8_192, 8_193, 15_000, 16_384, 16_385, 70_000))
            parts.lines.append(b"x-long: " + b"v" * size)
        if self._chance(0.05):
            parts.lines.append(
                b"connection: " + random.choice((b"tag, x-app", b"cmd", b"close", b"te"))
            )

    def _coded(self, parts: Parts) -> bytes:
        """The body in a content coding that may be wrong, and the line that names it."""
        random = self.random
        body = parts.body
        how = random.choice(
            ("gzip", "deflate", "unknown", "truncated", "doubled", "plain", "twice")
        )
        if how in ("gzip", "truncated"):
            body = gzip.compress(body, mtime=0)
            body = body[: len(body) // 2] if how == "truncated" else body
        elif how == "deflate":
            body = zlib.compress(body)
        elif how == "doubled":
            body = gzip.compress(gzip.compress(body, mtime=0), mtime=0)
        names = {
            "doubled": b"gzip, gzip",
            "deflate": b"deflate",
            "unknown": b"x-unknown",
            "twice": b"gzip",
        }
        parts.lines += [b"content-encoding: " + names.get(how, b"gzip")] * (1 + (how == "twice"))
        return body

    def _framed(self, dialect: str, parts: Parts, *, command: bool = False) -> Case:
        random = self.random
        token = self._credentials(parts)
        body = parts.body
        if body and self._chance(0.15):
            body = self._coded(parts)
        kind = random.choice(KINDS)
        if kind and body and dialect == "zbus" and self._chance(0.5):
            parts.lines.append(b"content-type: " + kind)
        version = "1.0" if self._chance(0.06) else "1.1"
        framing, body, complete = self._framing(body)
        data = parts.bytes(version, framing, body)
        return Case(dialect, parts.method, data, token, complete, command=command)

    def _framing(self, body: bytes) -> tuple[list[bytes], bytes, bool]:
        """With a length, chunked, without either, or shorter than announced."""
        how = self.random.random()
        if how < 0.12:
            chunked = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return [b"transfer-encoding: chunked"], chunked + b"0\r\n\r\n", True
        if how < 0.16 and body:
            return [], body, False
        if how < 0.18 and body:
            return [b"content-length: %d" % (len(body) + 5)], body, False
        if how < 0.19:
            both = [b"content-length: 3", b"transfer-encoding: chunked"]
            return both, b"0\r\n\r\n", False
        return [b"content-length: %d" % len(body)] * bool(body), body, True


def document(body: bytes) -> dict[str, object]:
    """JSON of the broker."""
    return msgspec.json.decode(body, type=dict[str, object])
