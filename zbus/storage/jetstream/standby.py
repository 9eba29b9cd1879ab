"""From a connection to an owned shard: watch who owns the shards of a cluster, and claim one that
is free (`scale.md`, section 6).

Every broker of a cluster publishes a heartbeat, a plain message that is not stored. An owner that
is silent for `GONE_MS` is gone, for those that hear themselves. Heartbeats only decide when a claim
is tried: the stream decides who owns the shard (`zbus.storage.jetstream.ownership`).

With several shards, those of a node that is gone go to all that are left: for each shard the live
nodes have an order that all of them compute (rendezvous hashing), and each waits for those before
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from zbus import __version__
from zbus.documents import NOT_JSON
from zbus.protocol.places import NODE_PROTOCOL, speaks_with
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.settings import Cluster, find_problems, make_settings
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError

BEAT_MS: Final = 500
GONE_MS: Final = 2_000
AGAIN_MS: Final = 1_000
"""What a heartbeat says is put together anew so often."""
LOOK_MS: Final = 100
TURN_MS: Final = 1_500
"""A node waits so long for each node that comes before it, and again whenever one of these has
claimed another shard: one process claims one shard, and the next one needs a moment to start."""
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
_ECHO_MS: Final = 1_000
"""Who does not hear itself within this time does not suspect others."""
_ACQUAINT_MS: Final = BEAT_MS + LOOK_MS
"""After so long every live node was heard."""


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
        elif known.sequence > heard.sequence:
            heard = known
        self.owners[heard.shard] = heard

    def has_left(self, owner: Owner) -> bool:
        return owner.left or owner.random in self.left

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
        return self.now_ms() - self._heard_ms < _ECHO_MS

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


class Shard:
    """One, as a standby knows it."""

    def __init__(self, number: int, cluster: Cluster, connect: Callable[[str], NatsStream]) -> None:
        self.number = number
        self.subjects = Subjects(cluster.name, number)
        self.stream = connect(self.subjects.stream)
        self.config: dict[str, Any] = {}  # of the stream, once it was found
        self.read: Owner | None = None  # who owned it when it was tried last
        self.free_ms: int | None = None  # since when it is free


class Standby:
    """See above. `done` gets the claim, or what stands in the way for good."""

    def __init__(
        self,
        bus: Bus,
        connect: Callable[[str], NatsStream],
        cluster: Cluster,
        node: str,
        address: str,
        timeout_ms: int,
        done: Callable[[Claimed | JournalError], None],
        copying: str = "",
        avoid: Mapping[int, float] = MappingProxyType({}),
        known: bytes = b"",
        relay: str = "",
        alike: Callable[[], dict[str, str]] = dict,
        only: int | None = None,
    ) -> None:
        """`connect` opens a stream of a name; `node`, `address`, `relay` and what `alike` gives are
        told to others. Shards are not claimed before the times of `avoid`, of the monotonic clock
        in seconds. `known` is what another standby of this machine knew just before (`tell`).
        `only` is the one shard that is to be claimed."""
        self._avoid = dict(avoid)
        self._copying = copying
        self._cluster = cluster
        wanted = range(cluster.shards) if only is None else [only]
        self.shards = [Shard(number, cluster, connect) for number in wanted]
        random = os.urandom(8).hex()
        self._me = Heartbeat(
            0,
            node,
            address,
            random,
            process=random,
            relay=relay,
            version=__version__,
            protocol=NODE_PROTOCOL,
        )
        self._voice = Voice(bus, cluster.name, self._me, alike)
        self.is_admitted = bool(known)
        """It is known that this node can be one of those that are there."""
        self._timeout_ms = timeout_ms
        self._done = done
        self._claim: Claim | None = None
        self.membership = Membership(bus, cluster, self.shards[0].stream.now_ms, known)
        self._begun_ms = self._tried_ms = self._now_ms()
        self._trying = self.shards[0]
        self._problem = ""

    @property
    def shard(self) -> Shard:
        """The one that was claimed, or is tried."""
        return self._trying

    @property
    def owner(self) -> Owner | None:
        """Who owns that one, as far as this one knows."""
        return self._owner_of(self._trying)

    @property
    def problem(self) -> str:
        """Why nothing is known of an owner."""
        return self._problem or ("" if self._claim is None else self._claim.problem)

    def tell(self) -> bytes:
        """What is known of others, for the standby that comes after this one."""
        self._presence.known_ms = self._now_ms()
        return msgspec.json.encode(self._presence)

    def avoid(self, shard: int, until_s: float) -> None:
        """It cannot be served just now."""
        self._avoid[shard] = until_s

    def ended(self, shard: int, epoch: int) -> None:
        """An owner's process on this machine has ended: nobody need wait for it."""
        owner = self._presence.owners.get(shard)
        if owner is not None and (owner.epoch, owner.node) == (epoch, self._me.node):
            self._voice.say_of(owner, left=True)

    def leave(self, heir: str = "") -> None:
        """The shard was given up, for this node if one is named: whoever waits for it need not wait
        longer."""
        self._voice.leave(heir)

    @property
    def is_opening(self) -> bool:
        """The shard is claimed, and not read yet."""
        return self._voice.said.opening

    def opened(self) -> None:
        """The shard is read: requests may come."""
        self._voice.say(opening=False)

    def confirm(self, sequence: int, late_ms: int) -> None:
        """Let the others know how much is confirmed, so that none of them owns less, and for how
        long it waits that more is."""
        self._voice.say(sequence=sequence, late_ms=late_ms)

    def start(self) -> None:
        self.membership.listen()
        self._voice.look(self._now_ms())
        if len(self.shards) == 1:
            self._look()
        else:
            self._check()

    @property
    def _presence(self) -> Presence:
        return self.membership.presence

    def _now_ms(self) -> int:
        return self.shards[0].stream.now_ms()

    def _later(self, ms: int, call: Callable[[], None]) -> None:
        self.shards[0].stream.later(ms, call)

    # -- which one ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Try the shard that has been free for longest, once it is this node's turn."""
        now_ms = self._now_ms()
        self._presence.forget(now_ms)
        self._voice.look(now_ms)
        if not self.is_admitted and self._is_acquainted(now_ms):
            self.is_admitted = True
            if problem := self._stranger(now_ms):
                self._done(JournalError(problem))
                return
        found = [shard for shard in self.shards if self._is_turn(shard, now_ms)]
        if found:
            self._trying = min(found, key=lambda shard: shard.free_ms or 0)
            self._tried_ms = now_ms
            self._find_stream()
        else:
            self._later(LOOK_MS, self._look)

    def _stranger(self, now_ms: int) -> str:
        """Why this node cannot be one of those that are there already; "" = it can."""
        for name, node in self._presence.nodes.items():
            newest = node.newest
            if self._presence.is_live(name, now_ms) and not speaks_with(newest.protocol):
                return (
                    f"node {name} is of version {newest.version} and speaks protocol"
                    f" {newest.protocol}, this one is of version {__version__} and speaks"
                    f" {NODE_PROTOCOL}: go from one version to the next, and leave none out"
                )
        return ""

    def _is_turn(self, shard: Shard, now_ms: int) -> bool:
        owner = self._owner_of(shard)
        if owner is not None and not self._is_free(owner):
            shard.free_ms = None
            return False
        if shard.free_ms is None:
            shard.free_ms = now_ms
        if len(self.shards) == 1:  # whoever comes first
            heir = self._presence.heir(shard.number, now_ms)
            return heir in ("", self._me.node) or not self._presence.is_live(heir, now_ms)
        not_before_ms = 1_000 * self._avoid.get(shard.number, 0)
        is_told = self._begun_ms - self._presence.known_ms < _ECHO_MS
        if now_ms < not_before_ms or not (is_told or self._is_acquainted(now_ms)):
            return False
        before = self._presence.before(self._me.node, shard.number, now_ms)
        since_ms = max(shard.free_ms, self._presence.claimed_ms(before))
        return now_ms - since_ms >= TURN_MS * len(before)

    def _owner_of(self, shard: Shard) -> Owner | None:
        """The newest that was read or heard of."""
        heard = self._presence.owners.get(shard.number)
        if shard.read is None or (heard is not None and heard.epoch >= shard.read.epoch):
            return heard
        return shard.read

    def _is_free(self, owner: Owner | None) -> bool:
        if owner is None or self._presence.has_left(owner):
            return True
        now_ms = self._now_ms()
        silent_ms = self._presence.silent_ms(owner.random, now_ms)
        hears_itself = self._presence.silent_ms(self._me.random, now_ms) < _ECHO_MS
        return silent_ms >= GONE_MS and hears_itself and self._is_acquainted(now_ms)

    def _is_acquainted(self, now_ms: int) -> bool:
        """Whoever lives was heard since this process began: what it was told by the one before is
        not enough to call somebody gone, if that one had as little time to listen."""
        return now_ms - self._begun_ms >= _ACQUAINT_MS

    def _check(self) -> None:
        """The first stream says how many shards there are; a spare asks even if all are owned."""
        stream = self.shards[0].stream
        stream.ask(f"STREAM.INFO.{self.shards[0].subjects.stream}", {}, self._checked)

    def _checked(self, answer: Document | Unreachable) -> None:
        if isinstance(answer, Document) and answer.error is not None and answer.error.code == 404:
            self._look()  # it is made by whoever claims it
        elif self._fits(answer, self._check):
            self._look()

    # -- its stream ---------------------------------------------------------------------------

    def _find_stream(self) -> None:
        shard = self._trying
        shard.stream.ask(f"STREAM.INFO.{shard.subjects.stream}", {}, self._found_stream)

    def _found_stream(self, answer: Document | Unreachable) -> None:
        shard = self._trying
        if isinstance(answer, Document) and answer.error is not None and answer.error.code == 404:
            question = make_settings(self._cluster, shard.subjects)
            shard.stream.ask(f"STREAM.CREATE.{shard.subjects.stream}", question, self._made_stream)
        else:
            self._made_stream(answer)

    def _made_stream(self, answer: Document | Unreachable) -> None:
        if self._fits(answer, self._find_stream):
            self._start_claim()

    def _fits(self, answer: Document | Unreachable, again: Callable[[], None]) -> bool:
        """Whether this is a stream that may be used; if not, it is tried again, or given up."""
        shard = self._trying
        name = shard.subjects.stream
        if isinstance(answer, Document) and answer.error is None:
            shard.config = answer.config
            self._problem = ""
            problems = find_problems(answer.config, self._cluster, shard.subjects)
            if problems:
                self._done(JournalError(f"the stream {name} does not fit: {'; '.join(problems)}"))
            return not problems
        if isinstance(answer, Unreachable):
            self._problem = answer.text
        elif answer.error is not None:
            self._problem = answer.error.description
        if self._now_ms() - self._tried_ms >= self._timeout_ms:
            text = f"no stream {name} within {self._timeout_ms} ms: {self.problem}"
            self._done(JournalError(text))
        else:
            self._later(LOOK_MS, again)
        return False

    def _start_claim(self) -> None:
        shard = self._trying
        self._claim = Claim(
            shard.stream,
            shard.subjects,
            self._me.node,
            self._me.address,
            self._is_free,
            self._claimed,
            self._copying,
            lambda: self._presence.confirmed(shard.number),
            self._presence.has_left,
        )
        self._claim.start()

    def _claimed(self, answer: Claimed | Owner | JournalError | None) -> None:
        if isinstance(answer, JournalError):
            self._done(answer)
        elif isinstance(answer, Claimed):
            owner, now_ms = answer.owner, self._now_ms()
            moved = self._presence.heir(owner.shard, now_ms) == owner.node
            if not moved:
                self.membership.owned_ms = now_ms
            claimed = {name: getattr(owner, name) for name in Owner.__struct_fields__}
            self._voice.say(**claimed, moved=moved, opening=True)
            self._done(answer)
        else:
            self._trying.read = answer
            self._later(LOOK_MS, self._look)
