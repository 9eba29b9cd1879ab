"""Subscribers of a topic: sessions that get every message, and how they are grouped.

A subscriber is no group: nothing is stored of it, it takes nothing from anybody, and it is told
what is durable, each partition in its order, from a place of its choice on. It names its place when
it comes back.

Subscribers read together. Those of a topic that want the same (filter, form, partitions) are an
*audience*; those of an audience that are at the same place are a *cohort*, which reads and encodes
each message once and gives all its members the same bytes. Nearly everybody is in the audience's
`live` cohort, which is at the end of the log or on its way there. A subscriber that begins further
back is a cohort of its own, `behind`, until it has caught up with the live one, which it never
overtakes: so a busy topic does not break up into many cohorts. One that does not take what it is
told is `parked`, alone, and costs nothing until it takes bytes again; then it is behind.

A message that is not due yet is passed, and told when it is due to all who have passed it.

Tests: `tests/core/fanout/test_follow.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from zbus.core.model.chunk import Chunk
from zbus.core.model.filters import compile_filter
from zbus.core.model.subscriber import Subscribers
from zbus.core.model.ticket import Ticket
from zbus.core.timing.delays import AllDelays
from zbus.core.topics.topic import Partition, Session, Topic


class Encoder(Protocol):
    """How messages read. Subscribers with the same form share the bytes, so it is one object."""

    def encode(self, topic: Topic, index: int, chunk: Chunk, at: int, position: list[int]) -> bytes:
        """Row `at` of a chunk of partition `index`; `position` is where its subscriber is then, by
        partition followed."""

    def encode_gap(self, count: int, position: list[int]) -> bytes:
        """This many messages were dropped before they were sent."""


class Subscriber(Ticket):
    """Settled, with an error, when there is a reason to tell it no more; not when its session
    leaves."""

    __slots__ = ("cohort", "send", "session")

    def __init__(self, session: Session, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self.session = session
        self.send = send  # sends bytes; sets `session.stalled` when there are too many
        self.cohort: CaughtUpGroup | None = None  # None until it has begun

    def failed(self, error: Exception) -> None:
        self.session.quarantine(error)

    def begin(self, position: list[int]) -> None:
        """Called before anything is sent, with the offsets that come next."""
        raise NotImplementedError

    def leave(self) -> None:
        """Its session leaves: this is the end of it."""
        raise NotImplementedError


class CaughtUpGroup:
    """Subscribers at the same place."""

    __slots__ = (
        "audience",
        "complete_ms",
        "fetched",
        "fetching",
        "late",
        "members",
        "position",
        "queued",
    )

    def __init__(self, audience: Subscription, position: list[int], complete_ms: int = 0) -> None:
        self.audience = audience
        # Of what was copied since then in a compact topic, the originals were sent or not wanted.
        self.complete_ms = complete_ms
        self.position = position  # the next offset, by partition followed
        # Due by now, and not sent yet: index in `position`, and offset.
        self.late: deque[tuple[int, int]] = deque()
        self.members: dict[Subscriber, None] = {}
        self.queued = False
        self.fetching = False  # what it wants next is being read from storage
        self.fetched: list[tuple[Partition, Chunk]] = []  # since its last turn

    def is_behind(self, live: CaughtUpGroup) -> bool:
        return any(here < there for here, there in zip(self.position, live.position, strict=True))


class Subscription:
    """Subscribers of a topic who want the same."""

    __slots__ = (
        "awake",
        "behind",
        "filter",
        "form",
        "live",
        "match",
        "parked",
        "partitions",
        "watch",
    )

    def __init__(
        self, watch: WatchedTopic, filter: str, form: Encoder, partitions: list[Partition]
    ) -> None:
        self.watch = watch
        self.filter = filter
        self.match = compile_filter(filter)
        self.form = form
        self.partitions = partitions
        self.live: CaughtUpGroup | None = None
        self.behind: dict[CaughtUpGroup, None] = {}
        self.parked: dict[CaughtUpGroup, None] = {}
        self.awake = False  # the live cohort has a turn in this tick

    def cohorts(self) -> Iterator[CaughtUpGroup]:
        if self.live is not None:
            yield self.live
        yield from self.behind
        yield from self.parked

    def at_end(self, cohort: CaughtUpGroup) -> bool:
        pairs = zip(cohort.position, self.partitions, strict=True)
        return not cohort.late and all(place >= part.visible for place, part in pairs)


class WatchedTopic:
    """What is known of a topic that is followed, or was while something delayed was put."""

    __slots__ = ("audiences", "delayed", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.audiences: dict[tuple[str, int, int], Subscription] = {}
        # Partition and offset of what is not due and some subscriber has passed.
        self.delayed = AllDelays()

    @classmethod
    def begin(cls, topic: Topic) -> WatchedTopic:
        """Begin with the messages that groups have passed and that are not due yet."""
        watch = cls(topic)
        for group in topic.groups.values():
            for partition in topic.partitions:
                backlog = group.backlogs[partition.index]
                watch.delayed.of(partition.index).merge(backlog.delayed, backlog.attempts)
        return watch

    def forget_if_idle(self) -> None:
        """Forget the topic once it has no subscriber and no delayed message to send."""
        if not self.audiences and not self.delayed and self.topic.followed is self:
            self.topic.followed = None

    def check(self) -> None:
        """Assert the invariants."""
        assert self.audiences or self.delayed
        self.delayed.check()
        for audience in self.audiences.values():
            cohorts = list(audience.cohorts())
            assert cohorts
            for cohort in cohorts:
                assert cohort.members
                assert cohort.audience is audience
                for follower in cohort.members:
                    assert follower.open
                    assert follower.cohort is cohort
                    assert follower.session.follower is follower
                pairs = zip(cohort.position, audience.partitions, strict=True)
                assert all(place <= partition.visible for place, partition in pairs)
            assert all(len(cohort.members) == 1 for cohort in audience.parked)

    def places(self, index: int) -> list[int]:
        """Where a partition is being read."""
        return [
            place
            for audience in self.audiences.values()
            for cohort in (audience.live, *audience.behind)
            if cohort is not None
            for place, partition in zip(cohort.position, audience.partitions, strict=True)
            if partition.index == index
        ]


def watch_of(followed: Subscribers | None) -> WatchedTopic | None:
    assert followed is None or isinstance(followed, WatchedTopic)
    return followed


def follower_of(session: Session) -> Subscriber | None:
    follower = session.follower
    assert follower is None or isinstance(follower, Subscriber)
    return follower
