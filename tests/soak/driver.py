"""The process of attackers: drives many connections of one kind, until its standard input ends.

    python -m tests.soak.driver NAME --port P --secure-port S --connections N

It says `ready`, begins with the first line that it is told, and at the end says in a line of JSON
what it did. It is nice to others: what is measured is how fair the broker is, not the scheduler.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from tests.soak.attack import Attack, Leaves, Reads
from tests.soak.attacks import ATTACKS

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT
NICENESS: Final = 10
RECEIVE_BYTES: Final = 256 << 10
SMALL_BUFFER_BYTES: Final = 4 << 10  # of who does not read: the kernel is not to read for it

Timer = tuple[float, int, Callable[[], None]]


class Drive:
    """All connections, and what they did together."""

    def __init__(self, attack: Attack, port: int) -> None:
        self.attack = attack
        self.address = ("127.0.0.1", port)
        self.poll = select.epoll()
        self.by_number: dict[int, Hostile] = {}
        self.counts: Counter[str] = Counter()
        self.replies: Counter[str] = Counter()  # as far as a read begins with one
        self.buffer = bytearray(RECEIVE_BYTES)
        self._timers: list[Timer] = []
        self._serial = itertools.count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._serial), act))

    def run(self, connections: int) -> None:
        """Until standard input ends."""
        stdin = sys.stdin.fileno()
        self.poll.register(stdin, IN)
        hostiles = [Hostile(self, number) for number in range(connections)]
        for hostile in hostiles:
            hostile.come()
        while True:
            for number, events in self.poll.poll(self._run_timers()):
                if number == stdin:
                    return
                if number in self.by_number:
                    self.by_number[number].serve(events)

    def _run_timers(self) -> float | None:
        """Do what is due; the seconds until the next is."""
        while self._timers:
            seconds = self._timers[0][0] - time.monotonic()
            if seconds > 0:
                return seconds
            heapq.heappop(self._timers)[2]()
        return None

    def told(self, count: int) -> None:
        """So many bytes of replies are in the buffer."""
        self.counts["received_bytes"] += count
        if self.buffer.startswith(b"HTTP/1."):
            self.replies[self.buffer[9:12].decode("latin-1")] += 1


class Hostile:
    """A connection, and those that come in its place."""

    def __init__(self, drive: Drive, number: int) -> None:
        self.drive = drive
        self.attack = drive.attack
        self.number = number
        self.life = 0  # the connections before; timers of those mean nothing any more
        self.sock: socket.socket | None = None
        self.script: Iterator[bytes] = iter(())
        self.block = memoryview(b"")

    def come(self) -> None:
        self.life += 1
        sock = self.sock = socket.socket()
        sock.setblocking(False)
        if self.attack.reads is not Reads.ALL:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.script = iter(self.attack.script(self.number))
        self.block = memoryview(b"")
        self.drive.counts["connections"] += 1
        self.drive.by_number[sock.fileno()] = self
        self.drive.poll.register(sock, self._events(writes=True))
        sock.connect_ex(self.drive.address)
        if self.attack.reads is Reads.SLOWLY:
            self._later(1.0, self._sip)

    def leave(self, returns_s: float = 0.0) -> None:
        """Close, and come again."""
        if self.sock is None:
            return
        self.drive.by_number.pop(self.sock.fileno(), None)
        self.sock.close()
        self.sock = None
        if returns_s:
            self._later(returns_s, self.come)
        else:
            self.come()

    def serve(self, events: int) -> None:
        try:
            if events & IN:
                self._read()
            if events & OUT and self.sock is not None:
                self._write(self.sock)
            elif events & ~(IN | OUT):  # closed or reset
                self._lost()
        except BlockingIOError:
            pass
        except OSError:
            self._lost()

    def _events(self, writes: bool) -> int:
        reads = IN if self.attack.reads is Reads.ALL else select.EPOLLRDHUP
        return reads | (OUT if writes else 0)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        """Unless this connection is over by then."""
        life = self.life
        self.drive.after(seconds, lambda: act() if self.life == life else None)

    def _lost(self) -> None:
        if self.sock is not None:
            self.drive.counts["closed_by_broker"] += 1
            self.leave(self.attack.returns_s)

    def _read(self) -> None:
        assert self.sock is not None
        count = self.sock.recv_into(self.drive.buffer)
        if not count:
            return self._lost()
        self.drive.told(count)
        if self.attack.leaves is Leaves.ANSWERED:
            self.leave()

    def _sip(self) -> None:
        """A byte of what came."""
        if self.sock is None:
            return
        try:
            if self.sock.recv(1):
                self.drive.counts["received_bytes"] += 1
        except BlockingIOError:
            pass
        except OSError:
            return self._lost()
        self._later(1.0, self._sip)

    def _write(self, sock: socket.socket) -> None:
        if not self.block:
            block = next(self.script, None)
            if block is None:
                return self._all_is_sent(sock)
            self.block = memoryview(block)
        sent = sock.send(self.block) if self.block else 0
        self.drive.counts["sent_bytes"] += sent
        self.block = self.block[sent:]
        if not self.block and self.attack.pause_s:
            self.drive.poll.modify(sock, self._events(writes=False))
            self._later(self.attack.pause_s, self._write_on)

    def _write_on(self) -> None:
        if self.sock is not None:
            self.drive.poll.modify(self.sock, self._events(writes=True))

    def _all_is_sent(self, sock: socket.socket) -> None:
        self.drive.poll.modify(sock, self._events(writes=False))
        if self.attack.leaves is Leaves.SENT:
            self._later(self.attack.rest_s, self.leave)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(ATTACKS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--secure-port", type=int, required=True)
    parser.add_argument("--connections", type=int, required=True)
    given = parser.parse_args()
    attack = ATTACKS[given.name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    os.nice(NICENESS)
    for _ in itertools.islice(attack.script(0), 2):
        pass  # what it sends is made now
    drive = Drive(attack, given.secure_port if attack.secure else given.port)
    print("ready", flush=True)
    if os.read(sys.stdin.fileno(), 1):
        drive.run(given.connections)
    print(json.dumps({**drive.counts, "replies": drive.replies}), flush=True)


if __name__ == "__main__":
    main()
