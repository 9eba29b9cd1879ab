"""One topic, many followers: how many deliveries a second, how late, and what slow ones do.

    python -m tests.bench.large_fanout [--followers 1000] [--stalled 100] [--rounds 3] [--seconds 5]
    python -m tests.bench.large_fanout --followers 10000 --rate 10
    python -m tests.bench.large_fanout --quick

Followers are streams of server-sent events, read by one process of their own. Bodies carry the
time at which they were put. In every second phase others connect that take nothing at all.
`--quick` only says how many deliveries a second there are at most, and what one costs.

The floor is a loop that sends as many bytes to as many sockets, which a process reads: what Python
and the kernel take for one `send`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import select
import socket
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.bench.large import folder
from tests.bench.measure import cpu_seconds, resident_bytes, run_seconds, show
from tests.process.broker import BrokerProcess
from tests.process.pipe import Pipe, ask, number

TOPIC = "Fanout"
BODY_BYTES = 1_000
IN_FLIGHT = 64  # puts, where the most deliveries are wanted
HISTORY_BYTES = 6 << 20  # more than the system buffers for a connection
SETTLE_S = 2.0
ACCEPT = b"accept: text/event-stream\r\n"
AT_END = ask(f"/{TOPIC}?cmd=consume&offset=end", b"", ACCEPT)


def subscribe(port: int, wanted: bytes = AT_END, receive_bytes: int = 0) -> socket.socket:
    """A connection that has asked for events."""
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.connect(("127.0.0.1", port))
    sock.sendall(wanted)
    return sock


def listen(port: int, count: int, pipe: Connection) -> None:
    """Read `count` streams. Told "from", begin anew; told "to", say what came since: how many, and
    the latencies in milliseconds, sorted."""
    socks = {sock.fileno(): sock for sock in (subscribe(port) for _ in range(count))}
    poll = select.epoll()
    for ready in socks:
        poll.register(ready, select.EPOLLIN)
    poll.register(pipe.fileno(), select.EPOLLIN)
    pipe.send("ready")
    came = 0
    latencies: list[float] = []
    while True:
        for ready, _ in poll.poll():
            sock = socks.get(ready)
            if sock is not None:
                data = sock.recv(1 << 16)
                assert data, "a follower was cut off"
                at = data.find(b"data: t")
                came += data.count(b"data: t")
                if at >= 0:
                    # Of several that came together the first waited longest.
                    put = data[at + 7 : at + 24]
                    if len(put) == 17:
                        latencies.append((time.perf_counter() - float(put)) * 1e3)
                continue
            word = pipe.recv()
            if word == "stop":
                return
            if word == "to":
                pipe.send((came, sorted(latencies)))
            came, latencies = 0, []


def body() -> bytes:
    """What a message holds: when it was put, and padding."""
    return (b"t%017.6f " % time.perf_counter()).ljust(BODY_BYTES, b".")


def put(port: int, rate: float, seconds: float) -> None:
    """Put messages at a rate, and wait a moment for the last to come."""
    with Pipe(port) as pipe:
        began = time.perf_counter()
        for turn in range(int(rate * seconds)):
            until(pipe, began + turn / rate)
            assert pipe.get(f"/{TOPIC}?cmd=produce", body()).status == 200
        until(pipe, time.perf_counter() + 0.2)


def until(pipe: Pipe, when: float) -> None:
    """Wait on a connection on which nothing comes."""
    while (seconds := when - time.perf_counter()) > 0:
        assert not select.select([pipe.sock], [], [], seconds)[0]


def saturate(port: int, seconds: float) -> float:
    """Put small messages as fast as they are taken; messages a second."""
    with Pipe(port) as pipe:
        began, sent = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            asked = [ask(f"/{TOPIC}?cmd=produce", body()[:100]) for _ in range(IN_FLIGHT)]
            pipe.send(b"".join(asked))
            for _ in asked:
                assert pipe.read().status == 200
            sent += IN_FLIGHT
        return sent / (time.perf_counter() - began)


def phase(broker: BrokerProcess, ears: Connection, rate: float, seconds: float) -> float:
    """The 99th percentile of the latencies at a moderate rate, in milliseconds."""
    cpu = cpu_seconds(broker.process.pid)
    ears.send("from")
    put(broker.port, rate, seconds)
    cpu = cpu_seconds(broker.process.pid) - cpu
    ears.send("to")
    came, latencies = ears.recv()
    p50, p99 = (latencies[len(latencies) * part // 100] for part in (50, 99))
    show(rate=rate, deliveries=came, p50_ms=p50, p99_ms=p99, cpu_us_each=cpu / came * 1e6)
    return p99


class Stalled:
    """Followers that read nothing until they are asked what they got. They begin so far back that
    everybody's buffers for them are full at once."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        wanted = ask(f"/{TOPIC}?cmd=consume&offset=0", b"", ACCEPT)
        self.socks = [subscribe(port, wanted, receive_bytes=4096) for _ in range(count)]

    def lost(self, end: int) -> tuple[int, int]:
        """Each reads what it was sent before it was cut off, and comes again with the last id it
        has seen, until it has come to `end`: how many offsets it missed, and how many came twice,
        all together."""
        missed = twice = 0
        for sock in self.socks:
            with sock:
                seen = offsets(sock, None)
            wanted = ask(f"/{TOPIC}?cmd=consume", b"", ACCEPT + b"last-event-id: %d\r\n" % seen[-1])
            with subscribe(self.port, wanted) as again:
                seen += offsets(again, end)
            missed += seen[-1] - seen[0] + 1 - len(set(seen))
            twice += len(seen) - len(set(seen))
        return missed, twice


def offsets(sock: socket.socket, end: int | None) -> list[int]:
    """The ids of the whole events of a stream, until it ends or one is `end`."""
    sock.settimeout(30)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    rest = b""
    found: list[int] = []
    while True:
        try:
            data = sock.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            return found
        *blocks, rest = (rest + data).split(b"\n\n")
        for block in blocks:
            if block.startswith(b"id: "):
                found.append(int(block[4 : block.index(b"\n")]))
                if found[-1] == end:
                    return found


def descriptors(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def seconds_until_cut(broker: BrokerProcess, before: int, count: int) -> float:
    """From now until the broker has closed so many connections, at most 30."""
    began = time.monotonic()
    with Pipe(broker.port) as pipe:
        while descriptors(broker) > before + 1 - count and time.monotonic() < began + 30:
            until(pipe, time.perf_counter() + 0.1)
    return time.monotonic() - began


def idle(broker: BrokerProcess, count: int) -> None:
    """What followers take of memory that are told nothing."""
    broker.get("/Idle?cmd=declare")
    wanted = ask("/Idle?cmd=consume", b"", ACCEPT)
    before = resident_bytes(broker.process.pid)
    socks = [subscribe(broker.port, wanted) for _ in range(count)]
    for sock in socks:
        assert b"\r\n\r\nretry: " in sock.recv(4096)
    each = (resident_bytes(broker.process.pid) - before) / count
    show(idle_followers=count, bytes_each=each)
    for sock in socks:
        sock.close()


def at_most(broker: BrokerProcess, ears: Connection, chosen: argparse.Namespace) -> None:
    """The most deliveries a second: medians of rounds."""
    rounds = []
    for _ in range(chosen.rounds):
        cpu, began = run_seconds(broker.process.pid), time.monotonic()
        ears.send("from")
        rate = saturate(broker.port, chosen.seconds)
        ears.send("to")
        seconds, cpu = time.monotonic() - began, run_seconds(broker.process.pid) - cpu
        came = ears.recv()[0]
        rounds.append((rate, came / seconds, cpu / seconds, cpu / came * 1e6))
    rate, came_s, busy, us = (statistics.median(column) for column in zip(*rounds, strict=True))
    show(messages_s=rate, deliveries_s=came_s, broker_cpu=busy, cpu_us_each=us)
    show(resident_bytes_each=resident_bytes(broker.process.pid) / chosen.followers)


def drain(port: int, count: int, size: int) -> None:
    """Connect so often, and read whatever comes, until it ends. When each connection was sent
    `size` bytes, that is said on the first one."""
    socks = {sock.fileno(): sock for sock in (subscribe(port, b"") for _ in range(count))}
    poll, left = select.epoll(), count * size
    for ready in socks:
        poll.register(ready, select.EPOLLIN)
    buffer = bytearray(1 << 16)
    while True:
        for ready, _ in poll.poll():
            came = socks[ready].recv_into(buffer)
            if not came:
                return
            left -= came
            if not left:
                left = count * size
                next(iter(socks.values())).send(b".")


def floor(count: int, size: int, rounds: int = 8) -> None:
    """Processor time of one `send` of `size` bytes to each of `count` connections, the least."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        reader = multiprocessing.Process(
            target=drain, args=(listener.getsockname()[1], count, size)
        )
        reader.start()
        socks = [listener.accept()[0] for _ in range(count)]
    data, seconds = b"." * size, []
    for _ in range(rounds):
        began = time.process_time()
        for sock in socks:
            sock.send(data)
        seconds.append(time.process_time() - began)
        assert socks[0].recv(1)  # the reader has read
    show(floor_bytes=size, floor_us_each=min(seconds) / count * 1e6)
    reader.kill()
    for sock in socks:
        sock.close()


def measure(broker: BrokerProcess, ears: Connection, chosen: argparse.Namespace) -> None:
    port = broker.port
    at_most(broker, ears, chosen)
    if chosen.quick:
        return
    alone, beside = [], []
    for _ in range(chosen.rounds):
        alone.append(phase(broker, ears, chosen.rate, chosen.seconds))
        before, bytes_before = descriptors(broker), resident_bytes(broker.process.pid)
        stalled = Stalled(port, chosen.stalled)
        put(port, chosen.rate, SETTLE_S)
        beside.append(phase(broker, ears, chosen.rate, chosen.seconds))
        held = (resident_bytes(broker.process.pid) - bytes_before) / chosen.stalled
        cut_s = seconds_until_cut(broker, before + chosen.stalled, chosen.stalled)
        with Pipe(port) as pipe:
            reply = pipe.get(f"/{TOPIC}?cmd=produce", body())
        missed, twice = stalled.lost(number(reply.head, b"offset"))
        show(held_bytes_each=held, cut_after_s=cut_s, missed=missed, twice=twice)
    one, other = statistics.median(alone), statistics.median(beside)
    show(p99_ms=one, p99_beside_stalled_ms=other, ratio=other / one)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--followers", type=int, default=1_000)
    parser.add_argument("--stalled", type=int, default=100)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options = ("--set", "connections_per_address_max=1000000")
    with folder() as data_dir, BrokerProcess(data_dir, *options) as broker:
        for size in (BODY_BYTES, 16 << 10):
            floor(chosen.followers, size)
        idle(broker, chosen.followers)
        broker.get(f"/{TOPIC}?cmd=declare&durability=os")
        for _ in range(HISTORY_BYTES // (64 << 10)):
            broker.get(f"/{TOPIC}?cmd=produce", body=b"." * (64 << 10))
        ours, theirs = multiprocessing.Pipe()
        arguments = (broker.port, chosen.followers, theirs)
        reader = multiprocessing.Process(target=listen, args=arguments)
        reader.start()
        try:
            ours.recv()
            measure(broker, ours, chosen)
        finally:
            ours.send("stop")
            reader.join(10)
        broker.stop()


if __name__ == "__main__":
    main()
