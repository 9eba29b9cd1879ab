"""A NATS client on a thread of its own: requests with answers, messages to all, heartbeats.

The thread holds one connection, to any of the servers: they pass requests on to where they belong.
Without an answer in time the connection is dropped, and another server is tried; what waited for an
answer learns that there is none. Nothing is sent twice here.
"""

from __future__ import annotations

import heapq
import math
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

import attrs

from zbus.storage.jetstream.wire import (
    PING,
    PONG,
    Delivered,
    Info,
    Operation,
    Ping,
    ProtocolError,
    Reader,
    Refused,
    decode_number,
    encode_connect,
    encode_publish,
    encode_subscribe,
)
from zbus.storage.port import Post

REQUEST_S: Final = 2.0
ASK_S: Final = 0.5
"""For questions that are asked again anyway. While a leader is chosen there are no answers, and a
question from before is never answered."""
CONNECT_S: Final = 1.0
PAUSE_S: Final = 0.1
"""Between two servers that cannot be reached."""
PING_S: Final = 2.0
VERSION_MIN: Final = (2, 12, 3)
"""Earlier servers lose messages that they acknowledged, or have no atomic batches."""

_RECEIVE_BYTES: Final = 256 << 10
_PAYLOAD_SPARE: Final = 1 << 20

Answer = Callable[[list[Delivered] | str], None]
"""Receives the messages of an answer, or why there is none."""


@attrs.define(frozen=True)
class Access:
    """Servers, and credentials. `servers` are hosts and ports; with `tls` each is verified."""

    servers: Sequence[tuple[str, int]]
    user: str = ""
    password: str = ""
    token: str = ""
    tls: ssl.SSLContext | None = None


class _Request:
    """Waits for one message, or for several with one at the end that has a status."""

    __slots__ = ("deadline_s", "done", "found", "is_brief", "several")

    def __init__(self, done: Answer, several: bool, limit_s: float) -> None:
        self.done = done
        self.several = several
        self.found: list[Delivered] = []
        self.is_brief = limit_s < REQUEST_S
        self.deadline_s = time.monotonic() + limit_s


class _Heartbeat:
    """A message that is published again and again."""

    __slots__ = ("body", "due_s", "every_s", "subject")

    def __init__(self, subject: str, body: bytes, every_s: float) -> None:
        self.subject = subject
        self.body = body
        self.every_s = every_s
        self.due_s = 0.0


class NatsClient:
    """See above. Raises nothing; answers come through `post`, each exactly once."""

    def __init__(self, access: Access, post: Post) -> None:
        self.message_bytes_max = 1 << 20
        self.problem = "not connected yet"
        self.post = post
        self._access = access
        self._inbox = f"_INBOX.{os.urandom(12).hex()}"
        self._numbers = count(1)
        self._commands: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._requests: dict[str, _Request] = {}  # by the last part of the reply subject
        self._subscriptions: dict[str, list[Callable[[bytes], None]]] = {}
        self._heartbeats: dict[str, _Heartbeat] = {}  # by their subjects
        self._connection: _Connection | None = None
        self._server = 0  # its number in `access.servers`
        self._retry_s = 0.0
        self._closed = False
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="zbus-journal", daemon=True)
        self._thread.start()

    # -- what the broker's thread calls -------------------------------------------------------

    def request(
        self,
        subject: str,
        body: bytes,
        done: Answer,
        *,
        several: bool = False,
        headers: Mapping[str, str] | None = None,
        before: Sequence[bytes] = (),
        limit_s: float = REQUEST_S,
    ) -> None:
        """Ask. `before` are encoded messages that are sent with it. Without an answer for
        `REQUEST_S` the connection is dropped; a shorter limit ends the question alone."""
        request = _Request(lambda answer: self.post(partial(done, answer)), several, limit_s)
        self._submit(partial(self._request, subject, body, request, headers or {}, before))

    def publish(self, subject: str, body: bytes) -> None:
        """Send a message to all subscribers, if that is possible now."""
        self._submit(partial(self._send, encode_publish(subject, "", body)))

    def subscribe(self, pattern: str, received: Callable[[bytes], None]) -> None:
        """Call this with the body of each message of a subject that ends with `*`."""

        def subscribe() -> None:
            known = self._subscriptions.setdefault(pattern, [])
            known.append(received)
            if len(known) == 1:
                self._send([encode_subscribe(pattern, 2)])

        self._submit(subscribe)

    def beat(self, subject: str, body: bytes, every_ms: int) -> None:
        """Publish this again and again from now on, instead of what the subject had before."""

        def begin() -> None:
            self._heartbeats[subject] = _Heartbeat(subject, body, every_ms / 1_000)

        self._submit(begin)

    def later(self, ms: int, call: Callable[[], None]) -> None:
        due_s = time.monotonic() + ms / 1_000
        self._submit(partial(self._set_timer, due_s, call))

    def close(self) -> None:
        """What was submitted is sent first."""
        if self._closed:
            return
        self._closed = True
        self._wake_up()
        self._thread.join()
        self._wake.close()
        self._woken.close()

    def _submit(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake_up()

    def _wake_up(self) -> None:
        try:
            self._wake.send(b"x")
        except BlockingIOError:
            pass  # it is awake

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._connect()
            self._wait()
            while self._commands:
                self._commands.popleft()()
            self._expire()
        while self._commands:
            self._commands.popleft()()
        self._drop("closed")

    def _wait(self) -> None:
        now_s = time.monotonic()
        due_s = [now_s + PING_S, *[request.deadline_s for request in self._requests.values()]]
        if self._timers:
            due_s.append(self._timers[0][0])
        due_s += [beat.due_s for beat in self._heartbeats.values()]
        connection = self._connection
        if connection is None:
            due_s.append(self._retry_s)
        if self._commands or (connection is not None and connection.has_more()):
            due_s.append(now_s)
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if connection is not None:
            poll.register(connection.sock, select.POLLIN)
        ready = {number for number, _ in poll.poll(max(0.0, min(due_s) - now_s) * 1_000 + 1)}
        if self._woken.fileno() in ready:
            self._woken.recv(4_096)
        if connection is not None and (connection.sock.fileno() in ready or connection.has_more()):
            self._receive(connection)

    def _expire(self) -> None:
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            self.post(heapq.heappop(self._timers)[2])
        connection = self._connection
        for beat in self._heartbeats.values():
            if beat.due_s <= now_s:
                beat.due_s = now_s + beat.every_s
                self._send(encode_publish(beat.subject, "", beat.body))
        late = {number: one for number, one in self._requests.items() if one.deadline_s <= now_s}
        is_deaf = connection is not None and now_s - connection.asked_s >= REQUEST_S
        if any(is_deaf or not one.is_brief for one in late.values()):
            self._drop(f"no answer within {REQUEST_S} s")
        elif late:
            for number, request in late.items():
                del self._requests[number]
                request.done("no answer")
        elif connection is not None and now_s - connection.heard_s > PING_S:
            if connection.pinged:
                self._drop("no sign of life")
            else:
                connection.pinged, connection.heard_s = True, now_s
                self._send([PING])

    def _set_timer(self, due_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (due_s, next(self._numbers), call))

    def _connect(self) -> None:
        if self._connection is not None or time.monotonic() < self._retry_s:
            return
        servers = self._access.servers
        host, port = servers[self._server % len(servers)]
        patterns = [(f"{self._inbox}.*", 1), *[(pattern, 2) for pattern in self._subscriptions]]
        try:
            self._connection = connection = _connect(self._access, host, port, patterns)
        except (OSError, ProtocolError) as error:
            self.problem = f"{host}:{port}: {error}"
            self._server += 1
            self._retry_s = time.monotonic() + PAUSE_S
            self._end_requests(self.problem)
        else:
            self.message_bytes_max, self.problem = connection.payload_max, ""

    def _drop(self, why: str) -> None:
        """The connection is no good any more: what waits has no answer."""
        if self._connection is not None:
            self._connection.sock.close()
            self._connection = None
            self._server += 1
            self.problem = why
        self._end_requests(why)

    def _end_requests(self, why: str) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.done(why)

    def _receive(self, connection: _Connection) -> None:
        try:
            operations = connection.receive()
        except (OSError, ProtocolError) as error:
            self._drop(str(error))
            return
        for operation in operations:
            if isinstance(operation, Delivered):
                self._deliver(connection, operation)
            elif isinstance(operation, Ping):
                self._send([PONG])
            elif isinstance(operation, Refused):
                self._drop(f"the server refuses: {operation.text}")

    def _deliver(self, connection: _Connection, message: Delivered) -> None:
        if not message.subject.startswith(self._inbox):
            for pattern, receivers in self._subscriptions.items():
                if message.subject.startswith(pattern.removesuffix("*")):
                    for received in receivers:
                        self.post(partial(received, message.body))
            return
        number = message.subject.rpartition(".")[2]
        request = self._requests.get(number)
        if request is None:
            return  # nothing waits for it any more
        connection.asked_s = math.inf
        request.found.append(message)
        if not request.several or message.status:
            del self._requests[number]
            request.done(request.found)

    def _send(self, pieces: Sequence[bytes]) -> None:
        if self._connection is None:
            return
        try:
            self._connection.sock.sendall(b"".join(pieces))
        except OSError as error:
            self._drop(str(error))

    def _request(
        self,
        subject: str,
        body: bytes,
        request: _Request,
        headers: Mapping[str, str],
        before: Sequence[bytes],
    ) -> None:
        connection = self._connection
        if connection is None:
            request.done(self.problem)
            return
        connection.asked_s = min(connection.asked_s, time.monotonic())
        number = str(next(self._numbers))
        self._requests[number] = request
        reply = f"{self._inbox}.{number}"
        self._send([*before, *encode_publish(subject, reply, body, dict(headers))])


class _Connection:
    """A connection on which the server has answered once."""

    def __init__(self, sock: socket.socket, payload_max: int) -> None:
        self.sock = sock
        self.payload_max = payload_max
        self.heard_s = time.monotonic()
        self.asked_s = math.inf  # when the first question was sent that has no answer
        self.pinged = False
        self._reader = Reader(payload_max + _PAYLOAD_SPARE)

    def has_more(self) -> bool:
        """Something is decrypted already."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def receive(self) -> list[Operation]:
        """What has come. Raises OSError and ProtocolError."""
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise ProtocolError("the server closed the connection")
        self.heard_s, self.pinged = time.monotonic(), False
        return self._reader.receive(data)


def _connect(
    access: Access, host: str, port: int, patterns: Sequence[tuple[str, int]]
) -> _Connection:
    """INFO, TLS if there is to be any, CONNECT; and wait until the server answers a PING. Raises
    OSError and ProtocolError."""
    sock = socket.create_connection((host, port), CONNECT_S)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = _Connection(sock, 0)
        info = next((one for one in _operations(greeting) if isinstance(one, Info)), None)
        if info is None or not info.headers:
            raise ProtocolError("is no NATS server of version 2")
        if _version(info.version) < VERSION_MIN:
            raise ProtocolError(f"NATS server {info.version} is too old: 2.12.3 or later is needed")
        if access.tls is not None:
            sock = access.tls.wrap_socket(sock, server_hostname=host)
        elif info.tls_required:
            raise ProtocolError("the server requires TLS: set engine_ca_file")
        connection = _Connection(sock, info.max_payload)
        tls = access.tls is not None
        hello = encode_connect(access.user, access.password, access.token, tls=tls)
        subscriptions = b"".join([encode_subscribe(*pattern) for pattern in patterns])
        sock.sendall(hello + subscriptions + PING)
        for operation in _operations(connection):
            if isinstance(operation, Refused):
                raise ProtocolError(f"the server refuses: {operation.text}")
        sock.settimeout(REQUEST_S)
    except BaseException:
        sock.close()
        raise
    return connection


def _version(text: str) -> tuple[int, ...]:
    """Raises ProtocolError if it is none."""
    return tuple([decode_number(part) for part in text.partition("-")[0].split(".")])


def _operations(connection: _Connection) -> list[Operation]:
    """The next ones, at least one."""
    while not (operations := connection.receive()):
        pass
    return operations
