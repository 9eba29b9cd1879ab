"""Processor time of a server for a request, measured so that a busy machine does not change it.

What a request costs depends on how many are served together, and on whether the reader of a reply
sleeps when it is sent: moods of the scheduler as long as generator and server run side by side.
Here they take turns on one core. Every connection sends one request, then the generator waits; the
server finds all of them at once, answers, and has nothing more to do. Neither interrupts the other
(SCHED_BATCH), and only the time in which the server itself ran is counted, kernel included. So a
round is the same whatever else the machine does, but for what others do to the caches. Rounds are
many and short, and the least is the figure.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, repeat
from random import Random
from typing import Literal, NamedTuple

from tests.bench.measure import Server, run_seconds, system_seconds
from tests.bench.templates import BODY_END, Template, crowd_requests, get, post

CONNECTIONS = 32
REQUESTS = 6_400  # of a round
ALONE = 1_000  # of a round in which each comes alone
OK = b"HTTP/1.1 200 "
BLANK = b"\r\n\r\n"
BODY = BODY_END.rjust(128, b"x").decode()


class Line(NamedTuple):
    """One kind of request."""

    name: str
    topic: str
    command: str
    sent: Literal["alike", "ids", "crowd"] = "alike"  # the latter two put bodies with an end
    connections: int = CONNECTIONS

    @property
    def end(self) -> bytes:
        """What every request ends with."""
        return BODY_END if self.sent != "alike" and self.command == "produce" else BLANK

    def requests(self) -> Iterator[bytes]:
        """Without end; for the connections in turn."""
        target, host = f"/{self.topic}?cmd={self.command}", "127.0.0.1"
        if self.sent == "crowd" and self.command == "produce":
            return crowd_requests(target, host, self.connections)
        if self.sent != "ids":
            return repeat(get(target, host=host))
        line = "id: {id}"
        text = get(target, line, host=host)
        if self.command == "produce":
            text = post(target, line, body=BODY, host=host)
        template, random = Template.of(text), Random()
        return (template.fill(n, random) for n in count())


# A pull takes what the put above it has put.
LINES = (
    Line("put", "Plain", "produce"),
    Line("pull", "Plain", "consume"),
    Line("put, unique ids", "Ids", "produce", "ids"),
    Line("pull, unique ids", "Ids", "consume", "ids"),
    Line("put, a crowd of clients", "Crowd", "produce", "crowd"),
    Line("pull of that", "Crowd", "consume", "crowd"),
    Line("put, one a turn", "Alone", "produce", connections=1),
    Line("pull, one a turn", "Alone", "consume", connections=1),
)


class Cost(NamedTuple):
    """Microseconds of a server's processor time for one request."""

    us: float
    system_us: float  # the kernel's share; counted in ticks of 10 ms, so not to the percent


@contextmanager
def one_core(*pids: int) -> Iterator[None]:
    """These processes and this one take turns on one core until the end."""
    cores = os.sched_getaffinity(0)
    everybody = [*pids, os.getpid()]
    _move(everybody, {max(cores)}, os.SCHED_BATCH)
    try:
        yield
    finally:
        _move(everybody, cores, os.SCHED_OTHER)


def _move(pids: Sequence[int], cores: set[int], policy: int) -> None:
    for pid in pids:
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            try:
                os.sched_setaffinity(thread, cores)
                os.sched_setscheduler(thread, policy, os.sched_param(0))
            except ProcessLookupError:
                pass  # it has ended


@contextmanager
def connected(port: int, connections: int) -> Iterator[list[socket.socket]]:
    """So many connections, closed at the end."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(connections)
        ]


def exchange(socks: Sequence[socket.socket], requests: Iterator[bytes], rounds: int) -> None:
    """One request on each connection, then all replies, so many times. Every reply must be a
    success, and so short that it comes in one piece."""
    pairs = [(sock.send, sock.recv) for sock in socks]
    for _ in range(rounds):
        for send, _ in pairs:
            send(next(requests))
        for _, receive in pairs:
            data = receive(1 << 16)
            assert data.startswith(OK), data


def cost(server: Server, line: Line) -> Cost:
    """Of one round."""
    rounds = ALONE if line.connections == 1 else REQUESTS // line.connections
    requests = line.requests()
    with connected(server.port, line.connections) as socks:
        exchange(socks, requests, 2)
        before = run_seconds(server.pid), system_seconds(server.pid)
        exchange(socks, requests, rounds)
        after = run_seconds(server.pid), system_seconds(server.pid)
    run_s, system_s = (end - begin for begin, end in zip(before, after, strict=True))
    sent = rounds * line.connections
    return Cost(run_s / sent * 1e6, system_s / sent * 1e6)


def costs(
    rounds: int, lines: Sequence[Line], *choices: Callable[[Line], Server]
) -> dict[str, list[list[Cost]]]:
    """By line, for each of the servers that are to be compared: the costs of all rounds, taken in
    turn."""
    pids = {choose(line).pid for line in lines for choose in choices}
    found: dict[str, list[list[Cost]]] = {line.name: [[] for _ in choices] for line in lines}
    with one_core(*pids):
        for _ in range(rounds):
            for line in lines:
                for choose, taken in zip(choices, found[line.name], strict=True):
                    taken.append(cost(choose(line), line))
    return found
