"""What a large cluster costs, counted: nodes with four owners and a spare each, over the real code.

`docs/explanation/scaling.md` says what the counts are in processor time.
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from tests.storage.jetstream.cluster import Faults
from tests.storage.jetstream.servers import Bus
from tests.storage.jetstream.test_standby import CLUSTER, World
from zbus.storage.jetstream.presence import BEAT_MS, GONE_MS, Membership
from zbus.storage.jetstream.settings import Cluster
from zbus.storage.jetstream.standby import LOOK_MS, Standby

OWNERS = 4
"""Of a node."""
SETTLE_MS = 10_000
LOOK_S = 1


class Large:
    """Nodes that own all shards. A fourth of as many processes wait, and each node has an edge."""

    def __init__(self, workers: int) -> None:
        self.nodes = workers // (OWNERS + 1)
        self.shards = OWNERS * self.nodes
        self.names = tuple(f"n{number}" for number in range(self.nodes))
        self.world = World(1, Faults.none(), self.names, shards=self.shards)
        self.servers = self.world.servers
        for _ in self.names:
            cluster = Cluster(CLUSTER, shards=self.shards)
            Membership(Bus(self.servers), cluster, lambda: self.servers.now_ms).listen()
        while len(self.world.owners()) < self.shards:
            self.world.run(BEAT_MS)
            assert self.servers.now_ms < SETTLE_MS
        self.world.run(BEAT_MS)

    def count(self, seconds: int) -> Counter[str]:
        """How often functions of the code are called meanwhile."""
        calls: Counter[str] = Counter()

        def look(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" and "/zbus/storage/" in frame.f_code.co_filename:
                calls[frame.f_code.co_qualname] += 1

        sys.setprofile(look)
        try:
            self.world.run(1_000 * seconds)
        finally:
            sys.setprofile(None)
        return calls


@pytest.mark.parametrize("workers", [10, 50, 100])
def test_heartbeats_grow_with_the_square(workers: int) -> None:
    """Each process sends two a second and receives those of all; each that comes costs the same,
    however many there are. A spare looks at each shard ten times a second."""
    large = Large(workers)
    before = large.servers.published
    calls = large.count(LOOK_S)
    published = large.servers.published - before
    assert published == workers * LOOK_S * 1_000 // BEAT_MS
    listeners = workers + large.nodes
    heard = calls[Membership._heard.__qualname__]
    assert heard == pytest.approx(published * listeners, rel=0.02)  # some are under way
    looks = large.nodes * LOOK_S * 1_000 // LOOK_MS
    assert calls[Standby._is_turn.__qualname__] == pytest.approx(looks * large.shards, rel=0.1)
    assert sum(calls.values()) < 6 * heard + 14 * looks * large.shards


def test_a_lost_node_costs_its_shards_and_no_more() -> None:
    """Of nine nodes that might claim them, those that come first do; each claim is tried once."""
    large = Large(50)
    lost = large.world.nodes["n7"]
    shards = len(lost.shards)
    assert shards
    lost.die()
    epochs = {name: len(stream.log) for name, stream in large.servers.streams.items()}
    calls = large.count(2 * GONE_MS // 1_000)
    owners = large.world.owners()
    assert sorted(owners) == list(range(large.shards))
    assert "n7" not in owners.values()
    grown = sum(len(stream.log) - epochs[name] for name, stream in large.servers.streams.items())
    assert grown == shards
    assert calls[Standby._start_claim.__qualname__] == shards
