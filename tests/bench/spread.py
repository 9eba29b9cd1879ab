"""What a put costs when the puts of a turn go to many topics, without sockets.

    python -m tests.bench.spread [--topics 10000] [--rounds 9] [--profile TOPICS]

A turn has 64 puts of 100 bytes at level `os`, each of a connection of its own: all to one topic, to
64 topics, and to all topics at random. Processor time of the thread, kernel included, the least of
several rounds: of the whole turn, and of reading the requests alone.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import resource
import time
from collections.abc import Sequence
from random import Random

from tests.bench.large import folder
from tests.bench.measure import show
from zbus.storage.local.engine import LocalJournal
from zbus.testing.world import World

CROWD = 64
TURNS = 300
HEAD = b"POST /%b?cmd=%b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
BODY = b"x" * 100


class Spread:
    """A broker that writes files, and what sends to it."""

    def __init__(self, journal: LocalJournal, topics: int) -> None:
        self.world = World(journal)
        self.random = Random(2)
        self.names = [b"topic%d" % number for number in range(topics)]
        self.peers = [self.world.connect().peer for _ in range(CROWD)]
        for name in self.names:
            self.turn([HEAD % (name, b"declare&durability=os", 0)])
            self.turn([HEAD % (name + b"/second", b"declare", 0)])

    def turn(self, requests: Sequence[bytes]) -> float:
        """Seconds of processor time of reading them, one from each peer, in one turn."""
        broker, world = self.world.broker, self.world
        world.now_ms += 1
        broker.begin(world.now_ms)
        before = time.thread_time()
        for peer, request in zip(self.peers, requests, strict=False):
            peer.receive(request)
        reading = time.thread_time() - before
        broker.finish()
        for peer, _ in zip(self.peers, requests, strict=False):
            out = peer.out
            assert out[0].startswith(b"HTTP/1.1 200"), out
            out.clear()
            peer.out_bytes = 0
        return reading

    def run(self, names: Sequence[bytes]) -> tuple[float, float]:
        """Microseconds of a put to one of these topics, and of reading its request."""
        put = HEAD % (b"%b", b"produce", len(BODY)) + BODY
        choose = self.random.choice
        turns = [[put % choose(names) for _ in self.peers] for _ in range(TURNS)]
        began = time.thread_time()
        reading = sum(map(self.turn, turns))
        spent = time.thread_time() - began
        return spent / TURNS / CROWD * 1e6, reading / TURNS / CROWD * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", type=int, default=0)
    chosen = parser.parse_args()
    gc.set_threshold(100_000, 50, 100)  # as `zbus serve`
    resource.setrlimit(resource.RLIMIT_NOFILE, (chosen.topics + 1_000,) * 2)
    with folder() as data_dir:
        data_dir.parent.mkdir(exist_ok=True)
        journal = LocalJournal(
            data_dir, lambda call: None, lambda text: None, open_segments_max=chosen.topics
        )
        spread = Spread(journal, chosen.topics)
        if chosen.profile:
            profile = cProfile.Profile()
            spread.run(spread.names[: chosen.profile])
            profile.enable()
            spread.run(spread.names[: chosen.profile])
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        else:
            crowds = 1, 64, chosen.topics
            rounds = [
                [spread.run(spread.names[:topics]) for topics in crowds]
                for _ in range(chosen.rounds)
            ]
            for topics, *found in zip(crowds, *rounds, strict=True):
                put_us, reading_us = map(min, zip(*found, strict=True))
                show(topics=topics, put_us=put_us, reading_us=reading_us)
        journal.close()


if __name__ == "__main__":
    main()
