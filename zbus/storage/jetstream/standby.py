"""From a connection to an owned shard: watch who owns the shards of a cluster, and claim one that
is free (`scale.md`, section 6).

Heartbeats only decide when a claim is tried (`zbus.storage.jetstream.presence`): the stream decides
who owns the shard (`zbus.storage.jetstream.ownership`). With several shards, those of a node that
is gone go to all that are left: each node waits for those that come before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from zbus import __version__
from zbus.protocol.places import NODE_PROTOCOL, speaks_with
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.presence import (
    BEAT_MS,
    ECHO_MS,
    GONE_MS,
    Bus,
    Heartbeat,
    Membership,
    Presence,
    Voice,
)
from zbus.storage.jetstream.settings import Cluster, find_problems, make_settings
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError

LOOK_MS: Final = 100
TURN_MS: Final = 1_500
"""A node waits so long for each node that comes before it, and again whenever one of these has
claimed another shard: one process claims one shard, and the next one needs a moment to start."""
_ACQUAINT_MS: Final = BEAT_MS + LOOK_MS
"""After so long every live node was heard."""


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
        is_told = self._begun_ms - self._presence.known_ms < ECHO_MS
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
        hears_itself = self._presence.silent_ms(self._me.random, now_ms) < ECHO_MS
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
            self._presence.all_have_left,
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
            quiet_ms = answer.quiet_until_ms - now_ms
            claimed = {name: getattr(owner, name) for name in Owner.__struct_fields__}
            claimed |= {"quiet": quiet_ms > 0, "moved": moved, "opening": True}
            self._voice.say(**claimed)
            if quiet_ms > 0:
                self._later(quiet_ms, partial(self._voice.say, quiet=False))
            self._done(answer)
        else:
            self._trying.read = answer
            self._later(LOOK_MS, self._look)
