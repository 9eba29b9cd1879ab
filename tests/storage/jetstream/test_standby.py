"""Who claims which shard: several nodes on simulated servers, with one bus of heartbeats."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import cast

import msgspec
import pytest

from tests.storage.jetstream.cluster import Faults
from tests.storage.jetstream.servers import Bus, Servers, Stream
from zbus.protocol.places import NODE_PROTOCOL
from zbus.storage.jetstream.nats import NatsStream
from zbus.storage.jetstream.ownership import QUIET_MS, Claimed, Owner
from zbus.storage.jetstream.presence import APART_MS, GONE_MS, RETURN_MS, Heartbeat, order_of
from zbus.storage.jetstream.settings import Cluster
from zbus.storage.jetstream.standby import TURN_MS, Standby
from zbus.storage.port import JournalError

CLUSTER = "test"
NODES = ("a", "b", "c")
SHARDS = 6
STRANGER = Heartbeat(0, "b", "b:1", "x", process="x", protocol=NODE_PROTOCOL)
"""A process of a node that says nothing else."""
START_MS = 300
"""What a process needs to start, at most."""


class Process:
    """A spare, and the owner that it becomes."""

    def __init__(self, node: Node, known: bytes) -> None:
        self._node = node
        self._servers = node.servers
        self._streams: list[Stream] = []
        self._bus = Bus(node.servers)
        self.claimed: Claimed | None = None
        cluster = Cluster(CLUSTER, shards=node.servers.shards)
        self.standby = Standby(
            self._bus,
            self._connect,
            cluster,
            node.name,
            f"{node.name}:1",
            60_000,
            self._done,
            known=known,
        )
        self.standby.start()

    def _connect(self, name: str) -> NatsStream:
        self._streams.append(Stream(self._servers, name))
        return cast(NatsStream, self._streams[-1])

    def _done(self, answer: Claimed | JournalError) -> None:
        assert isinstance(answer, Claimed), answer
        self.claimed = answer
        self._node.owns(answer.owner.shard, self.standby.tell())
        self.standby.confirm(answer.sequence, 0)
        self._look()

    def _look(self) -> None:
        """As a worker does it once a second."""
        assert self.claimed is not None
        if not self._bus.alive:
            return
        if self.standby.membership.better(self._node.name, self.claimed.owner.shard):
            self.leave()
        else:
            self._servers.after(1_000, self._look)

    def leave(self, heir: str = "") -> None:
        self.standby.leave(heir)
        self._servers.after(10, self.end)
        self._node.processes.remove(self)

    def end(self) -> None:
        self._bus.alive = False
        for stream in self._streams:
            stream.close()


class Node:
    """A machine: as many owners as come about, and a spare."""

    def __init__(self, servers: Servers, name: str, start_ms: int) -> None:
        self.servers = servers
        self.name = name
        self._start_ms = start_ms
        self.alive = True
        self.processes: list[Process] = []
        self.claims: list[tuple[int, int]] = []  # shards, and when
        self.begin()

    def begin(self, known: bytes = b"") -> None:
        if self.alive:
            self.processes.append(Process(self, known))

    def owns(self, shard: int, known: bytes) -> None:
        self.claims.append((shard, self.servers.now_ms))
        begin = partial(self.begin, known)
        self.servers.after(self.servers.random.randrange(self._start_ms), begin)

    @property
    def shards(self) -> set[int]:
        return {each.claimed.owner.shard for each in self.processes if each.claimed is not None}

    def die(self) -> None:
        self.alive = False
        for process in self.processes:
            process.end()


class World:
    """Some nodes that start at about the same time."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        nodes: tuple[str, ...] = NODES,
        start_ms: int = START_MS,
        shards: int = SHARDS,
    ) -> None:
        self.servers = Servers(Random(seed), faults, shards)
        self._start_ms = start_ms
        self.nodes: dict[str, Node] = {}
        for name in nodes:
            self.servers.after(self.servers.random.randrange(200), partial(self.begin, name))

    def begin(self, name: str) -> None:
        self.nodes[name] = Node(self.servers, name, self._start_ms)

    def run(self, ms: int) -> None:
        until_ms = self.servers.now_ms + ms
        self.servers.after(ms, lambda: None)  # time passes, also where nothing lives
        while self.servers.now_ms < until_ms:
            assert self.servers.step()

    def owner(self, shard: int) -> Process:
        """The process that owns a shard."""
        (found,) = [
            process
            for node in self.nodes.values()
            for process in node.processes
            if process.claimed is not None and process.claimed.owner.shard == shard
        ]
        return found

    def owners(self) -> dict[int, str]:
        """Who owns each shard: as the streams say, and as the processes know it."""
        found: dict[int, str] = {}
        for name, node in self.nodes.items():
            for process in node.processes if node.alive else ():
                if process.claimed is not None:
                    owner = process.claimed.owner
                    stream = self.servers.streams[f"zbus-{CLUSTER}-{owner.shard}"]
                    newest = msgspec.json.decode(stream.log[-1].body, type=Owner)
                    assert newest.random == owner.random, "it is another's"
                    assert owner.shard not in found
                    found[owner.shard] = name
        return found


def first_of(shard: int, *nodes: str) -> str:
    return min(nodes, key=lambda node: order_of(node, shard))


@pytest.mark.parametrize("seed", range(6))
def test_shards_go_to_the_nodes_that_come_first(seed: int) -> None:
    """All start at once; one dies, and what it had goes to the others, in their order."""
    world = World(seed, Faults.none())
    world.run(20_000)
    assert world.owners() == {shard: first_of(shard, *NODES) for shard in range(SHARDS)}
    dead = world.servers.random.choice(NODES)
    left = [name for name in NODES if name != dead]
    lost = world.nodes[dead].shards
    died_ms = world.servers.now_ms
    world.nodes[dead].die()
    world.run(20_000)
    assert world.owners() == {shard: first_of(shard, *NODES) for shard in range(SHARDS)} | {
        shard: first_of(shard, *left) for shard in lost
    }
    for name in left:
        late = [at_ms for shard, at_ms in world.nodes[name].claims if at_ms > died_ms]
        for number, at_ms in enumerate(sorted(late), 1):
            assert at_ms - died_ms < GONE_MS + number * TURN_MS


@pytest.mark.parametrize("seed", [0, 5, 6, 7])
def test_a_node_whose_processes_start_slowly_is_waited_for(seed: int) -> None:
    """Each claim of it begins the time anew that the next node waits."""
    world = World(seed, Faults.none(), start_ms=TURN_MS * 3 // 4)
    world.run(30_000)
    assert world.owners() == {shard: first_of(shard, *NODES) for shard in range(SHARDS)}


@pytest.mark.parametrize("seed", range(6))
def test_every_shard_has_one_owner_whatever_fails(seed: int) -> None:
    """Answers are lost or late, replicas are behind, nodes die and come back."""
    world = World(seed, Faults())
    chance = world.servers.random
    for _ in range(4):
        world.run(chance.randrange(1_000, 30_000))
        name = chance.choice(NODES)
        if world.nodes[name].alive:
            world.nodes[name].die()
        else:
            world.begin(name)
    for name in NODES:
        if not world.nodes[name].alive:
            world.begin(name)
    world.run(120_000)
    assert set(world.owners()) == set(range(SHARDS))


@pytest.mark.parametrize("seed", range(2))
def test_shards_return_to_a_node_that_is_back(seed: int) -> None:
    """One at a time, and not before it has lived for a while."""
    world = World(seed, Faults.none())
    world.run(20_000)
    back = world.servers.random.choice(NODES)
    world.nodes[back].die()
    world.run(RETURN_MS)  # so long the others have had its shards
    world.begin(back)
    begun_ms = world.servers.now_ms
    world.run(RETURN_MS - 2_000)
    assert back not in world.owners().values()
    world.run(SHARDS * APART_MS + 6_000)
    assert world.owners() == {shard: first_of(shard, *NODES) for shard in range(SHARDS)}
    claims_ms = [at_ms for _, at_ms in world.nodes[back].claims]
    assert min([RETURN_MS + begun_ms, *claims_ms]) >= RETURN_MS + begun_ms - 1_000


def test_a_shard_is_not_given_to_and_fro() -> None:
    """The node that comes first lives, has a spare, and does not claim it."""
    world = World(1, Faults.none(), ("a",))
    world.run(20_000)
    bus = Bus(world.servers)
    bus.beat("zb.test.live.x", msgspec.json.encode(STRANGER), 500)
    before = len(world.nodes["a"].claims)
    world.run(5 * RETURN_MS)
    given = len(world.nodes["a"].claims) - before
    mine = [shard for shard in range(SHARDS) if first_of(shard, "a", "b") == "b"]
    assert 0 < given <= 5 * len(mine)  # once a minute
    assert set(world.owners()) == set(range(SHARDS))


@pytest.mark.parametrize("seed", range(3))
def test_a_shard_that_is_moved_stays_there(seed: int) -> None:
    """Until its new owner ends: then it goes where it belongs."""
    world = World(seed, Faults.none())
    world.run(20_000)
    before = world.owners()
    *_, goal = sorted(NODES, key=lambda node: order_of(node, 0))  # comes last to this shard
    world.owner(0).leave(goal)
    given_ms = world.servers.now_ms
    world.run(2_000)
    assert world.owners() == before | {0: goal}
    assert world.nodes[goal].claims[-1][1] - given_ms < 500
    world.run(RETURN_MS + 2 * SHARDS * APART_MS)
    assert world.owners() == before | {0: goal}
    world.owner(0).leave()
    world.run(4_000)
    assert world.owners() == before


@pytest.mark.parametrize("seed", range(3))
def test_a_shard_is_not_lost_if_the_node_that_should_have_it_ends(seed: int) -> None:
    world = World(seed, Faults.none())
    world.run(20_000)
    first, second, last = sorted(NODES, key=lambda node: order_of(node, 0))
    world.owner(0).leave(last)
    world.nodes[last].die()
    world.run(GONE_MS + 2 * TURN_MS)
    assert world.owners()[0] == first
    world.owner(0).leave(last)  # that is not there: nobody waits for it
    world.run(TURN_MS)
    assert world.owners()[0] in (first, second)


@pytest.mark.parametrize(("seed", "start_ms"), [(1, 300), (0, 600), (1, 900), (5, 900)])
def test_a_node_alone_owns_all(seed: int, start_ms: int) -> None:
    """Each shard is claimed once, though no spare has the time to hear all owners."""
    world = World(seed, Faults.none(), ("a",), start_ms)
    world.run(20_000)
    assert sorted(shard for shard, _ in world.nodes["a"].claims) == list(range(SHARDS))
    assert set(world.owners()) == set(range(SHARDS))


def test_one_that_comes_first_and_cannot_start_is_waited_for_once() -> None:
    """Its heartbeats say that it lives; the next in order claims what it does not."""
    world = World(1, Faults.none(), ("a",))
    world.run(100)
    bus = Bus(world.servers)
    bus.beat("zb.test.live.x", msgspec.json.encode(STRANGER), 500)
    world.run(60_000)
    assert set(world.owners()) == set(range(SHARDS))
    mine = [at_ms for shard, at_ms in world.nodes["a"].claims if first_of(shard, "a", "b") == "b"]
    assert mine
    assert min(mine) >= TURN_MS


def test_nobody_waits_for_an_owner_whose_end_was_seen() -> None:
    world = World(4, Faults.none(), ("a",))
    world.run(20_000)
    node = world.nodes["a"]
    owner, spare = node.processes[0], node.processes[-1]
    assert owner.claimed is not None
    assert spare.claimed is None
    ended_ms, shard = world.servers.now_ms, owner.claimed.owner.shard
    owner.end()
    spare.standby.ended(shard, owner.claimed.owner.epoch)
    spare.standby.ended(shard + 1, owner.claimed.owner.epoch + 1)  # not the one that owns it
    world.run(500)
    assert spare.claimed is not None
    assert spare.claimed.owner.shard == shard
    assert node.claims[-1][1] - ended_ms < 300
    assert spare.claimed.quiet_until_ms <= world.servers.now_ms
    world.run(5_000)
    assert len(node.claims) == SHARDS + 1


@pytest.mark.parametrize(("served_ms", "quiet_ms"), [(0, QUIET_MS), (2 * QUIET_MS, 0)])
def test_one_that_ends_while_it_is_quiet_leaves_that_to_the_next(
    served_ms: int, quiet_ms: int
) -> None:
    """All of a node are gone, which nobody has seen; the one that follows is killed at once, and
    its parent sees it."""
    world = World(2, Faults.none(), ("a",), shards=2)
    world.run(10_000)
    world.nodes["a"].die()
    world.begin("a")
    node = world.nodes["a"]
    while not node.shards:
        world.run(100)
    (second,) = [process for process in node.processes if process.claimed is not None]
    assert second.claimed is not None
    world.run(1_000 + served_ms)
    shard = second.claimed.owner.shard
    second.end()
    node.processes.remove(second)
    ended_ms = world.servers.now_ms
    for process in node.processes:
        if process.claimed is None:
            process.standby.ended(shard, second.claimed.owner.epoch)
    world.run(1_500)
    claimed = world.owner(shard).claimed
    assert claimed is not None
    assert claimed.owner.epoch == second.claimed.owner.epoch + 1
    assert node.claims[-1][1] - ended_ms < GONE_MS
    assert claimed.quiet_until_ms == node.claims[-1][1] + quiet_ms


def test_a_former_owner_is_quiet_before_its_shard_is_served() -> None:
    world = World(3, Faults.none(), ("a",))
    world.run(20_000)
    world.nodes["a"].die()
    world.begin("a")
    world.run(20_000)
    for process in world.nodes["a"].processes:
        if process.claimed is not None:
            claimed = process.claimed
            assert claimed.owner.epoch == 2
            assert claimed.quiet_until_ms - claimed.sent_ms >= QUIET_MS
