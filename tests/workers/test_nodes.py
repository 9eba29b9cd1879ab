"""What a process of a cluster tells of the others, and when it gives its shard away."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.workers.test_relay import Bus
from zbus.server.process.nodes import Nodes
from zbus.storage.jetstream.presence import GONE_MS, NODES_MAX, TWINS_TIMES, Heartbeat, Membership
from zbus.storage.jetstream.settings import Cluster


class Cluster3:
    """Three nodes with a spare each, and a process of node `a` that owns shard 0."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.membership = Membership(Bus(), Cluster("c", shards=3), lambda: self.now_ms)
        self.membership.listen()
        self.nodes = Nodes(self.membership, "a")
        self.nodes.shard = 0
        self.given: list[str] = []
        self.nodes.give_up = lambda: self.given.append(self.nodes.heir)
        self.hear_all()

    def hear(self, epoch: int, node: str, process: str, **more: Any) -> None:
        random = f"{process}{epoch}"
        heartbeat = Heartbeat(
            epoch, node, f"{node}:1", random, process=process, version="1", **more
        )
        bus = self.membership._bus
        assert isinstance(bus, Bus)
        bus.received(msgspec.json.encode(heartbeat))

    def hear_all(self, without: str = "") -> None:
        for number, node in enumerate("abc"):
            if node != without:
                self.hear(1, node, f"{node}1", shard=number, relay=f"{node}:2")
                self.hear(0, node, f"{node}2", relay=f"{node}:2")

    @property
    def warnings(self) -> list[str]:
        return self.nodes.document().warnings


def test_all_is_well() -> None:
    cluster = Cluster3()
    document = cluster.nodes.document()
    assert [(each.node, each.live, each.spares, each.shards) for each in document.nodes] == [
        ("a", True, 1, [0]),
        ("b", True, 1, [1]),
        ("c", True, 1, [2]),
    ]
    assert [each.node for each in document.shards] == ["a", "b", "c"]
    assert (document.cluster, document.asked, document.warnings) == ("c", "a", [])


def test_a_node_that_is_silent_is_gone_with_what_it_owned() -> None:
    cluster = Cluster3()
    cluster.now_ms += GONE_MS
    cluster.hear_all(without="b")
    assert cluster.warnings == ["Shard 1 has no owner.", "Node b is gone."]
    refused = cluster.nodes.move(0, "b")
    assert refused is not None
    assert refused.status == 404
    cluster.now_ms += 100 * GONE_MS
    cluster.hear_all(without="b")
    assert cluster.warnings == ["Shard 1 has no owner."]  # perhaps it is never to come back


@pytest.mark.parametrize(
    ("told", "warning"),
    [
        ({"late_ms": 1_800}, "The NATS servers confirm nothing to the owner of shard 1."),
        ({"version": "2"}, "Nodes differ in version: a, c / b."),
        ({"alike": {"token_file": "x"}}, "Nodes differ in token_file: a, c / b."),
    ],
)
def test_what_is_wrong_with_a_node(told: dict[str, Any], warning: str) -> None:
    cluster = Cluster3()
    heartbeat = {"shard": 1, "relay": "b:2", "version": "1", **told}
    cluster.membership.presence.hear(
        Heartbeat(1, "b", "b:1", "b11", process="b1", **heartbeat), cluster.now_ms
    )
    assert cluster.warnings == [warning]


def test_two_nodes_of_one_name() -> None:
    """One that starts again somewhere else is no second one."""
    cluster = Cluster3()
    cluster.hear(0, "b", "b3", relay="d:2")
    assert cluster.warnings == []
    for _ in range(TWINS_TIMES):
        cluster.hear(0, "b", "b2", relay="b:2")
        cluster.hear(0, "b", "b3", relay="d:2")
    assert cluster.warnings == ["Two nodes are called b: they are reached at b:2 and d:2."]


def test_a_node_without_a_spare() -> None:
    cluster = Cluster3()
    for _ in range(20):
        cluster.now_ms += GONE_MS // 2
        cluster.hear_all(without="b")
        cluster.hear(1, "b", "b1", shard=1, relay="b:2")
    assert cluster.warnings == ["Node b has no spare process: it can take no shard over."]
    refused = cluster.nodes.move(0, "b")
    assert refused is not None
    assert (refused.status, cluster.given) == (503, [])


def test_a_spare_that_has_claimed_a_shard_is_none() -> None:
    cluster = Cluster3()
    cluster.hear(2, "b", "b2", shard=1, relay="b:2")
    spares = {each.node: each.spares for each in cluster.nodes.document().nodes}
    assert spares == {"a": 1, "b": 0, "c": 1}


def test_a_process_that_hears_nothing() -> None:
    cluster = Cluster3()
    cluster.now_ms += GONE_MS // 2
    assert not cluster.nodes.hears
    text = "Node a hears no heartbeats: it may be cut off from the NATS servers."
    assert cluster.warnings == [text]


@pytest.mark.parametrize(
    ("shard", "node", "status"),
    [(3, "b", 404), (1, "c", 503), (0, "a", 409), (0, "x", 404), (0, "", 404)],
)
def test_what_cannot_be_moved(shard: int, node: str, status: int) -> None:
    cluster = Cluster3()
    refused = cluster.nodes.move(shard, node)
    assert refused is not None
    assert (refused.status, cluster.given) == (status, [])


def test_a_process_that_stops_gives_nothing_away() -> None:
    cluster = Cluster3()
    cluster.nodes.stops = True
    refused = cluster.nodes.move(0, "c")
    assert refused is not None
    assert (refused.status, cluster.given) == (503, [])


def test_names_are_not_remembered_without_end() -> None:
    cluster = Cluster3()
    for number in range(2 * NODES_MAX):
        cluster.hear(0, f"n{number}", f"p{number}")
    assert len(cluster.membership.presence.nodes) == NODES_MAX


def test_of_one_shard_a_standby_is_spare_for_all() -> None:
    cluster = Cluster3()
    cluster.membership.cluster = Cluster("c", shards=1)
    for _ in range(20):
        cluster.now_ms += GONE_MS // 2
        cluster.hear(1, "a", "a1", relay="a:2")
        cluster.hear(0, "b", "b2", relay="b:2")
        cluster.hear(0, "c", "c2", relay="c:2")
    assert cluster.warnings == []


def test_since_when_an_owner_is_known() -> None:
    """Through the processes of the machine, which pass on what they know."""
    cluster = Cluster3()
    cluster.now_ms += 5_000
    cluster.hear_all()
    cluster.hear(2, "b", "b3", shard=0)
    cluster.now_ms += 700
    cluster.hear_all()
    cluster.hear(2, "b", "b3", shard=0)
    assert [each.since_ms for each in cluster.nodes.document().shards] == [700, 5_700, 5_700]
    known = msgspec.json.encode(cluster.membership.presence)
    later = Membership(Bus(), Cluster("c", shards=3), lambda: cluster.now_ms, known)
    assert [each.since_ms for each in Nodes(later, "a").document().shards] == [700, 5_700, 5_700]


def test_a_shard_is_given_away_once() -> None:
    cluster = Cluster3()
    assert cluster.nodes.move(0, "c") is None
    refused = cluster.nodes.move(0, "b")
    assert refused is not None
    assert (refused.status, refused.text) == (409, "shard 0 is on its way to node c")
    assert cluster.given == ["c"]
    assert cluster.nodes.document().shards[0].moving_to == "c"
