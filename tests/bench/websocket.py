"""Produce over plain HTTP and over WebSocket in both forms, one after another, several rounds.

    python -m tests.bench.websocket [rounds]

Every request has an id of its own and a body of 128 bytes. Requests are prepared, and replies only
counted, so that it is the broker that is measured.
"""

from __future__ import annotations

import select
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.bench.measure import cpu_seconds
from tests.process.broker import BrokerProcess, Wire
from tests.process.websocket import WebSocket
from tests.wire.websocket_frames import frame

CONNECTIONS = 32
DEPTH = 8
REQUESTS = 40_000
BODY = b"x" * 128


def http(number: int) -> bytes:
    head = b"POST / HTTP/1.1\r\ncmd: produce\r\ntopic: T\r\nid: a%d\r\ncontent-length: %d\r\n\r\n"
    return head % (number, len(BODY)) + BODY


def json(number: int) -> bytes:
    request = {"cmd": "produce", "topic": "T", "id": f"a{number}", "body": BODY.decode()}
    return frame(1, msgspec.json.encode(request))


FORMS = {
    "HTTP": (http, b"HTTP/1.1 200 "),
    "WebSocket, HTTP": (lambda number: frame(2, http(number)), b"HTTP/1.1 200 "),
    "WebSocket, JSON": (json, b'{"status":200,'),
}


def measure(wires: list[Wire], blocks: Iterator[bytes], mark: bytes) -> float:
    """Requests a second."""
    poll = select.epoll()
    by_number = {wire.sock.fileno(): wire for wire in wires}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    waiting = dict.fromkeys(by_number, DEPTH)
    rest = dict.fromkeys(by_number, b"")
    open_ = len(wires)
    started = time.perf_counter()
    for wire in wires:
        wire.send(next(blocks))
    while open_:
        for number, _ in poll.poll():
            data = rest[number] + by_number[number].sock.recv(1 << 16)
            waiting[number] -= data.count(mark)
            rest[number] = data[-len(mark) + 1 :]
            if not waiting[number]:
                block = next(blocks, b"")
                waiting[number] = DEPTH
                if block:
                    by_number[number].send(block)
                else:
                    open_ -= 1
    return REQUESTS / (time.perf_counter() - started)


def main(rounds: int) -> None:
    prepared = {
        name: [
            b"".join(make(number) for number in range(begin, begin + DEPTH))
            for begin in range(0, REQUESTS, DEPTH)
        ]
        for name, (make, _) in FORMS.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in FORMS}
    costs: dict[str, list[float]] = {name: [] for name in FORMS}  # us of processor time each
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder) / "data", "--durability", "os") as broker,
    ):
        assert broker.get("/T?cmd=declare&durability=os").status == 200
        for _ in range(rounds):
            for name, (_, mark) in FORMS.items():
                if name == "HTTP":
                    wires = [broker.connect() for _ in range(CONNECTIONS)]
                else:
                    wires = [WebSocket(broker.connect()).wire for _ in range(CONNECTIONS)]
                before = cpu_seconds(broker.process.pid)
                rates[name].append(measure(wires, iter(prepared[name]), mark))
                spent = cpu_seconds(broker.process.pid) - before
                costs[name].append(spent / REQUESTS * 1e6)
                for wire in wires:
                    wire.close()
        broker.stop()
    plain = statistics.median(rates["HTTP"])
    for name, found in rates.items():
        rate, cost = statistics.median(found), statistics.median(costs[name])
        print(f"{name:16} {rate:9.0f}/s  {rate / plain:.2f} of plain HTTP, {cost:.1f} us each")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
