"""The four forms of Adf as one: whatever is asked can be asked in each of them, over real sockets.

    speaker = Speaker(broker, "ws-bin")
    assert speaker.ask("rpush", "1", "/q", b"hi").result == "ok"
    waiting = speaker.tell("pull", "2", "/q")
    ...
    assert waiting.take().body == b"hi"

Replies are read strictly: a binary one that is a byte too long, or a JSON object with a member too
many, fails.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.limits import WAIT_S
from tests.wire.websocket_frames import frame

CODES = {
    word: code
    for code, word in enumerate(
        (
            "lpush",
            "rpush",
            "delete",
            "pull",
            "clear",
            "count",
            "lcancel",
            "rcancel",
            "createqueue",
            "deletequeue",
        ),
        1,
    )
}
WORDS = {code: word for word, code in CODES.items()}
PUSHES, COUNTS = ("lpush", "rpush"), ("count", "clear")
KEY = "abcdefgh01234567"
"""As the stock client sends one: 16 letters and digits, which are 12 bytes in Base64."""

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Told(NamedTuple):
    """A reply, in any form. What it has not is None."""

    action: str
    id: str
    queue: str
    result: str
    body: bytes | None = None
    messageid: int | None = None
    counted: int | None = None
    duplications: int | None = None


# -- forms -------------------------------------------------------------------------------------


def binary(action: str | int, id: bytes, queue: bytes, body: bytes | None = None) -> bytes:
    """A request."""
    code = action if isinstance(action, int) else CODES[action]
    data = struct.pack("!BH", code, len(id)) + id + struct.pack("!H", len(queue)) + queue
    return data if body is None else data + struct.pack("!H", len(body)) + body


def read_binary(data: bytes) -> Told:
    """A reply, of which nothing may be left."""
    code, at = data[0], 1
    texts = []
    for _ in range(3):
        (size,) = struct.unpack_from("!H", data, at)
        texts.append(data[at + 2 : at + 2 + size].decode())
        at += 2 + size
    action, rest = WORDS.get(code, str(code)), data[at:]
    id, queue, result = texts
    told = Told(action, id, queue, result)
    if told.result != "ok" or action not in (*PUSHES, *COUNTS, "pull"):
        assert rest == b"", data
        return told
    if action in PUSHES:
        return told._replace(messageid=struct.unpack("!Q", rest)[0])
    if action in COUNTS:
        return told._replace(counted=struct.unpack("!i", rest)[0])
    (size,) = struct.unpack_from("!H", rest)
    duplications, messageid = struct.unpack("!HQ", rest[2 + size :])
    body = rest[2 : 2 + size]
    return told._replace(body=body, duplications=duplications, messageid=messageid)


MEMBERS = {
    **{action: {"messageid"} for action in PUSHES},
    **{action: {"count"} for action in COUNTS},
    "pull": {"body", "duplications", "messageid"},
}


def read_json(data: bytes) -> Told:
    """A reply, with exactly the members that it is to have."""
    found = json.loads(data)
    more = MEMBERS.get(found["action"], set()) if found["result"] == "ok" else set()
    assert found.keys() == {"action", "requestid", "queue", "result", *more}, found
    assert b"\\ud8" not in data.lower(), "the stock client cannot read surrogates"
    body = found.get("body")
    return Told(
        found["action"],
        found["requestid"],
        found["queue"],
        found["result"],
        None if body is None else body.encode(),
        found.get("messageid"),
        found.get("count"),
        found.get("duplications"),
    )


# -- connections -------------------------------------------------------------------------------


class Socket:
    """A TCP connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.buffer = b""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            self.more()
        found, _, self.buffer = self.buffer.partition(end)
        return found

    def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            self.more()
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def more(self) -> None:
        data = self.sock.recv(1 << 18)
        if not data:
            raise EOFError(f"the broker closed; unread: {self.buffer[:200]!r}")
        self.buffer += data

    def is_quiet(self) -> bool:
        return not self.buffer and not select.select([self.sock], [], [], 0.05)[0]

    def is_closed(self) -> bool:
        try:
            return self.sock.recv(1 << 16) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Without a word."""
        self.sock.close()

    def reset(self) -> None:
        """As the system does it for a process that is killed while data comes in."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def __del__(self) -> None:
        if "sock" in vars(self):  # it may never have been connected
            self.sock.close()


class Http(Socket):
    """Requests of HTTP."""

    def ask(
        self, method: str, target: str, *lines: str, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        self.request(method, target, *lines, body=body)
        status, headers = self.read_head()
        return status, headers, self.read_body(headers)

    def request(self, method: str, target: str, *lines: str, body: bytes | None = None) -> None:
        head = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *lines]
        if body is not None:
            head.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join((*head, "", "")).encode() + (body or b""))

    def read_head(self) -> tuple[int, dict[str, str]]:
        first, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, value in headers.items()}

    def read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self.exactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(self.until(b"\r\n"), 16):
            body += self.exactly(size)
            assert self.exactly(2) == b"\r\n"
        assert self.exactly(2) == b"\r\n"
        return body


def handshake(path: str, *lines: str, key: str = KEY, end: str = "\r\n") -> bytes:
    """As the stock client sends it."""
    head = (
        f"GET {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *lines,
    )
    return end.join((*head, "", "")).encode()


class WebSocket(Socket):
    """Frames; the handshake is done."""

    def __init__(self, port: int, path: str, *lines: str, key: str = KEY) -> None:
        super().__init__(port)
        self.send(handshake(path, *lines, key=key))
        head = self.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def tell(self, kind: int, message: bytes) -> None:
        self.send(frame(kind, message))

    def read(self) -> tuple[int, bytes]:
        """The next frame, which is a whole message: the stock client knows no other."""
        first, length = self.exactly(2)
        assert first & 0xF0 == 0x80, "final, and nothing reserved"
        if length == 126:
            length = int.from_bytes(self.exactly(2))
        elif length == 127:
            length = int.from_bytes(self.exactly(8))
        return first & 0x0F, self.exactly(length)


# -- speakers ----------------------------------------------------------------------------------

FORMS = ("ws-json", "ws-bin", "http-json", "http-bin")


class Speaker:
    """A client that speaks one of the forms."""

    def __init__(self, port: int, form: str, *lines: str, key: str = KEY) -> None:
        self.port = port
        self.form = form
        self.is_binary = form.endswith("bin")
        self.socket: WebSocket | None = None
        self.lines = lines
        self.stash: list[Told] = []
        if form.startswith("ws"):
            path = "/queue/bin" if self.is_binary else "/queue/json"
            self.socket = WebSocket(port, path, *lines, key=key)

    def ask(self, action: str, id: str, queue: str, body: bytes | None = None, **more: Any) -> Told:
        return self.tell(action, id, queue, body, **more).take()

    def tell(
        self, action: str, id: str, queue: str, body: bytes | None = None, **more: Any
    ) -> Waiting:
        """Without waiting for the answer. `more`: parameters."""
        if self.socket is None:
            return self._tell_http(action, id, queue, body, more)
        if self.is_binary:
            self.socket.tell(BINARY, binary(action, id.encode(), queue.encode(), body))
        else:
            request: dict[str, Any] = {"action": action, "requestid": id, "queue": queue, **more}
            if body is not None:
                request["body"] = body.decode()
            self.socket.tell(TEXT, json.dumps(request, ensure_ascii=False).encode())
        return Waiting(self, action, id)

    def _tell_http(
        self, action: str, id: str, queue: str, body: bytes | None, more: dict[str, Any]
    ) -> Waiting:
        http = Http(self.port)
        target = f"/queue/{action}.{'bin' if self.is_binary else 'json'}"
        query = f"queue={quote(queue)}&requestid={quote(id)}"
        query += "".join(f"&{name}={value}" for name, value in more.items())
        method = "POST" if body is not None else "GET"
        http.request(method, f"{target}?{query}", *self.lines, body=body)
        return Waiting(self, action, id, http)

    def read(self, data: bytes) -> Told:
        return read_binary(data) if self.is_binary else read_json(data)

    def next(self) -> Told:
        """The next reply of a WebSocket. A slow machine may be asked for a sign of life first."""
        assert self.socket is not None
        while (got := self.socket.read())[0] == PING:
            self.socket.tell(PONG, got[1])
        kind, data = got
        assert kind == (BINARY if self.is_binary else TEXT), (kind, data)
        return self.read(data)

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


class Waiting:
    """A request that is not answered yet."""

    def __init__(self, speaker: Speaker, action: str, id: str, http: Http | None = None) -> None:
        self.speaker = speaker
        self.action = action
        self.id = id
        self.http = http
        self.headers: dict[str, str] = {}

    def take(self) -> Told:
        """The answer, whatever else comes before it."""
        http, stash = self.http, self.speaker.stash
        if http is not None:
            if not self.headers:
                self.begin()
            told = self.speaker.read(http.read_body(self.headers))
            http.close()
            return told
        while True:
            for told in stash:
                if (told.action, told.id) == (self.action, self.id):
                    stash.remove(told)
                    return told
            stash.append(self.speaker.next())

    def begin(self) -> None:
        """The head of a reply of HTTP, which comes before the pull is served."""
        assert self.http is not None
        status, self.headers = self.http.read_head()
        kind = "octet-stream" if self.speaker.is_binary else "json"
        assert (status, self.headers["content-type"]) == (200, f"application/{kind}")

    def seated(self) -> Waiting:
        """It is known to wait. (What a WebSocket asked before another request came before it.)"""
        if self.http is not None:
            self.begin()
        else:
            self.speaker.ask("count", "seated", "/")
        return self

    def is_quiet(self) -> bool:
        """No answer has come."""
        if self.http is not None:
            return self.http.is_quiet()
        self.speaker.ask("count", "quiet", "/")
        return all((told.action, told.id) != (self.action, self.id) for told in self.speaker.stash)
