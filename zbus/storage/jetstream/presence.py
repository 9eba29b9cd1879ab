"""Who is there in a cluster, and who owns which shard, as far as a process hears of it
(`scale.md`, section 6.2).

Every broker of a cluster publishes a heartbeat, a plain message that is not stored. An owner that
is silent for `GONE_MS` is gone, for those that hear themselves. For each shard the live nodes have
an order that all of them compute (rendezvous hashing).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec

from zbus.documents import NOT_JSON
from zbus.storage.jetstream.ownership import Owner
from zbus.storage.jetstream.settings import Cluster
from zbus.storage.jetstream.subjects import Subjects

BEAT_MS: Final = 500
GONE_MS: Final = 2_000
ECHO_MS: Final = 1_000
"""Who does not hear itself within this time does not suspect others."""
AGAIN_MS: Final = 1_000
"""What a heartbeat says is put together anew so often."""
RETURN_MS: Final = 60_000
"""A shard goes to a node that comes before its owner's when that one has lived for so long."""
APART_MS: Final = 10_000
"""And has claimed no other one for so long."""
NODES_MAX: Final = 1_000
"""More are not remembered at a time, whoever says so many names."""
HEIR_MS: Final = 10_000
"""A shard that is moved by hand waits for its new node so long, at most."""
TWINS_MS, TWINS_TIMES = 10_000, 5
"""A node that was at two places in turn so often within this time is two."""
_FORGET_MS: Final = 60 * GONE_MS
_NUMBERS: Final = 1 << 53


def order_of(node: str, shard: int) -> bytes:
    """Nodes come in the order of these to a shard that is free: another one for each shard."""
    return blake2b(b"%d/%b" % (shard, node.encode()), digest_size=8).digest()


class Heartbeat(Owner, frozen=True, omit_defaults=True):
    """What a process says of itself; without an epoch it is one that owns nothing."""

    sequence: int = 0  # of the newest message that is confirmed
    late_ms: int = 0  # since when it waits for the NATS servers to confirm something
    process: str = ""  # also before it has claimed a shard
    relay: str = ""  # where other nodes reach its node
    version: str = ""  # of the program
    protocol: int = 0  # that nodes speak with each other
    # What should be the same on all nodes, and a digest of it.
    alike: dict[str, str] = msgspec.field(default_factory=dict)
    heir: str = ""  # the node for which it leaves
    moved: bool = False  # it was put where it is by hand
    opening: bool = False  # it reads what is there, and serves nobody


class Node(msgspec.Struct):
    """What is known of one. Times are as in `Presence`."""

    heard_ms: int
    since_ms: int  # it has been heard without a gap
    newest: Heartbeat
    claimed_ms: int = 0  # when it was first heard to own one more shard
    spares_ms: dict[str, int] = {}
    """When each of its processes was heard that own nothing."""
    relays: list[str] = []
    """Where it said that it is reached, newest first: if these alternate, they are two nodes."""
    alternated_ms: list[int] = []

    def hear(self, heard: Heartbeat, now_ms: int) -> None:
        if now_ms - self.heard_ms >= GONE_MS:
            self.since_ms = now_ms
        self.heard_ms, self.newest = now_ms, heard
        if not heard.epoch:
            self.spares_ms[heard.process] = now_ms
        else:
            self.spares_ms.pop(heard.process, None)
        relays = [heard.relay, *(other for other in self.relays if other != heard.relay)]
        if len(relays) > 1 and relays != self.relays:
            self.alternated_ms = [now_ms, *self.alternated_ms[: TWINS_TIMES - 1]]
        self.relays = relays[:2]

    def spares(self, now_ms: int) -> int:
        """How many of its processes wait to claim a shard."""
        return sum(now_ms - heard_ms < GONE_MS for heard_ms in self.spares_ms.values())

    def has_twin(self, now_ms: int) -> bool:
        """Whether two nodes have this name."""
        times = self.alternated_ms
        return len(times) == TWINS_TIMES and now_ms - times[-1] < TWINS_MS


class Presence(msgspec.Struct):
    """Who is there: heartbeats of all brokers of a cluster. Times are of this machine's clock,
    which all of its processes share."""

    heard_ms: dict[str, int] = {}
    """When one was heard last, by its random id."""
    nodes: dict[str, Node] = {}
    owners: dict[int, Heartbeat] = {}
    """The newest owner of each shard that was heard of."""
    owned_ms: dict[int, int] = {}
    """When each of these was heard first."""
    left: set[str] = set()
    """Random ids of those that said that they left, or whose end their parent has seen."""
    heirs: dict[int, tuple[str, int]] = {}
    """The node for which the owner of a shard has left, and until when that one comes first."""
    known_ms: int = -1 << 60
    """All live ones were heard up to this time."""

    def hear(self, heard: Heartbeat, now_ms: int) -> None:
        known = self.owners.get(heard.shard)
        if heard.left:
            self.left.add(heard.random)
            if heard.heir and known is not None and known.random == heard.random:
                self.heirs[heard.shard] = heard.heir, now_ms + HEIR_MS
        else:
            if heard.node not in self.nodes and len(self.nodes) >= NODES_MAX:
                return
            self.heard_ms[heard.random] = now_ms
            node = self.nodes.setdefault(heard.node, Node(now_ms, now_ms, heard))
            node.hear(heard, now_ms)
        if not heard.epoch or (known is not None and known.epoch > heard.epoch):
            return
        if known is None or known.epoch < heard.epoch:
            if heard.node in self.nodes:
                self.nodes[heard.node].claimed_ms = now_ms
            self.heirs.pop(heard.shard, None)
            self.owned_ms[heard.shard] = now_ms
        elif known.sequence > heard.sequence:
            heard = known
        else:  # a heartbeat may come late: what is over does not begin again
            opening, quiet = known.opening and heard.opening, known.quiet and heard.quiet
            heard = msgspec.structs.replace(heard, opening=opening, quiet=quiet)
        self.owners[heard.shard] = heard

    def has_left(self, owner: Owner) -> bool:
        return owner.left or owner.random in self.left

    def all_have_left(self, owner: Owner) -> bool:
        """Neither this one nor an owner before it delivers anything any more. One that left, or
        ended, while it had to be quiet does not tell whether the one before it has."""
        if owner.left:
            return not owner.quiet
        heard = self.owners.get(owner.shard)
        is_known = heard is not None and heard.random == owner.random and not heard.quiet
        return is_known and owner.random in self.left

    def confirmed(self, shard: int) -> int:
        """Sequence up to which the newest owner of the shard said that all is confirmed."""
        owner = self.owners.get(shard)
        return 0 if owner is None else owner.sequence

    def silent_ms(self, random: str, now_ms: int) -> int:
        """For how long nothing was heard; one that was never heard begins to be watched now."""
        return now_ms - self.heard_ms.setdefault(random, now_ms)

    def is_live(self, node: str, now_ms: int) -> bool:
        return node in self.nodes and now_ms - self.nodes[node].heard_ms < GONE_MS

    def heir(self, shard: int, now_ms: int) -> str:
        """The node for which the shard was given up; "" = it was not, or that was long ago."""
        node, until_ms = self.heirs.get(shard, ("", 0))
        return node if now_ms < until_ms else ""

    def before(self, node: str, shard: int, now_ms: int) -> list[str]:
        """Live nodes that come to the shard before this one."""
        mine, heir = order_of(node, shard), self.heir(shard, now_ms)
        return [
            other
            for other in self.nodes
            if other != node != heir
            and self.is_live(other, now_ms)
            and (other == heir or order_of(other, shard) < mine)
        ]

    def better(self, node: str, shard: int, now_ms: int) -> str:
        """To which node this one should give its shard; "" = to none."""
        found = [
            other
            for other in self.before(node, shard, now_ms)
            if now_ms - self.nodes[other].since_ms >= RETURN_MS
            and self.nodes[other].spares(now_ms)
            and now_ms - self.nodes[other].claimed_ms >= APART_MS
        ]
        return min(found, key=lambda other: order_of(other, shard), default="")

    def claimed_ms(self, nodes: list[str]) -> int:
        """When one of these nodes claimed a shard last; 0 = none has."""
        return max((self.nodes[node].claimed_ms for node in nodes), default=0)

    def forget(self, now_ms: int) -> None:
        """Those that are gone for long, but owners that nobody has replaced."""
        owners = {owner.random for owner in self.owners.values()}
        nodes = [(name, node.heard_ms, self.nodes) for name, node in self.nodes.items()]
        heard = [(name, at_ms, self.heard_ms) for name, at_ms in self.heard_ms.items()]
        for node in self.nodes.values():
            heard += [(name, at_ms, node.spares_ms) for name, at_ms in node.spares_ms.items()]
        for name, heard_ms, known in (*nodes, *heard):
            if now_ms - heard_ms > _FORGET_MS and name not in owners:
                known.pop(name, None)  # type: ignore[attr-defined]
        self.left &= self.heard_ms.keys() | owners


class Bus(Protocol):
    """Messages to all that listen: `zbus.storage.jetstream.client.NatsClient`."""

    def publish(self, subject: str, body: bytes) -> None: ...

    def subscribe(self, pattern: str, received: Callable[[bytes], None]) -> None: ...

    def beat(self, subject: str, body: bytes, every_ms: int) -> None: ...


class Voice:
    """What a process says of itself to all others."""

    def __init__(
        self, bus: Bus, cluster: str, me: Heartbeat, alike: Callable[[], dict[str, str]]
    ) -> None:
        self.said = me
        self._bus = bus
        self._subjects = Subjects(cluster)
        self._alike = alike
        self._next_ms = 0

    def look(self, now_ms: int) -> None:
        """Called again and again: what is told is put together anew, if something has changed."""
        if now_ms >= self._next_ms:
            is_first, self._next_ms = not self._next_ms, now_ms + AGAIN_MS
            if is_first or self._alike() != self.said.alike:
                self.say()

    def say(self, **changes: Any) -> None:  # noqa: ANN401 - fields of a heartbeat
        """From now on, again and again, with these fields changed."""
        self.said = msgspec.structs.replace(self.said, alike=self._alike(), **changes)
        subject = self._subjects.heartbeat(self.said.process)
        self._bus.beat(subject, msgspec.json.encode(self.said), BEAT_MS)

    def say_of(self, other: Heartbeat, **changes: Any) -> None:  # noqa: ANN401 - likewise
        """Once, of another one that cannot say it any more."""
        said = msgspec.structs.replace(other, **changes)
        self._bus.publish(self._subjects.heartbeat(said.random), msgspec.json.encode(said))

    def leave(self, heir: str) -> None:
        """It has given its shard up, for this node if one is named."""
        self.say_of(self.said, left=True, heir=heir)


class Membership:
    """What a process hears of the others of its cluster."""

    def __init__(
        self, bus: Bus, cluster: Cluster, now_ms: Callable[[], int], known: bytes = b""
    ) -> None:
        """`known` is what another process of this machine knew just before."""
        self.presence = msgspec.json.decode(known, type=Presence) if known else Presence()
        self.changed: Callable[[int], None] = lambda shard: None
        """Called with the number of a shard that has another owner, or whose owner serves now."""
        self._bus = bus
        self.cluster = cluster
        self.now_ms = now_ms
        self._heard_ms = self._forgot_ms = 0
        self.owned_ms: int | None = None
        """Since when this process owns its shard, if it was not put here by hand."""

    def listen(self) -> None:
        self._bus.subscribe(Subjects(self.cluster.name).heartbeat("*"), self._heard)

    def _heard(self, body: bytes) -> None:
        try:
            heard = msgspec.json.decode(body, type=Heartbeat)
        except NOT_JSON:
            return
        is_sound = 0 <= heard.epoch < _NUMBERS and 0 <= heard.sequence < _NUMBERS
        if is_sound and 0 <= heard.shard < self.cluster.shards:
            self._heard_ms = self.now_ms()
            if self._heard_ms - self._forgot_ms > _FORGET_MS:
                self._forgot_ms = self._heard_ms
                self.presence.forget(self._heard_ms)
            before = self.presence.owners.get(heard.shard)
            self.presence.hear(heard, self._heard_ms)
            after = self.presence.owners.get(heard.shard)
            if after is not None and (before is None or _state(before) != _state(after)):
                self.changed(heard.shard)

    def better(self, node: str, shard: int) -> str:
        """To which node this process should give its shard; "" = to none. It has had it for a
        while, or it would be given to and fro if that one cannot serve it. Each shard has its time,
        so that not all are given at once."""
        now_ms = self.now_ms()
        is_turn = now_ms // APART_MS % self.cluster.shards == shard
        if not is_turn or self.owned_ms is None or now_ms - self.owned_ms < RETURN_MS:
            return ""
        return self.presence.better(node, shard, now_ms)

    @property
    def hears(self) -> bool:
        """Whether heartbeats arrive."""
        return self.now_ms() - self._heard_ms < ECHO_MS

    def owner(self, shard: int) -> Heartbeat | None:
        """Who owns it and serves it, as far as this process knows."""
        owner = self.presence.owners.get(shard)
        if owner is None or owner.opening or self.presence.has_left(owner):
            return None
        now_ms = self.now_ms()
        silent_ms = self.presence.silent_ms(owner.random, now_ms)
        is_gone = silent_ms >= GONE_MS and self.hears
        return None if is_gone else owner


def _state(owner: Heartbeat) -> tuple[str, bool]:
    """What routes depend on."""
    return owner.random, owner.opening
