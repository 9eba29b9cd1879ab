"""A consumer with acknowledgements, one message at a time, beside Redis streams and NATS JetStream.

    python -m tests.bench.ack_rates [--seconds 3] [--rounds 3] [--connections 1,32]

Each connection puts a message and waits for the reply, or takes one and acknowledges it, waiting
for both replies. Bodies have 100 bytes, and one generator speaks all three protocols on raw
sockets. What pairs take was put just before. Redis with `appendfsync everysec` stands beside
durability `os`, `always` beside `disk`; NATS syncs its files every two minutes. Rounds go through
all servers in turn; rates are medians, and beside them is the least processor time of the server
for one, kernel included. Prints a table for docs/explanation/performance.md.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from tests.bench.dialect_rates import BODY, Kind, always, is_http, receive, run, settled
from tests.bench.measure import Server
from tests.bench.others import installed, nats_server, redis_server
from tests.process.broker import BrokerProcess
from tests.process.pipe import ask

# -- Redis -------------------------------------------------------------------------------------


def command(*words: bytes) -> bytes:
    """As RESP has it."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


def is_resp(data: bytes) -> bool:
    """A reply that has come in whole: a number, a word, an id, or a list that ends with a body."""
    assert not data.startswith((b"-", b"*-1")), data
    if data.startswith(b"*"):
        return data.endswith(BODY + b"\r\n")
    return data.count(b"\r\n") == 1 + data.startswith(b"$") and data.endswith(b"\r\n")


def acked_in_redis(number: int, reply: bytes) -> bytes:
    """The id is the first text after the stream's name."""
    return command(b"XACK", b"A", b"g", reply.split(b"\r\n")[7])


def redis_kinds() -> list[Kind]:
    ping = command(b"PING")
    put = command(b"XADD", b"A", b"*", b"body", BODY)

    def taken(number: int, reply: bytes) -> bytes:
        consumer = b"c%d" % number
        return command(
            b"XREADGROUP", b"GROUP", b"g", consumer, b"COUNT", b"1", b"STREAMS", b"A", b">"
        )

    return [
        Kind("put", ping, [always(put)], is_resp),
        Kind("take and ack", ping, [taken, acked_in_redis], is_resp, pulls=True),
    ]


# -- NATS --------------------------------------------------------------------------------------

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","version":"1"}\r\nPING\r\n'
STREAM = b'{"name":"S","subjects":["A"],"storage":"file","retention":"limits"}'
CONSUMER = (
    b'{"stream_name":"S","config":{"durable_name":"g","ack_policy":"explicit",'
    b'"max_ack_pending":-1,"ack_wait":60000000000}}'
)


def message_at(data: bytes) -> int:
    """Where the line of a message begins; an answer may have the server's greeting before it."""
    return 0 if data.startswith(b"MSG ") else data.find(b"\r\nMSG ") + 2


def is_nats(data: bytes) -> bool:
    """PONG, or a message that has come in whole."""
    assert b"-ERR" not in data, data
    if data.endswith(b"\nPONG\r\n"):
        return True
    at = message_at(data)
    end = data.find(b"\r\n", at)
    if not data.startswith(b"MSG ", at) or end < 0:
        return False
    return len(data) >= end + 4 + int(data[at:end].rpartition(b" ")[2])


class Inboxes:
    """Requests of NATS; each connection has a subject of its own for replies."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def _publish(self, number: int, subject: bytes, body: bytes) -> bytes:
        inbox = b"_INBOX.%d" % number
        subscribed = b"" if number in self._known else b"SUB %b 1\r\n" % inbox
        self._known.add(number)
        return b"%bPUB %b %b %d\r\n%b\r\n" % (subscribed, subject, inbox, len(body), body)

    def put(self, number: int, reply: bytes) -> bytes:
        return self._publish(number, b"A", BODY)

    def take(self, number: int, reply: bytes) -> bytes:
        return self._publish(number, b"$JS.API.CONSUMER.MSG.NEXT.S.g", b"")

    def ack(self, number: int, reply: bytes) -> bytes:
        """With a subject for the confirmation."""
        subject = reply[message_at(reply) :].split(b"\r\n", 1)[0].split(b" ")[3]
        return self._publish(number, subject, b"+ACK")

    def ask(self, subject: bytes, body: bytes) -> bytes:
        return self._publish(0, subject, body)


def nats_kinds() -> list[Kind]:
    puts, takes = Inboxes(), Inboxes()
    return [
        Kind("put", CONNECT, [puts.put], is_nats),
        Kind("take and ack", CONNECT, [takes.take, takes.ack], is_nats, pulls=True),
    ]


# -- all of them -------------------------------------------------------------------------------


def zbus_kinds(topic: str = "A") -> list[Kind]:
    plain = ask(f"/{topic}?cmd=query")
    steps = [always(ask(f"/{topic}/g?cmd=consume")), settled(f"{topic}/g")]
    return [
        Kind("put", plain, [always(ask(f"/{topic}?cmd=produce", BODY))], is_http),
        Kind("take and ack", plain, steps, is_http, pulls=True),
    ]


class Contender(NamedTuple):
    """A server, and how it is asked."""

    name: str
    server: Server
    kinds: Callable[[], list[Kind]]


def prepare(server: Server, whole: Callable[[bytes], bool], *requests: bytes) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port))) as sock:
        for request in requests:
            sock.sendall(request)
            receive(sock, whole)


def contenders(stack: ExitStack, folder: Path) -> list[Contender]:
    """Those that are installed, each with its stream and its group."""
    found = []
    for level in ("os", "disk"):
        broker = stack.enter_context(BrokerProcess(folder / level, "--durability", level))
        server = Server.of(broker)
        prepare(server, is_http, ask("/A/g?cmd=declare&ack=true"))
        found.append(Contender(f"zbus, `{level}`", server, zbus_kinds))
    if installed("redis-server"):
        for fsync in ("everysec", "always"):
            server = stack.enter_context(redis_server(folder / fsync, fsync))
            group = command(b"XGROUP", b"CREATE", b"A", b"g", b"0", b"MKSTREAM")
            prepare(server, is_resp, group)
            found.append(Contender(f"Redis, `{fsync}`", server, redis_kinds))
    if installed("nats-server"):
        server = stack.enter_context(nats_server(folder / "nats"))
        inboxes = Inboxes()
        prepare(
            server,
            is_nats,
            CONNECT,
            inboxes.ask(b"$JS.API.STREAM.CREATE.S", STREAM),
            inboxes.ask(b"$JS.API.CONSUMER.DURABLE.CREATE.S.g", CONSUMER),
        )
        found.append(Contender("NATS JetStream", server, nats_kinds))
    return found


class Found(NamedTuple):
    """What the rounds found of one kind."""

    rates: list[float]
    costs_us: list[float]

    def cell(self) -> str:
        return f"{statistics.median(self.rates):,.0f}/s, {min(self.costs_us):.0f} µs"


def measure(found: list[Contender], connections: int, seconds: float, rounds: int) -> None:
    """Prints a row for each of them."""
    columns = {one.name: [Found([], []), Found([], [])] for one in found}
    for _ in range(rounds):
        for name, server, kinds in found:
            put = 1 << 60
            for kind, column in zip(kinds(), columns[name], strict=True):
                done, took_s, cpu_s = run(*server, kind, connections, seconds, put)
                put = done
                column.rates.append(done / took_s)
                column.costs_us.append(cpu_s / done * 1e6)
    for name, cells in columns.items():
        print(f"| {name} | {connections} | " + " | ".join(one.cell() for one in cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="1,32")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zbus-acks-")))
        found = contenders(stack, folder)
        print("| | connections | put | take and acknowledge |")
        print("|---|---|---|---|")
        for connections in map(int, chosen.connections.split(",")):
            measure(found, connections, chosen.seconds, chosen.rounds)


if __name__ == "__main__":
    main()
