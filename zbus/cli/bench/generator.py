"""The load generator: one thread, one poller, many connections, as little Python as possible.

Each connection works in windows: it sends D requests at once, waits for their D replies, sends the
next. Every reply's latency counts from the sending of its window. Replies are told apart by their
framing alone (`content-length`; a 204 has none), never by order or id, so a broker that answers
out of order is measured just as well.

A reply costs least when it begins like the one before: `_Connection.prefix` holds the bytes of the
last reply up to the end of its content-length line, and a reply that starts with them has the same
status and length, without parsing. Then only the end of its head is searched.

All that is ready is received before anything is sent. A send to a server that sleeps costs ten
times a send to one that is awake; sending in bursts keeps it awake, as many real clients would.
For the same reason the poller is asked once without waiting before it is asked to wait.

`select.epoll` is used bare where there is one: `selectors` would cost 0.4 µs more for each event.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from zbus.cli.bench.options import Options, Requests
from zbus.cli.bench.report import TICK_SHIFT, Phase
from zbus.cli.remote import CONNECT_TIMEOUT_S, MESSAGES_TYPE, Unreachable, address

READ, WRITE = select.POLLIN, select.POLLOUT  # epoll has the same numbers
RECEIVE_BYTES = 64 << 10
POLL_S = 0.1
PROGRESS_NS = 100_000_000
NO_CONTENT = 204

_LENGTH = b"\r\ncontent-length:"
_TYPE = MESSAGES_TYPE.encode()


class Malformed(Exception):
    """Bytes from the broker that are no reply."""


class _Connection:
    """One socket and where it is in its window."""

    __slots__ = (
        "buffer",
        "chunks",
        "chunks_bytes",
        "needed_bytes",
        "outstanding",
        "prefix",
        "prefix_counts",
        "prefix_length",
        "sent_ns",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.outstanding = 0  # requests of this window without a reply
        self.sent_ns = 0
        self.unsent = b""
        self.buffer = b""  # the beginning of a reply
        self.chunks: list[bytes] = []  # more of it, joined when `needed_bytes` are there
        self.chunks_bytes = 0
        self.needed_bytes = 0
        self.prefix = b"\0"  # begins no reply
        self.prefix_length = 0
        self.prefix_counts = 200  # the status


class Generator:
    """Runs one phase over its share of connections and messages."""

    def __init__(
        self,
        options: Options,
        phase: str,
        connections: int,
        messages: int,
        progress: Callable[[int], None] = lambda _messages: None,
    ) -> None:
        self.options = options
        self.phase = Phase(phase)
        self.requests = Requests(options, phase)
        self.budget = messages  # messages that no request was sent for yet
        self.window = options.pipeline
        self.batch = options.batch
        self.pulling = phase == "consume"
        self.progress = progress
        self.samples: dict[int, int] = {}  # ticks of latency: how often, since the last fold
        self.connections: dict[int, _Connection] = {}
        self.answered: list[tuple[int, _Connection]] = []  # to be given their next window
        # The two have one interface, but for the unit of a timeout.
        self.poller: select.epoll | select.poll
        if hasattr(select, "epoll"):
            self.poller, self.poll_wait = select.epoll(), POLL_S
        else:
            self.poller, self.poll_wait = select.poll(), POLL_S * 1000
        self._connect(connections)

    def _connect(self, number: int) -> None:
        host, port = address(self.options.url)
        for _ in range(number):
            try:
                sock = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
            except OSError as error:
                self.close()
                raise Unreachable(
                    f"cannot connect to a broker at {host}:{port}: {error.strerror or error}"
                ) from None
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            self.connections[sock.fileno()] = _Connection(sock)
            self.poller.register(sock.fileno(), READ)

    def close(self) -> None:
        """Leave every connection; pulls still open go with them."""
        for connection in self.connections.values():
            connection.sock.close()
        self.connections.clear()
        if isinstance(self.poller, select.epoll):
            self.poller.close()

    def run(self) -> Phase:
        """Work until the messages are done, the time is over, or the broker does not answer."""
        phase = self.phase
        cpu_ns = time.process_time_ns()
        phase.started_ns = time.perf_counter_ns()
        self.answered += self.connections.items()
        try:
            self._answer()
            self._loop()
        finally:
            self.close()
        if not phase.requests:
            phase.ended_ns = time.perf_counter_ns()
        phase.cpu_ns = time.process_time_ns() - cpu_ns
        phase.latency.add(self.samples)
        self.progress(phase.messages)
        return phase

    def _loop(self) -> None:
        poll, wait, connections = self.poller.poll, self.poll_wait, self.connections
        clock = time.perf_counter_ns
        started_ns = self.phase.ended_ns = self.phase.started_ns
        limit_ns = int(self.options.seconds * 1e9)
        stall_ns = int(self.options.stall_timeout_s * 1e9)
        fold_ns = started_ns
        while connections:
            for fd, mask in poll(0) or poll(wait):
                connection = connections.get(fd)
                if connection is None:
                    continue
                try:
                    if mask & WRITE:
                        self._send(fd, connection, connection.unsent)
                    if mask & ~WRITE:
                        self._receive(fd, connection)
                except (OSError, Malformed) as error:
                    self._lose(fd, connection, error)
            self._answer()
            now_ns = clock()
            if now_ns - fold_ns > PROGRESS_NS:
                fold_ns = now_ns
                self._fold()
                if limit_ns and now_ns - started_ns > limit_ns:
                    self.budget = 0  # what was sent is still waited for
                if now_ns - self.phase.ended_ns > stall_ns:
                    self.phase.fail("no reply", sum(c.outstanding for c in connections.values()))
                    return

    def _answer(self) -> None:
        """Send the next window on every connection that has all its replies."""
        answered, clock = self.answered, time.perf_counter_ns
        for fd, connection in answered:
            try:
                self._refill(fd, connection, clock())
            except OSError as error:
                self._lose(fd, connection, error)
        answered.clear()

    def _fold(self) -> None:
        """Move the samples into the histogram, so that they stay few."""
        self.phase.latency.add(self.samples)
        self.samples.clear()
        self.progress(self.phase.messages)

    def _lose(self, fd: int, connection: _Connection, error: Exception) -> None:
        self.phase.fail("malformed reply" if type(error) is Malformed else "connection lost")
        self._leave(fd, connection)

    def _leave(self, fd: int, connection: _Connection) -> None:
        self.poller.unregister(fd)
        connection.sock.close()
        del self.connections[fd]

    def _refill(self, fd: int, connection: _Connection, now_ns: int) -> None:
        """Send the next window, or leave when there is nothing left to ask for."""
        count = self.window
        budget = self.budget
        if budget < count * self.batch:
            count = -(-budget // self.batch)
            if count <= 0:
                self._leave(fd, connection)
                return
        self.budget = budget - count * self.batch
        connection.outstanding = count
        connection.sent_ns = now_ns
        self._send(fd, connection, self.requests.block(count))

    def _send(self, fd: int, connection: _Connection, data: bytes) -> None:
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        self.phase.sent_bytes += sent
        if sent < len(data):
            connection.unsent = data[sent:]
            self.poller.modify(fd, READ | WRITE)
        elif connection.unsent:
            connection.unsent = b""
            self.poller.modify(fd, READ)

    def _receive(self, fd: int, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("closed by the broker")
        now_ns = time.perf_counter_ns()
        self.phase.received_bytes += len(data)
        if connection.buffer:
            connection.chunks.append(data)
            connection.chunks_bytes += len(data)
            if connection.chunks_bytes < connection.needed_bytes:
                return
            data = connection.buffer + b"".join(connection.chunks)
            connection.buffer, connection.chunks, connection.chunks_bytes = b"", [], 0
        replies, goes_on = self._count(connection, data)
        if not replies:
            return
        ticks = (now_ns - connection.sent_ns) >> TICK_SHIFT
        self.samples[ticks] = self.samples.get(ticks, 0) + replies
        self.phase.requests += replies
        self.phase.ended_ns = now_ns
        connection.outstanding -= replies
        if connection.outstanding < 0:
            raise Malformed
        if not goes_on:
            self._leave(fd, connection)
        elif not connection.outstanding:
            self.answered.append((fd, connection))

    def _count(self, connection: _Connection, data: bytes) -> tuple[int, bool]:
        """Count the replies in `data`, keep what is left; say whether to go on with this one."""
        position, total, replies, goes_on = 0, len(data), 0, True
        statuses, prefix = self.phase.statuses, connection.prefix
        while position < total:
            end = data.find(b"\r\n\r\n", position)
            if end < 0:
                connection.needed_bytes = 1
                break
            if data.startswith(prefix, position):
                status, length = connection.prefix_counts, connection.prefix_length
            else:
                status, length = _learn(connection, data, position, end)
                prefix = connection.prefix
            after = end + 4 + length
            if after > total:
                connection.needed_bytes = after - total
                break
            replies += 1
            statuses[status] = statuses.get(status, 0) + 1
            if status != 200 or (self.pulling and self.batch > 1):
                goes_on &= self._settle(status, data, position, end, after)
            else:
                self.phase.messages += self.batch
            position = after
        if position < total:
            connection.buffer = data[position:]
        return replies, goes_on

    def _settle(self, status: int, data: bytes, position: int, end: int, after: int) -> bool:
        """Account for a reply that is not simply a full success; False: nothing more to get."""
        got = 0
        if status == 200:
            got = 1
            if data.find(_TYPE, position, end) >= 0:
                got = _messages_in(data, end + 4, after)
        self.phase.messages += got
        if not self.pulling:
            return True
        self.budget += self.batch - got  # others may still find as many
        return got > 0


def _learn(connection: _Connection, data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a reply's status and length, and remember its beginning for the next one."""
    if not data.startswith(b"HTTP/1.1 ", position):
        raise Malformed
    try:
        status = int(data[position + 9 : position + 12])
        if status == NO_CONTENT:
            return status, 0
        found = data.find(_LENGTH, position, end)
        if found < 0:  # other spellings are legal, only slower
            found = position + data[position:end].lower().index(_LENGTH)
        start = found + len(_LENGTH)
        line_end = data.find(b"\r\n", start, end + 2)
        length = int(data[start:line_end])
    except ValueError:
        raise Malformed from None
    connection.prefix = data[position : line_end + 2]
    connection.prefix_counts, connection.prefix_length = status, length
    return status, length


def _messages_in(data: bytes, position: int, after: int) -> int:
    """Count the messages of a batch reply's body."""
    count = 0
    while position < after:
        end = data.find(b"\r\n\r\n", position, after)
        if end < 0:
            raise Malformed
        found = data.find(_LENGTH, position, end)
        length = int(data[found + len(_LENGTH) : data.find(b"\r\n", found + 2, end + 2)])
        position = end + 4 + (length if found >= 0 else 0)
        count += 1
    return count
