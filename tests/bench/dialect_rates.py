"""What the dialects cost beside the native one: rates and processor time, in one run on one broker.

    python -m tests.bench.dialect_rates [--seconds 5] [--connections 1,32] [--durability os,disk]

Each connection has one request under way. All send, and when all are answered all send again: so a
rate is that of clients which wait for their replies. Bodies have 100 bytes. A pair is a pull and
what settles it. Only ratios of one run count; the processor time is the broker's, kernel included.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from tests.bench.large import folder, timed_start
from tests.bench.measure import run_seconds, show
from tests.process.pipe import ask

BODY = b"x" * 100
Step = Callable[[int, bytes], bytes]
"""The next request of a connection, by its number, after this reply."""


class Kind(NamedTuple):
    """What one connection does, again and again."""

    name: str
    first: bytes  # asked once on each connection
    steps: Sequence[Step]
    whole: Callable[[bytes], bool]  # these bytes are a reply that is a success
    pulls: bool = False  # it takes what was put before
    native: str = ""  # what it is compared with
    batch: int = 1  # messages of a pull


# -- HTTP --------------------------------------------------------------------------------------


def is_http(data: bytes) -> bool:
    """A reply that has come in whole."""
    head, blank, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), data
    lines = head.lower().split(b"\r\n")
    for line in lines:
        if line.startswith(b"content-length: "):
            return bool(blank) and len(body) >= int(line[16:])
    return bool(blank)


def header(reply: bytes, name: bytes) -> bytes:
    at = reply.index(b"\r\n" + name + b": ") + len(name) + 4
    return reply[at : reply.index(b"\r\n", at)]


def settled(topic: str) -> Step:
    return lambda number, reply: ask(f"/{topic}?cmd=ack&offset={header(reply, b'offset').decode()}")


def settled_in_its_partition(number: int, reply: bytes) -> bytes:
    index = header(reply, b"partition") if b"\r\npartition: " in reply else b"0"
    offset = header(reply, b"offset")
    return ask(b"/Parts?cmd=ack&partition=%b&offset=%b" % (index, offset))


def form_post(path: str, form: bytes) -> bytes:
    lines = b"content-type: application/x-www-form-urlencoded\r\n"
    return b"POST" + ask(path, form, lines)[3:]


def delayed(verb: str, form: bytes) -> bytes:
    """As camellia's client asks."""
    return form_post(f"/camellia/delayQueue/{verb}", form)


SEND = delayed("sendMsg", b"topic=C&delayMillis=0&msg=" + BODY)
TAKE = delayed("pullMsg", b"topic=C&batch=1")


def acked(number: int, reply: bytes) -> bytes:
    at = reply.index(b'"msgId":"') + 9
    return delayed("ackMsg", b"topic=C&msgId=" + reply[at : reply.index(b'"', at)])


GROUPS = (
    "T/T?ack=true",
    "Tries/Tries?ack=true&group_max_attempts=5",
    "Parts/Parts?ack=true&partitions=8",
)
PRODUCE = form_post("/mq/produce", b"producer=M-producer&message=" + BODY)
REGISTER = [
    form_post("/mq/register", b"topic=M&" + name)
    for name in (b"producer=M-producer", b"consumer=M", b"consumer=N")
]
BATCH = 32
TAKEN = "/mq/message?topic=M&consumer={}&maxPullSize={}&pop=true"


def unlimited(consumer: str) -> bytes:
    body = b'{"consumer":"%b","rateLimitEnabled":0}' % consumer.encode()
    return b"POST" + ask("/mq/consumer/config", body)[3:]


def batch_id(reply: bytes) -> str:
    at = reply.index(b'"requestId":"') + 13
    return reply[at : reply.index(b'"', at)].decode()


def batch_acked(number: int, reply: bytes) -> bytes:
    return ask(f"/mq/ack?topic=M&consumer=M&pop=true&requestId={batch_id(reply)}")


def acked_with_the_next(number: int, reply: bytes) -> bytes:
    known = batch_id(reply) if b'"requestId"' in reply else ""
    return ask(TAKEN.format("N", BATCH) + f"&requestId={known}")


# -- WebSocket ---------------------------------------------------------------------------------

UPGRADE = ask(
    "/queue/bin",
    b"",
    b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n",
)
LPUSH, RPUSH, DELETE, PULL = 1, 2, 3, 4


def frame(payload: bytes) -> bytes:
    """A masked frame whose mask changes nothing."""
    size = bytes([0x80 | len(payload)])
    if len(payload) > 125:
        size = b"\xfe" + struct.pack("!H", len(payload))
    return b"\x82" + size + b"\0\0\0\0" + payload


class Deque:
    """Requests of Adf, each with an id of its own."""

    def __init__(self) -> None:
        self._count = 0
        self._pulled: dict[int, bytes] = {}

    def _ask(self, action: int, id: bytes, body: bytes | None = None) -> bytes:
        data = struct.pack("!BH", action, len(id)) + id + b"\0\1A"
        return frame(data if body is None else data + struct.pack("!H", len(body)) + body)

    def _id(self) -> bytes:
        self._count += 1
        return b"%d" % self._count

    def push(self, number: int, reply: bytes) -> bytes:
        return self._ask(RPUSH, self._id(), BODY)

    def pull(self, number: int, reply: bytes) -> bytes:
        id = self._pulled[number] = self._id()
        return self._ask(PULL, id)

    def delete(self, number: int, reply: bytes) -> bytes:
        return self._ask(DELETE, self._pulled[number])


def is_frame(data: bytes) -> bool:
    if data.startswith(b"HTTP/1.1 101 "):
        return data.endswith(b"\r\n\r\n")
    size, at = data[1], 2
    if size == 126:
        size, at = struct.unpack_from("!H", data, 2)[0], 4
    if len(data) < at + size:
        return False
    assert b"\0\2ok" in data, data
    return True


# -- measuring ---------------------------------------------------------------------------------


def always(request: bytes) -> Step:
    return lambda number, reply: request


def kinds() -> list[Kind]:
    deque = Deque()
    put, pair = "native put", "native pull and ack"
    plain = ask("/T?cmd=query")
    return [
        Kind(put, plain, [always(ask("/T?cmd=produce", BODY))], is_http),
        Kind(pair, plain, [always(ask("/T?cmd=consume")), settled("T")], is_http, True),
        Kind("native put", plain, [always(ask("/Tries?cmd=produce", BODY))], is_http),
        Kind(
            "native pull and ack, attempts limited",
            plain,
            [always(ask("/Tries?cmd=consume")), settled("Tries")],
            is_http,
            True,
            pair,
        ),
        Kind("native put", plain, [always(ask("/Parts?cmd=produce", BODY))], is_http),
        Kind(
            "native pull and ack, eight partitions",
            plain,
            [always(ask("/Parts?cmd=consume")), settled_in_its_partition],
            is_http,
            True,
            pair,
        ),
        Kind("camellia sendMsg", SEND, [always(SEND)], is_http, native=put),
        Kind("camellia pullMsg and ackMsg", SEND, [always(TAKE), acked], is_http, True, pair),
        Kind("mqcloud produce", plain, [always(PRODUCE)], is_http, native=put),
        Kind(
            "mqcloud message of one and ack",
            plain,
            [always(ask(TAKEN.format("M", 1))), batch_acked],
            is_http,
            True,
            pair,
        ),
        Kind("mqcloud produce", plain, [always(PRODUCE)], is_http, native=put),
        Kind(
            "mqcloud message of 32, acked with the next",
            ask(TAKEN.format("N", BATCH)),
            [acked_with_the_next],
            is_http,
            True,
            pair,
            BATCH,
        ),
        Kind("adf rpush", UPGRADE, [deque.push], is_frame, native=put),
        Kind("adf pull and delete", UPGRADE, [deque.pull, deque.delete], is_frame, True, pair),
    ]


def receive(sock: socket.socket, whole: Callable[[bytes], bool]) -> bytes:
    data = sock.recv(1 << 16)
    while not whole(data):
        more = sock.recv(1 << 16)
        assert more, data
        data += more
    return data


def run(
    port: int, pid: int, kind: Kind, connections: int, seconds: float, most: int
) -> tuple[int, float, float]:
    """How many rounds of its steps, in how many seconds, for how much of the broker's time."""
    with ExitStack() as stack:
        socks = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), 60)))
            for _ in range(connections)
        ]
        replies = [b""] * connections
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(kind.first)
            receive(sock, kind.whole)
        cpu, began, done = run_seconds(pid), time.monotonic(), 0
        while time.monotonic() - began < seconds and done + connections <= most:
            for step in kind.steps:
                for number, sock in enumerate(socks):
                    sock.sendall(step(number, replies[number]))
                for number, sock in enumerate(socks):
                    replies[number] = receive(sock, kind.whole)
            done += connections
        return done, time.monotonic() - began, run_seconds(pid) - cpu


def measure(port: int, pid: int, connections: int, seconds: float) -> None:
    """Every kind; what pulls takes no more than was put before it."""
    native: dict[str, tuple[float, float]] = {}
    put = 0
    for kind in kinds():
        most = put // kind.batch if kind.pulls else 1 << 60
        done, took_s, cpu_s = run(port, pid, kind, connections, seconds, most)
        put = 0 if kind.pulls else done
        rate, cost_us = done / took_s, cpu_s / done * 1e6
        native.setdefault(kind.name, (rate, cost_us))
        beside_rate, beside_us = native[kind.native or kind.name]
        show(
            what=kind.name,
            connections=connections,
            a_second=rate,
            of_native=rate / beside_rate,
            cpu_us=cost_us,
            cpu_of_native=cost_us / beside_us,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", default="1,32")
    parser.add_argument("--durability", default="os,disk")
    chosen = parser.parse_args()
    for durability in chosen.durability.split(","):
        for connections in map(int, chosen.connections.split(",")):
            with folder() as data_dir:
                broker, _ = timed_start(data_dir, "--durability", durability)
                with closing(socket.create_connection(("127.0.0.1", broker.port))) as sock:
                    for group in GROUPS:
                        sock.sendall(ask(f"/{group}&cmd=declare"))
                        receive(sock, is_http)
                    for request in REGISTER:
                        sock.sendall(request)
                        receive(sock, is_http)
                    for consumer in "MN":
                        sock.sendall(unlimited(consumer))
                        receive(sock, is_http)
                show(durability=durability, connections=connections, cores=os.cpu_count() or 0)
                measure(broker.port, broker.process.pid, connections, chosen.seconds)
                broker.kill()


if __name__ == "__main__":
    main()
