"""Take all messages of a topic in batches, reading no more of an answer than its length."""

from __future__ import annotations

import itertools
import socket
import time
from typing import NamedTuple

from tests.bench.lockstep import connected
from tests.bench.measure import Server, run_seconds
from tests.process.pipe import Pipe, number

CONNECTIONS = 4  # an answer is made while others are read
BATCH = 1_000
BODY = b"x" * 100
NDJSON = b"content-type: application/x-ndjson\r\n"
MESSAGES = b"accept: application/vnd.zbus.messages\r\n"  # the quickest container for the broker
HEAD_BYTES_MAX = 1_024

_groups = itertools.count()


class Drained(NamedTuple):
    """How fast it went."""

    messages_s: float
    us: float  # of the server's processor time for a message
    bytes_each: float  # on the wire


def fill(port: int, topic: str, count: int) -> None:
    """Put so many messages, in batches."""
    with Pipe(port) as pipe:
        for _ in range(count // BATCH):
            reply = pipe.get(f"/{topic}?cmd=produce", (BODY + b"\n") * BATCH, NDJSON)
            assert reply.status == 200, reply


class Answers:
    """Reads answers into one place; nobody looks at their bodies."""

    def __init__(self) -> None:
        self._space = memoryview(bytearray(4 << 20))
        self.received = 0

    def read(self, sock: socket.socket) -> int:
        """How many messages the next answer holds."""
        have = 0
        while (at := bytes(self._space[: min(have, HEAD_BYTES_MAX)]).find(b"\r\n\r\n")) < 0:
            have += self._more(sock, have)
        head = bytes(self._space[:at])
        if head.startswith(b"HTTP/1.1 204"):
            return 0
        assert head.startswith(b"HTTP/1.1 200"), head
        size = at + 4 + number(head, b"content-length")
        while have < size:
            have += self._more(sock, have)
        assert have == size
        self.received += size
        return number(head, b"count")

    def _more(self, sock: socket.socket, have: int) -> int:
        size = sock.recv_into(self._space[have:])
        assert size, "the broker closed"
        return size


def drain(server: Server, topic: str, accept: bytes = MESSAGES) -> Drained:
    """All messages that there are, by a new group."""
    target = b"/%b/drain-%d" % (topic.encode(), next(_groups))
    with Pipe(server.port) as pipe:
        assert pipe.get(target + b"?cmd=declare&group_start_offset=0").status == 200
    request = b"GET %b?cmd=consume&batch=%d&timeout=0 HTTP/1.1\r\nhost: 127.0.0.1\r\n%b\r\n"
    request %= (target, BATCH, accept)
    answers, total = Answers(), 0
    with connected(server.port, CONNECTIONS) as socks:
        began, ran = time.perf_counter(), run_seconds(server.pid)
        for sock in socks:
            sock.sendall(request)
        for sock in itertools.cycle(socks):
            count = answers.read(sock)
            if not count:
                break
            total += count
            sock.sendall(request)
        seconds, ran = time.perf_counter() - began, run_seconds(server.pid) - ran
    return Drained(total / seconds, ran / total * 1e6, answers.received / total)
