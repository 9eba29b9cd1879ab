"""A stream without a network, which does what a cluster of JetStream servers may do to a client.

It keeps the rules that the engine relies on: appends under the condition of the last sequence,
batches that are stored as a whole or not at all. And it fails as clusters do: an answer is lost
before or after something was stored, a copy arrives later, a leader is away for a while, a replica
that is asked is behind. All of it follows from a seed.

    cluster = SimulatedCluster(Random(seed), Faults())
    stream = cluster.connect()        # one for each owner
    while not done: cluster.step()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from random import Random

import attrs

from zbus.storage.jetstream.stream import (
    Got,
    Messages,
    Outcome,
    Outgoing,
    Published,
    Stored,
    StreamState,
    SubjectNames,
    Unreachable,
)

_AWAY = Unreachable("no leader")
CLOCK_RATES = 0.05
"""How much faster or slower than time a machine's clock may run."""


@attrs.define
class Faults:
    """Parts of all requests that go wrong in this way, from 0 to 1."""

    lost: float = 0.05  # never arrives
    unanswered: float = 0.05  # is done, and the answer is lost
    later: float = 0.05  # has no answer, and is done later
    away: float = 0.1  # the leader does not answer
    behind: float = 0.2  # a replica that lacks the newest messages answers
    damaged: float = 0.02  # a replica answers, and a bit of what it has is wrong
    late_ms: int = 5_000  # how much later a copy may arrive
    slow_ms: int = 3  # a request, and its answer, takes less than this
    append_ms: int = 0  # how much longer each append takes

    @classmethod
    def none(cls) -> Faults:
        return cls(0, 0, 0, 0, 0, 0)


class SimulatedCluster:
    """The servers. Events happen in an order that the seed chooses; time passes when nothing else
    is to be done."""

    def __init__(self, random: Random, faults: Faults | None = None) -> None:
        self.random = random
        self.faults = Faults() if faults is None else faults
        self.now_ms = 0
        self.log: list[Stored] = []  # all that was ever stored
        self.purged: set[int] = set()
        self.bytes_max = 0
        self.reads = 0
        self._events: list[tuple[int, Callable[[], object]]] = []  # when at the earliest, and what

    def connect(self) -> SimulatedStream:
        """A connection of one owner."""
        return SimulatedStream(self)

    def step(self) -> bool:
        """Do one thing; whether there was any."""
        if not self._events:
            return False
        ready = [one for one in self._events if one[0] <= self.now_ms]
        if not ready:
            self.now_ms = min(due_ms for due_ms, _ in self._events)
            return True
        event = self.random.choice(ready)
        self._events.remove(event)
        event[1]()
        return True

    def crash(self) -> None:
        """All servers stop and start again. What was stored is there: a majority has synced it
        before any server says so, or shows it. What was under way is lost."""
        self._events.clear()

    def after(self, ms: int, call: Callable[[], object]) -> None:
        self._events.append((self.now_ms + ms, call))

    def delay(self) -> int:
        """How long something takes."""
        return self.random.randrange(self.faults.slow_ms)

    def happens(self, part: float) -> bool:
        return self.random.random() < part

    def store(self, messages: Sequence[Outgoing], last: int) -> Published:
        """Store all or none of these."""
        if last != len(self.log):
            return Published(0, Outcome.WRONG_SEQUENCE, f"wrong last sequence: {len(self.log)}")
        size = sum(len(message.body) for message in messages)
        if self.bytes_max and self.bytes_used() + size > self.bytes_max:
            return Published(0, Outcome.NO_ROOM, "maximum bytes exceeded")
        for subject, headers, body in messages:
            self.log.append(Stored(len(self.log) + 1, subject, dict(headers), body))
        return Published(len(self.log))

    def bytes_used(self) -> int:
        return sum(len(one.body) for one in self.log if one.sequence not in self.purged)

    def present(self, known: int) -> list[Stored]:
        """What a replica has that knows the stream up to there."""
        return [one for one in self.log[:known] if one.sequence not in self.purged]

    def replica(self) -> int:
        """How far the replica is that answers now."""
        if self.happens(self.faults.behind):
            return max(0, len(self.log) - self.random.randrange(1, 8))
        return len(self.log)

    def spoil(self, found: list[Stored]) -> list[Stored]:
        """What a replica gives that may have a bad disk."""
        if not found or not self.happens(self.faults.damaged):
            return found
        at = self.random.randrange(len(found))
        body = bytearray(found[at].body)
        if body:
            body[self.random.randrange(len(body))] ^= 1 << self.random.randrange(8)
        return [*found[:at], found[at]._replace(body=bytes(body)), *found[at + 1 :]]


class SimulatedStream:
    """`zbus.storage.jetstream.stream.Stream` over a simulated cluster."""

    message_bytes_max = (64 << 10) + 300
    """Larger appends are stored in pieces."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._closed = False
        self._rate = 1 + cluster.random.uniform(-CLOCK_RATES, CLOCK_RATES)
        self._ahead_ms = cluster.random.randrange(3_600_000)

    def publish(
        self, messages: Sequence[Outgoing], last: int, done: Callable[[Published], None]
    ) -> None:
        cluster, faults, messages = self._cluster, self._cluster.faults, list(messages)
        unknown = Published(0, Outcome.UNKNOWN, "no answer")
        fate = cluster.random.random()

        def arrive() -> None:
            answer = cluster.store(messages, last)
            self._answer(partial(done, unknown if faults.lost < fate < lost_after else answer))

        lost_after = faults.lost + faults.unanswered
        if fate < faults.lost:
            self._answer(partial(done, unknown))
        elif lost_after <= fate < lost_after + faults.later:
            late_ms = cluster.random.randrange(faults.late_ms + 1)
            cluster.after(late_ms, partial(cluster.store, messages, last))
            self._answer(partial(done, unknown))
        else:
            cluster.after(faults.append_ms + cluster.delay(), arrive)

    def state(self, done: Callable[[StreamState | Unreachable], None]) -> None:
        def ask() -> None:
            cluster = self._cluster
            if cluster.happens(cluster.faults.away):
                done(_AWAY)
            else:
                there = cluster.present(len(cluster.log))
                first = there[0].sequence if there else len(cluster.log) + 1
                used = cluster.bytes_used()
                done(StreamState(len(cluster.log), used, cluster.bytes_max, first))

        self._answer(ask)

    def get(self, which: int | str, done: Callable[[Got], None]) -> None:
        def ask() -> None:
            cluster = self._cluster
            if cluster.happens(cluster.faults.away):
                done(_AWAY)
                return
            there = cluster.present(len(cluster.log))
            found = [one for one in there if which in (one.sequence, one.subject)]
            done(Messages(found[-1:]))

        self._answer(ask)

    def newest(self, subjects: Sequence[str], done: Callable[[Got], None]) -> None:
        def ask() -> None:
            known = self._cluster.replica()
            last = {one.subject: one for one in self._cluster.present(known)}
            found = [last[subject] for subject in subjects if subject in last]
            done(Messages(self._cluster.spoil(sorted(found)), known))

        self._answer(ask)

    def read(
        self, subject: str, sequence: int, count: int, size: int, done: Callable[[Got], None]
    ) -> None:
        def ask() -> None:
            self._cluster.reads += 1
            found: list[Stored] = []
            left = size
            for one in self._cluster.present(self._cluster.replica()):
                if one.sequence < sequence or not fnmatchcase(one.subject, subject):
                    continue
                if found and (left < len(one.body) or len(found) >= count):
                    break
                found.append(one)
                left -= len(one.body)
            done(Messages(self._cluster.spoil(found)))

        self._answer(ask)

    def subjects(self, pattern: str, done: Callable[[SubjectNames | Unreachable], None]) -> None:
        def ask() -> None:
            known = self._cluster.replica()
            there = self._cluster.present(known)
            names = {one.subject for one in there if fnmatchcase(one.subject, pattern)}
            done(SubjectNames(sorted(names), known))

        self._answer(ask)

    def purge(self, subject: str, before: int, done: Callable[[bool], None]) -> None:
        def ask() -> None:
            for one in self._cluster.log[: before - 1]:
                if fnmatchcase(one.subject, subject):
                    self._cluster.purged.add(one.sequence)
            done(not self._cluster.happens(self._cluster.faults.unanswered))

        self._answer(ask)

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self._cluster.after(ms, partial(self._call, call))

    def now_ms(self) -> int:
        return self._ahead_ms + int(self._cluster.now_ms * self._rate)

    def close(self) -> None:
        self._closed = True

    def _answer(self, call: Callable[[], None]) -> None:
        self._cluster.after(self._cluster.delay(), partial(self._call, call))

    def _call(self, call: Callable[[], None]) -> None:
        if not self._closed:
            call()
