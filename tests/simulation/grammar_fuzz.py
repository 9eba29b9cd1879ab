"""Whatever comes, the broker goes on: streams of a grammar over the real loop, simulated.

    python -m tests.simulation.grammar_fuzz --seconds 60 --seed 1

A round is a broker and many connections, whose bytes come in pieces of any size, by turns; some
take no replies, some hang up, and time passes in jumps. Now and then somebody else asks for the
time, and must get it within a number of turns. Nothing may be logged as an error, no turn may take
long, and the broker's accounts must be in order. At the end of a round all that waits is answered,
and another broker must start from the disk. One round is repeated by `--rounds 1 --seed N`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import re
import sys
import time
from collections import Counter
from random import Random

from tests.conformance.websocket_client import handshake
from tests.limits import SLOWNESS
from tests.simulation.grammar import Grammar
from tests.wire.websocket_frames import frame
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock
from zbus.testing.simulation.network import Connection

STREAMS_PER_ROUND = 60
CONNECTIONS_MAX = 8
PATIENCE_TURNS = 20
"""Within which whoever asks for the time gets it; who asks for more waits as long for each 20."""
TURN_CPU_S_MAX = 0.1 * SLOWNESS
"""Of processor time. A turn that takes longer is a hang, even if it comes to an end."""
HANG_S = 60 * SLOWNESS
"""When a round does not come to an end, it is shown where it is."""

PING = b"GET /?cmd=ping HTTP/1.1\r\nhost: localhost\r\n\r\n"
ASKED = b'{"cmd":"ping"}'
FRAGMENTS = [frame(not at, ASKED[at : at + 1], fin=False) for at in range(len(ASKED))]
QUESTIONS = [
    *[(PING, 1)] * 6,
    (PING * 300, 300),
    (handshake() + frame(1, ASKED) * 600, 600),
    (handshake() + (b"".join(FRAGMENTS) + frame(0)) * 60, 60),
]
"""With the number of their answers. Some are more than is read in one step."""
ANSWERED = re.compile(rb'HTTP/1\.1 200 |"status":200,')
CROWDED = b"messages in transit use all their memory"
"""Who asks in fragments, and others have all of a small budget, is told so."""
PAUSES_MS = (0, 0, 0, 1, 1, 20, 300)
LONG_PAUSE_MS = 11_000
"""Half a head is refused after that."""
STATUS = re.compile(rb'HTTP/1\.1 (\d\d\d) |\{"status":(\d\d\d),')


class Fault(AssertionError):
    """What must not be."""


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.getMessage()} {getattr(record, 'why', '')}"
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self.found.append(text)


class Counts:
    """Of a run."""

    def __init__(self) -> None:
        self.rounds = self.streams = self.bytes = self.turns = 0
        self.longest_cpu_s = 0.0
        self.statuses: Counter[int] = Counter()


class Talker:
    """A connection, and what it still has to say."""

    def __init__(self, connection: Connection, data: bytes, random: Random) -> None:
        self.connection = connection
        self.data = data
        self.at = 0
        self.takes = random.random() < 0.85
        self.piece_max = random.choice((1, 7, 60, 1_000, 70_000, len(data) + 1))
        if len(data) > 3_000:
            self.piece_max = max(self.piece_max, len(data) // 100)
        self.received = bytearray()

    def step(self, random: Random) -> None:
        size = random.randint(0, self.piece_max)
        self.connection.send(self.data[self.at : self.at + size])
        self.at += size
        if self.takes:
            self.received += self.connection.receive(random.choice((None, None, 1, 500)))

    @property
    def ended(self) -> bool:
        return not self.connection.alive


class Round:
    """One broker."""

    def __init__(self, seed: int, counts: Counts, errors: Errors) -> None:
        self.random = random = Random(seed)
        self.counts = counts
        self.errors = errors
        self.grammar = Grammar(random)
        self.disk = Disk()
        self.clock = VirtualClock(EPOCH_MS)
        self.options = Options(
            durability=random.choice(("disk", "os", "memory")),
            output_bytes_max=random.choice((4_096, 256 << 10)),
            tickets_per_connection_max=random.choice((5, 1_024)),
            body_bytes_max=random.choice((1 << 20, 10_000)),
            bodies_bytes_max=random.choice((2 << 20, 150_000)),
            message_bytes_max=random.choice((1 << 20, 4_000)),
            segment_bytes=random.choice((64 << 20, 100_000)),
            topics_max=12,
            partitions_max=6,
            groups_per_topic_max=10,
            call_timeout_ms=5_000,
        )
        self.process = self._start()
        self.talkers: list[Talker] = []
        self.silent: list[Connection] = []  # have said all, and may still be told something
        self._connected = 0

    def _start(self) -> Process:
        return Process(self.disk, self.clock, self.options, "fuzz", self.random)

    def live(self) -> None:
        """With a restart in it."""
        for name in ("T", "U", "V/g"):
            declare = f"GET /{name}?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n"
            self._talk(declare.encode(), True)
        self.listen(STREAMS_PER_ROUND)
        self.stop()
        self.start_again()
        self.listen(STREAMS_PER_ROUND // 4)
        self.process.close()

    def listen(self, streams: int) -> None:
        random = self.random
        while streams or self.talkers:
            if streams and len(self.talkers) < CONNECTIONS_MAX:
                streams -= 1
                self._talk(self.grammar.stream(), False)
            for talker in self.talkers:
                talker.step(random)
            self.turn(
                11_000 if random.random() < 0.003 else random.choice((0, 0, 0, 1, 1, 20, 300))
            )
            self._part()
            if self.counts.turns % 16 == 0:
                self.ask()

    def _talk(self, data: bytes, takes: bool) -> None:
        self._connected += 1
        room_bytes = self.random.choice((64 << 10, 3_000, 300))
        talker = Talker(self.process.accept(100 + self._connected, room_bytes), data, self.random)
        talker.takes |= takes
        self.talkers.append(talker)
        self.counts.streams += 1
        self.counts.bytes += len(data)

    def _part(self) -> None:
        """Who has said all stays for a while, hangs up, or is gone."""
        random = self.random
        for talker in list(self.talkers):
            said = talker.at >= len(talker.data)
            if talker.ended or (said and random.random() < 0.2):
                talker.received += talker.connection.receive()
                for match in STATUS.finditer(talker.received):
                    self.counts.statuses[int(match[1] or match[2])] += 1
                self.talkers.remove(talker)
                if random.random() < 0.5:
                    talker.connection.finish()
                    self.silent.append(talker.connection)
                else:
                    talker.connection.reset()

    def turn(self, ms: int) -> None:
        self.clock.time_ms += ms
        begun = time.thread_time()
        self.process.turn()
        spent = time.thread_time() - begun
        if self.random.random() < 0.7:
            self.process.work()
        self.counts.turns += 1
        self.counts.longest_cpu_s = max(self.counts.longest_cpu_s, spent)
        if self.errors.found:
            raise Fault(f"it was logged: {self.errors.found[0]}")
        if self.process.failure:
            raise Fault(f"the broker gave up: {self.process.failure}")
        if spent > TURN_CPU_S_MAX:
            raise Fault(f"a turn took {spent:.3f} s of processor time")
        for link in self.process.loop.links:
            if link.out_bytes != link.unsent_bytes + sum(map(len, link.out)):
                raise Fault(f"{link.address}: output is counted wrong")
            if not link.open_tickets >= link.open_waits >= 0 <= link.held_bytes:
                raise Fault(f"{link.address}: tickets are counted wrong")

    def ask(self) -> None:
        """Somebody else asks for the time, once or many times."""
        data, count = self.random.choice(QUESTIONS)
        self._connected += 1
        connection = self.process.accept(100 + self._connected, 64 << 10)
        connection.send(data)
        received = bytearray()
        turns = PATIENCE_TURNS * (1 + count // 20)
        for _ in range(turns):
            self.turn(0)
            received += connection.receive()
            if len(ANSWERED.findall(received)) == count or received.endswith(CROWDED):
                break
        else:
            answered = len(ANSWERED.findall(received))
            raise Fault(f"{count - answered} of {count} pings are not answered in {turns} turns")
        connection.reset()
        self.process.broker.check()

    def stop(self) -> None:
        """All that is on its way comes out, and nothing is left."""
        process = self.process
        process.loop.stop()
        for _ in range(2_000):
            for connection in self.silent:
                connection.receive()
            self.turn(1)
            process.work()
            if process.loop.drained():
                break
        else:
            raise Fault("the broker does not come to rest")
        process.close()
        if process.broker.sessions:
            raise Fault(f"{len(process.broker.sessions)} sessions are left")

    def start_again(self) -> None:
        """Another broker finds what the one before left."""
        names = {
            name
            for name, topic in self.process.broker.topics.items()
            if topic.options.durability != "memory"
        }
        self.process = self._start()
        if names - set(self.process.broker.topics):
            raise Fault(f"topics are lost: {names - set(self.process.broker.topics)}")


def run(seconds: float, seed: int, rounds: int, hang_s: float = 0) -> Counts:
    """Raises Fault with the number of the round. A round that takes `hang_s` ends the process;
    0 = somebody else looks after that."""
    counts, errors = Counts(), Errors()
    logging.getLogger("zbus").addHandler(errors)
    end = time.monotonic() + seconds
    try:
        while counts.rounds < rounds and (counts.rounds == 0 or time.monotonic() < end):
            if hang_s:
                faulthandler.dump_traceback_later(hang_s, exit=True)
            try:
                Round(seed + counts.rounds, counts, errors).live()
            except Exception as error:
                raise Fault(f"round {seed + counts.rounds}: {error!r}") from error
            counts.rounds += 1
    finally:
        if hang_s:
            faulthandler.cancel_dump_traceback_later()
        logging.getLogger("zbus").removeHandler(errors)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1_000_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("zbus").propagate = False
    counts = run(options.seconds, options.seed, options.rounds, HANG_S)
    statuses = ", ".join(f"{count:,} x {status}" for status, count in counts.statuses.most_common())
    print(
        f"{counts.rounds:,} rounds, {counts.streams:,} connections, {counts.bytes:,} bytes,"
        f" {counts.turns:,} turns, the longest {counts.longest_cpu_s * 1000:.0f} ms; answers:"
        f" {statuses}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
