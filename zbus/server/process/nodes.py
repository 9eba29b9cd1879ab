"""What a process of a cluster tells of the others, and how it gives its shard to one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from zbus.dialects.zbus.settings import Refused
from zbus.protocol.documents import ClusterInfo, NodeInfo, ShardInfo
from zbus.storage.jetstream.ownership import CERTAIN_MS
from zbus.storage.jetstream.presence import Membership

_SPARELESS_MS = 10_000
"""A node that has lived for so long has had the time to begin its spare processes."""


class Nodes:
    """See above (`zbus.dialects.zbus.settings.Cluster`)."""

    def __init__(self, membership: Membership, node: str) -> None:
        self._membership = membership
        self._node = node
        self.shard: int | None = None
        """That this process owns."""
        self.heir = ""
        """The node for which it gives that up."""
        self.leaves = self.stops = False
        """It answers what is open, and gives its shard up then; and its process is told to end."""
        self.give_up: Callable[[], None] = lambda: None
        """Answer what is open, and end."""

    @property
    def hears(self) -> bool:
        """Whether heartbeats arrive."""
        return self._membership.hears

    def move(self, shard: int, node: str) -> Refused | None:
        """Give the shard to a node; or why not."""
        presence, now_ms = self._membership.presence, self._membership.now_ms()
        count = self._membership.cluster.shards
        live = sorted(name for name in presence.nodes if presence.is_live(name, now_ms))
        if shard >= count:
            return Refused(404, f"there is no shard {shard}: they are 0 to {count - 1}")
        if shard != self.shard:
            return Refused(503, f"shard {shard} has no owner just now; retry in 1 s")
        if self.stops:
            return Refused(503, f"node {self._node} is stopping; retry in 1 s")
        if self.heir:
            return Refused(409, f"shard {shard} is on its way to node {self.heir}")
        if node == self._node:
            return Refused(409, f"node {node} owns shard {shard} already")
        if node not in live:
            return Refused(404, f"there is no node {node[:100]} just now: {', '.join(live)}")
        if not presence.nodes[node].spares(now_ms):
            return Refused(503, f"node {node} has no process to spare just now; retry in 1 s")
        self.heir = node
        self.give_up()
        return None

    def document(self) -> ClusterInfo:
        """What this process knows."""
        shards = [self._shard(number) for number in range(self._membership.cluster.shards)]
        owned = defaultdict(list)
        for each in shards:
            owned[each.node].append(each.shard)
        names = sorted(self._membership.presence.nodes)
        nodes = [self._info(name, owned[name]) for name in names]
        return ClusterInfo(
            cluster=self._membership.cluster.name,
            asked=self._node,
            nodes=nodes,
            shards=shards,
            warnings=[*self._warned(nodes, shards)],
        )

    def _shard(self, number: int) -> ShardInfo:
        membership, now_ms = self._membership, self._membership.now_ms()
        owner = membership.owner(number)
        heir = membership.presence.heir(number, now_ms)
        if number == self.shard:
            heir = self.heir
        if owner is None:
            claimed = membership.presence.owners.get(number)
            is_there = claimed is not None and not membership.presence.has_left(claimed)
            opening = claimed.node if claimed is not None and claimed.opening and is_there else ""
            return ShardInfo(shard=number, moving_to=heir, opening=opening)
        return ShardInfo(
            shard=number,
            node=owner.node,
            epoch=owner.epoch,
            since_ms=now_ms - membership.presence.owned_ms.get(number, now_ms),
            sequence=owner.sequence,
            late_ms=owner.late_ms if owner.late_ms >= CERTAIN_MS else 0,
            moved=owner.moved,
            moving_to=heir,
        )

    def _info(self, name: str, shards: list[int]) -> NodeInfo:
        presence, now_ms = self._membership.presence, self._membership.now_ms()
        node, live = presence.nodes[name], presence.is_live(name, now_ms)
        return NodeInfo(
            node=name,
            address=node.newest.address,
            relay=node.newest.relay,
            version=node.newest.version,
            live=live,
            since_ms=now_ms - (node.since_ms if live else node.heard_ms),
            spares=node.spares(now_ms),
            shards=shards,
        )

    def _warned(self, nodes: list[NodeInfo], shards: list[ShardInfo]) -> Iterator[str]:
        presence, now_ms = self._membership.presence, self._membership.now_ms()
        if not self.hears:
            yield f"Node {self._node} hears no heartbeats: it may be cut off from the NATS servers."
        for shard in shards:
            if not shard.node:
                yield f"Shard {shard.shard} has no owner."
            elif shard.late_ms:
                yield f"The NATS servers confirm nothing to the owner of shard {shard.shard}."
        for node in nodes:
            if presence.nodes[node.node].has_twin(now_ms):
                relays = " and ".join(sorted(presence.nodes[node.node].relays))
                yield f"Two nodes are called {node.node}: they are reached at {relays}."
            if not node.live:
                yield f"Node {node.node} is gone."
            elif len(shards) > 1 and not node.spares and node.since_ms >= _SPARELESS_MS:
                yield f"Node {node.node} has no spare process: it can take no shard over."
        live = [presence.nodes[node.node].newest for node in nodes if node.live]
        yield from _differ("version", {each.node: each.version for each in live})
        for what in sorted({name for each in live for name in each.alike}):
            yield from _differ(what, {each.node: each.alike.get(what, "") for each in live})


def _differ(what: str, of_nodes: dict[str, str]) -> Iterator[str]:
    """A sentence, if nodes do not have the same."""
    if len(set(of_nodes.values())) > 1:
        by_value = defaultdict(list)
        for node, value in of_nodes.items():
            by_value[value].append(node)
        groups = " / ".join(", ".join(names) for names in by_value.values())
        yield f"Nodes differ in {what}: {groups}."
