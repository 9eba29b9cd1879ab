"""What clients of a server of several workers know, and what has to be true because of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from tests.simulation.model import Violation
from zbus.protocol.places import shard_of

if TYPE_CHECKING:
    from tests.simulation.workers.caller import Caller, Request

LEASE_MS: Final = 10_000

Place = tuple[int, int]
"""Partition and offset."""


@attrs.define(eq=False)
class Sent:
    """A message that somebody put."""

    body: str
    line: tuple[int, bool]  # the client, and how it asks: in these messages keep their order
    key: str = ""
    began_ms: int = 0
    again: bool = False  # it was sent more than once
    place: Place | None = None  # confirmed


@attrs.define(eq=False)
class Hand:
    """Somebody has a message, and may have it as long as its lease."""

    caller: Caller
    asked_ms: int
    seq: int


class GroupBook:
    """A group with acknowledgements. `front`: what a client holds goes back when it leaves. `dies`:
    what is delivered twice and not acknowledged is a dead letter, in a topic of any worker."""

    def __init__(self, name: str, *, front: bool = False, dies: bool = False) -> None:
        self.name = name
        self.front = front
        self.dies = dies
        self.lasting = False  # leases are stored before anybody has the message
        self.acking: set[Place] = set()
        self.acked: dict[Place, int] = {}  # by the moment at which it was known
        self.hands: dict[Place, Hand] = {}
        self.nacking: Counter[Place] = Counter()  # who gives it back is not answered
        self.nacked: dict[Place, int] = defaultdict(int)  # the moment at which one was


class TopicBook:
    """A topic, and all that is known to be in it."""

    def __init__(self, name: str, workers: int, partitions: int, groups: list[GroupBook]) -> None:
        self.name = name
        self.owner = shard_of(name, workers)
        self.partitions = partitions
        self.groups = groups
        self.sent: dict[str, Sent] = {}
        self.places: dict[Place, str] = {}  # of what somebody was told, by whatever reply


class Book:
    """See the module. `moment` grows with everything that is asked, answered, or goes wrong."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.moment = 0
        self.topics: list[TopicBook] = []
        self.dead: set[str] = set()  # bodies of dead letters, when all is read
        self.faults: dict[int, int] = defaultdict(int)  # of each worker, the last one's moment

    def next(self) -> int:
        self.moment += 1
        return self.moment

    def check(self, right: bool, text: str) -> None:
        if not right:
            raise Violation(text)

    def failed(self, worker: int, died: bool) -> None:
        """What was asked of it and not answered is unknown. If it died, it may forget leases; and
        whoever held something elsewhere by it, or by the connection that broke, has left there."""
        self.faults[worker] = self.next()
        for topic in self.topics:
            for group in topic.groups:
                forgotten = died and topic.owner == worker and not group.lasting
                if group.front or forgotten:
                    group.hands.clear()

    # -- what clients are told ----------------------------------------------------------------

    def stored(self, topic: TopicBook, sent: Sent, place: Place) -> None:
        """A put is confirmed."""
        self.check(
            sent.place in (None, place),
            f"{sent.body} is at {sent.place}, and told to be at {place}",
        )
        sent.place = place
        self.found(topic, place, sent.body)

    def found(self, topic: TopicBook, place: Place, body: str) -> None:
        """Somebody is told that this is there."""
        known = topic.places.setdefault(place, body)
        self.check(known == body, f"{topic.name} has {known!r} at {place}, and {body!r}")
        self.check(body in topic.sent, f"{topic.name} has {body!r}, which nobody put there")

    def delivered(
        self, topic: TopicBook, group: GroupBook, place: Place, body: str, request: Request
    ) -> None:
        """A message came to a client that had asked for it."""
        self.found(topic, place, body)
        name = f"{body[:8]} at {place} of {topic.name}/{group.name}"
        acked = group.acked.get(place)
        self.check(
            acked is None or request.moment < acked,
            f"{name} came again after its acknowledgement was confirmed",
        )
        now_ms, hand = self.now_ms(), group.hands.get(place)
        faults = self.faults.values() if group.front else [self.faults[topic.owner]]
        since = max([group.nacked[place], *faults])
        sure = request.moment > since and not group.nacking[place]
        if hand is not None and sure:
            stay = all(one.stays and one.connection.alive for one in (hand.caller, request.caller))
            kept = stay or not group.front
            early = now_ms - min(hand.asked_ms, request.asked_ms) < LEASE_MS
            self.check(
                not (kept and early),
                f"{name} came to {request.caller.name} while {hand.caller.name} had it",
            )
        group.hands.pop(place, None)
        if sure:
            group.hands[place] = Hand(request.caller, request.asked_ms, request.moment)

    def acknowledged(self, topic: TopicBook, group: GroupBook, place: Place) -> None:
        """It is confirmed."""
        group.acked.setdefault(place, self.next())
        group.hands.pop(place, None)

    # -- the end ------------------------------------------------------------------------------

    def read_out(self, topic: TopicBook, log: dict[Place, str]) -> None:
        """All that is in a topic."""
        for place, body in log.items():
            self.found(topic, place, body)
        for place, body in topic.places.items():
            self.check(place in log, f"{topic.name} lost {body} at {place}")
        seen: dict[str, Place] = {}
        for place, body in log.items():
            self.check(body not in seen, f"{topic.name} has {body} at {seen.get(body)} and {place}")
            seen[body] = place
        last: dict[tuple[int, bool, int], tuple[int, str]] = {}
        for body, sent in topic.sent.items():
            if body not in seen or sent.again:
                continue
            partition, offset = seen[body]
            before, other = last.get((*sent.line, partition), (-1, ""))
            self.check(before < offset, f"{topic.name} has {body} before {other}, sent before it")
            last[*sent.line, partition] = offset, body

    def read_dead(self, log: dict[Place, str]) -> None:
        """All dead letters. One group of each topic makes some."""
        for place, body in log.items():
            known = any(body in topic.sent for topic in self.topics)
            self.check(known, f"{body[:8]}, which nobody put, is dead at {place}")
            self.check(body not in self.dead, f"{body[:8]} is dead twice, again at {place}")
            self.dead.add(body)

    def drained(self, topic: TopicBook, group: GroupBook, came: list[Place]) -> None:
        """All that was left for a group, when nobody held anything."""
        name = f"{topic.name}/{group.name}"
        self.check(len(came) == len(set(came)), f"{name} gave something twice")
        for place, body in topic.places.items():
            dead, left = group.dies and body in self.dead, place in came
            self.check(not (dead and left), f"{name}: {body[:8]} at {place} is dead, and came")
            done = place in group.acking or left or dead
            self.check(done, f"{name}: {body[:8]} at {place} never came")
