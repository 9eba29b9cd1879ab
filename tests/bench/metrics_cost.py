"""What metrics cost: samples on the way of each request, and who collects or watches.

    python -m tests.bench.metrics_cost [--rounds 40] [--seconds 10]

Samples: processor time for a request of a broker that takes them beside one that takes none, in
turn (`tests/bench/lockstep.py`). Collecting and watching: processor time a second of a broker with
so many topics, in each of which something moves, while one asks for `/_metrics` each second, and
another has a stream of `/_stats` open; less what it takes without the two. A hundredth of a core
is ten milliseconds.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.bench.lockstep import LINES, costs
from tests.bench.measure import Server, run_seconds, show
from tests.process.broker import BrokerProcess, Wire

TOPICS = (10, 100, 1_000)
STREAM = b"GET /_stats HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"


def samples(folder: Path, rounds: int) -> None:
    """With and without them."""
    with ExitStack() as stack:
        servers = []
        for name, program in (("with", "zbus"), ("without", "tests.bench.unsampled")):
            broker = BrokerProcess(folder / name, program=(program,))
            stack.enter_context(broker)
            for topic in {line.topic for line in LINES}:
                assert broker.get(f"/{topic}?cmd=declare&durability=os").status == 200
            servers.append(Server.of(broker))
        sampled, bare = servers
        taken = costs(rounds, LINES, lambda line: sampled, lambda line: bare)
    for name, (ours, theirs) in taken.items():
        least, other = min(ours).us, min(theirs).us
        pairs = zip(ours, theirs, strict=True)
        typical = median(one.us / another.us for one, another in pairs)
        show(line=name, sampled_us=least, bare_us=other, ratio=least / other, median=typical)


def watched(folder: Path, seconds: int) -> None:
    """With a collector each second, then with a stream, too."""
    for count in TOPICS:
        with BrokerProcess(folder / f"{count}") as broker:
            for number in range(count):
                assert broker.get(f"/T{number}/g?cmd=declare&durability=memory").status == 200
            alone = spent_ms(broker, count, seconds, collect=False)
            collected = spent_ms(broker, count, seconds, collect=True)
            stream = Wire(broker.port)
            stream.send(STREAM)
            both = spent_ms(broker, count, seconds, collect=True, stream=stream)
            show(
                topics=count,
                collector_ms_a_second=collected - alone,
                with_stream_ms_a_second=both - alone,
            )


def spent_ms(
    broker: BrokerProcess, topics: int, seconds: int, collect: bool, stream: Wire | None = None
) -> float:
    """Processor time a second."""
    client, began_s = broker.connect(), run_seconds(broker.process.pid)
    for second in range(seconds):
        until_s = time.monotonic() + 1
        for number in range(0, topics, max(1, topics // 100)):
            assert client.get(f"/T{number}?cmd=produce&body={second}").status == 200
        if collect:
            assert client.get("/_metrics").status == 200
        if stream is not None:
            stream.sock.recv(1 << 22)
        threading.Event().wait(max(0.0, until_s - time.monotonic()))
    return (run_seconds(broker.process.pid) - began_s) * 1_000 / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples(Path(folder), asked.rounds)
        watched(Path(folder), asked.seconds)


if __name__ == "__main__":
    main()
