"""Spark reads and writes a cluster: through one node, whichever owns a topic, while owners end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.process.nats import NatsCluster, find_program
from tests.process.test_nodes import TOPICS, Member, start_node
from zbus.client import connect

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(find_program() is None, reason="needs nats-server: the extra `replicated`"),
]

COUNT = 4_000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "nats").mkdir()
    with NatsCluster(folder / "nats") as servers:
        authority, engine = trustme.CA(), servers.engine("spark")
        made = [start_node(folder, engine, name, authority) for name in "ab"]
        try:
            for node in made:
                node.wait_for("/_health/all", 200)
            with connect(made[0].address) as bus:
                for topic in TOPICS[:3]:
                    bus.declare(topic, partitions=2)
                    bus.produce_many(topic, [b"%d" % n + b"x" * 1_000 for n in range(COUNT)])
            yield made
        finally:
            for node in made:
                node.kill()


class Killing(threading.Thread):
    """Ends the owners of shards, one after another, as long as something is done."""

    def __init__(self, nodes: list[Member], shards: int) -> None:
        super().__init__()
        self._nodes = nodes
        self._shards = shards
        self._over = threading.Event()
        self.killed = 0

    def __enter__(self) -> Killing:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.3):
            for node in self._nodes:
                try:
                    pid = node.owner_of(self.killed % self._shards)
                except StopIteration:  # another node's, or nobody's just now
                    continue
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
                self._over.wait(2)
                break


@pytest.mark.check
def test_a_table_while_owners_end(spark: Any, nodes: list[Member]) -> None:
    with Killing(nodes, 3) as killing:
        while killing.killed < 3:
            for topic in TOPICS[:3]:
                frame = spark.read.format("zbus").option("broker", nodes[1].address)
                found = frame.option("topic", topic).option("columns", "partition, offset").load()
                rows = [(row.partition, row.offset) for row in found.collect()]
                assert len(set(rows)) == len(rows) == COUNT


def test_a_stream_into_another_shard_while_owners_end(
    spark: Any, nodes: list[Member], tmp_path: Path
) -> None:
    """Each message is there once: batches are put under keys."""
    source, target = TOPICS[0], TOPICS[1] + "copy"
    with connect(nodes[0].address) as bus:
        bus.declare(target)
    frame = spark.readStream.format("zbus").option("broker", nodes[0].address)
    frame = frame.option("topic", source).option("startingOffsets", "earliest")
    frame = frame.option("maxOffsetsPerTrigger", 1_000).load().select("body")
    writing = frame.writeStream.format("zbus").option("broker", nodes[1].address)
    writing = writing.option("topic", target).option("checkpointLocation", str(tmp_path / "c"))
    with Killing(nodes, 3) as killing:
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.exception() is None
    assert killing.killed
    with connect(nodes[0].address) as bus:
        found: list[bytes] = []
        while some := bus.read(target, offset=len(found), count=1_000):
            found += [message.body for message in some]
    assert len(set(found)) == len(found) == COUNT
