"""What a turn of the broker costs that serves a single request, without sockets.

Nothing is shared with other requests here: finding out what is due, one batch, one write, one
reply. The time is that of the thread, so that a busy machine adds little; the least of several
rounds. A turn with 32 requests stands beside it, for what a request costs in a crowd.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import show
from zbus.storage.local.engine import LocalJournal
from zbus.testing.world import World

pytestmark = pytest.mark.bench

ROUNDS = 80  # spread over seconds: a busy neighbour makes everything slower for as long
TURNS = 800
CROWD = 32
TURNS_A_MS = 16  # when turns follow each other at once
REQUEST = b"GET /Turn?cmd=%b HTTP/1.1\r\nhost: localhost\r\n\r\n"
PUT, PULL = REQUEST % b"produce", REQUEST % b"consume"


class Turns:
    """A broker that writes files, and so many connections."""

    def __init__(self, folder: Path, connections: int) -> None:
        journal = LocalJournal(folder / "data", lambda call: None, lambda text: None)
        self.world = World(journal)
        self.peers = [self.world.connect().peer for _ in range(connections)]
        declare = REQUEST % b"declare&durability=os"
        assert self.world.connect().request(declare).status == 200

    def run(self, request: bytes, turns_a_ms: int) -> float:
        """Microseconds of a turn in which every connection sends the request."""
        broker, world, peers = self.world.broker, self.world, self.peers
        turns = TURNS // len(peers)
        before = time.thread_time()
        for turn in range(turns):
            world.now_ms += not turn % turns_a_ms
            broker.begin(world.now_ms)
            for peer in peers:
                peer.receive(request)
            broker.finish()
            for peer in peers:
                out = peer.out
                assert out[0].startswith(b"HTTP/1.1 200"), out
                out.clear()
                peer.out_bytes = 0
        return (time.thread_time() - before) / turns * 1e6


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def least(folder: Path, connections: int, turns_a_ms: int) -> tuple[float, float]:
    """Of a turn of puts, and of one of pulls that take what the former put."""
    turns = Turns(folder, connections)
    try:
        rounds = [(turns.run(PUT, turns_a_ms), turns.run(PULL, turns_a_ms)) for _ in range(ROUNDS)]
    finally:
        turns.world.journal.close()
    return min(put for put, _ in rounds), min(pull for _, pull in rounds)


@pytest.mark.parametrize("turns_a_ms", [1, TURNS_A_MS])
def test_a_turn_with_one_request(tmp_path: Path, turns_a_ms: int) -> None:
    """Under little load the clock has moved at every turn, and is asked for what is due."""
    put, pull = least(tmp_path, 1, turns_a_ms)
    show(line="a turn of one", turns_a_ms=turns_a_ms, put_us=put, pull_us=pull)
    assert put <= 30
    assert pull <= 15


def test_a_turn_with_many(tmp_path: Path) -> None:
    """Only printed: the bar for this is in `test_cpu.py`, with the kernel."""
    put, pull = (us / CROWD for us in least(tmp_path, CROWD, 4))
    show(line=f"a request of a turn of {CROWD}", put_us=put, pull_us=pull)


def test_turns_while_a_topic_of_64_partitions_is_made(tmp_path: Path) -> None:
    """All other clients wait for the longest of them."""
    turns = Turns(tmp_path, 1)
    broker, world, peer = turns.world.broker, turns.world, turns.peers[0]
    least_ms = 1e9
    for number in range(20):
        declare = b"GET /Many%d?cmd=declare&durability=os&partitions=64 HTTP/1.1\r\nhost: x\r\n"
        longest_ms, data = 0.0, declare % number + b"\r\n"
        while not peer.out:
            world.now_ms += 1
            before = time.thread_time()
            broker.begin(world.now_ms)
            peer.receive(data)
            broker.finish()
            longest_ms = max(longest_ms, (time.thread_time() - before) * 1e3)
            data = b""
        assert peer.out[0].startswith(b"HTTP/1.1 200"), peer.out
        peer.out.clear()
        peer.out_bytes = 0
        least_ms = min(least_ms, longest_ms)
    world.journal.close()
    show(line="the longest turn while 64 partitions are made", ms=least_ms)
    assert least_ms <= 5
