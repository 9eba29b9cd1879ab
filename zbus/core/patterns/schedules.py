"""Messages that come again and again: each a delayed message in a topic of its own.

    cron.<topic>    schedules: messages with lines that say when, delayed until the next time

What reads that topic is in here. When a schedule is due, an occurrence of it is put into <topic>,
and the schedule is given back until its next time: both or neither, also across a crash
(`zbus.core.patterns.completions`). So it is listed, cancelled and moved like any other delayed
message, lives as long as it is not finished and <topic> is there, and needs nothing remembered
elsewhere.

The time of an occurrence is the last one that has passed: of those that a broker was not there for,
the last one comes, and only that. A schedule that is given another time (`fire`, `reschedule`) has
an occurrence for just that time. What is due at a time that the expression does not name is known
by that.

Tests: `tests/conformance/test_schedules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery import settle as leases
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk, Row, make_row
from zbus.core.model.containment import Containment
from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.pull_options import ENDLESS, PullOptions
from zbus.core.model.ticket import Opening, Silent, Ticket
from zbus.core.patterns.completions import Completions, Source
from zbus.core.timing.timers import Timers
from zbus.core.topics.outcomes import Delivered
from zbus.core.topics.topic import Group, Partition, Pull, Session, Topic
from zbus.core.verbs.declare import GroupWish
from zbus.core.verbs.puts import WHEN_DUE, Puts

PREFIX: Final = "cron."
NOTES: Final = '{"schedules":true}'
"""Marks a topic of schedules: a topic that a user declared under such a name lacks it."""

SCHEDULES_MAX: Final = 10_000
"""Of one topic."""

CRON_BYTES_MAX: Final = 100
ZONE_BYTES_MAX: Final = 64

CRON: Final = b"cron: "
ZONE: Final = b"cron_zone: "
_OURS: Final = (CRON, ZONE, b"cron_id: ", b"cron_time: ")

AGAIN_MS: Final = 1_000
"""When it is tried again what is not possible now: a disk is full, a partition is read again."""

_LEASE_MS: Final = 30_000
_OPTIONS: Final = GroupOptions(lease=True, lease_ms=_LEASE_MS, window=50)  # that many in a turn


class Times(Protocol):
    """Knows what expressions mean. None: it is none, or it names no such time."""

    def next_ms(self, cron: str, zone: str, after_ms: int) -> int | None:
        """The first time after this one, epoch milliseconds."""

    def last_ms(self, cron: str, zone: str, until_ms: int) -> int | None:
        """The last time that is not after this one."""


class Broker(Protocol):
    """What is needed of `zbus.core.broker.Broker`."""

    topics: dict[str, Topic]
    timers: Timers
    faults: Containment
    stopping: bool

    def pull(self, group: Group, pull: Pull, deadline_ms: int | None) -> None: ...

    @property
    def leave_group(self) -> Callable[..., None]: ...

    @property
    def declare(self) -> Callable[..., None]: ...


class Schedules:
    def __init__(
        self, broker: Broker, runs: RunQueue, puts: Puts, completions: Completions
    ) -> None:
        self._broker = broker
        self._runs = runs
        self._puts = puts
        self._completions = completions
        self._again = broker.timers.timer(self._keep, lambda topic: topic)
        self._refusal = broker.timers.timer(self._pause, lambda topic: topic)
        self._refused: dict[Topic, list[_Due]] = {}
        self.times: Times | None = None  # a dialect that takes schedules brings it
        self.session = Session(b"schedules", "schedules")
        self.session.faults = broker.faults

    def put(self, ticket: Ticket, target: Topic, row: Row) -> None:
        """Store a schedule: one message with the lines and the first time that it is due; settles
        with Stored, or with Duplicate if there is one of that id."""
        problem = self._puts.misfit(
            target, row[2:3], row[4:5]
        )  # its occurrences are not checked again
        topic = problem or self._topic(target)
        if isinstance(topic, BrokerError):
            ticket.settle(topic)
            return
        count = max(sum(group.counts()[:3]) for group in topic.groups.values())
        if count >= SCHEDULES_MAX:
            text = f"topic {target.name} has {SCHEDULES_MAX} schedules, which is the limit"
            ticket.settle(BrokerError(Refusal.TOO_MANY, text))
            return
        self._puts.put(topic.partitions[0], ticket, row, WHEN_DUE)

    def found(self, topic: Topic) -> None:
        """A start has found this topic."""
        if topic.options.notes == NOTES:
            for group in topic.groups.values():
                known = group.backlogs[0].delayed
                group.moved = {offset: known.due_of(offset) for offset in known}
            self._again.set(topic, self._runs.tick.now_ms)

    def of(self, target: Topic) -> Topic | None:
        """Where the schedules of a topic are, if it has any. They go with it."""
        topic = self._broker.topics.get(f"{PREFIX}{target.name}".lower())
        return topic if topic is not None and topic.options.notes == NOTES else None

    def due_ms(self, topic: Topic, offset: int) -> int:
        """When this schedule is due, or at which time it was; 0: it is not known yet."""
        for group in topic.groups.values():
            backlog = group.backlogs[0]
            if offset in backlog.delayed:
                return backlog.delayed.due_of(offset)
            if offset in backlog.leased:
                return self._runs.tick.now_ms
        return 0

    def _topic(self, target: Topic) -> Topic | BrokerError:
        """Where the schedules of a topic are; it is made if it is not there."""
        name = f"{PREFIX}{target.name}"
        topic = self._broker.topics.get(name.lower())
        if topic is not None and topic.options.notes != NOTES:
            text = f"{name} exists and was not made for schedules; remove or rename it"
            return BrokerError(Refusal.ILLEGAL, text)
        if topic is None or not topic.groups:
            made, level = Opening(), target.options.durability
            options = TopicOptions(
                name,
                durability="os" if level == "memory" else level,
                dedupe_live=True,  # an id names one schedule
                retention_done=True,
                notes=NOTES,
            )
            wish = GroupWish(name, _OPTIONS)
            self._broker.declare(
                made, name, lambda there: (options if there is None else there.options, wish)
            )
            topic = self._broker.topics.get(name.lower())
            if made.problem is not None or topic is None:
                return made.problem or BrokerError(Refusal.ILLEGAL, f"no topic {name}")
            self._keep(topic)
        return topic

    def _keep(self, topic: Topic) -> None:
        """Read a topic of schedules, from now on."""
        broker = self._broker
        group = next(iter(topic.groups.values()), None)
        gone = broker.topics.get(topic.name.lower()) is not topic
        if group is None or gone or broker.stopping:
            return
        if group.moved is None:
            group.moved = {}
        if group.pull_of(self.session) is None:
            broker.pull(group, _Pull(self, topic), None)

    def ended(self, topic: Topic) -> None:
        """Nothing of this topic is read any more."""
        if not self._broker.stopping:
            self._again.set(topic, self._runs.tick.now_ms + AGAIN_MS)

    def due(self, group: Group, partition: Partition, chunk: Chunk, at: int) -> None:
        """It is time for a schedule."""
        due = _Due(self, group, partition, chunk.first + at, chunk.headers[at])
        target = self._broker.topics.get(group.topic.name[len(PREFIX) :].lower())
        now_ms = self._runs.tick.now_ms
        time_ms = self._time_of(due, chunk, at)
        if time_ms is None or target is None or target.options.calls:
            self.finish(due)  # its target is gone, or cannot take it
            return
        backlog = group.backlogs[partition.index]
        if due.at in backlog.leased:
            backlog.uncount(due.at)  # only what is completed counts
        # Without `cron`: a consumer that passes its lines on would make another schedule.
        id = chunk.id_of(at, partition.index)
        headers = without_lines(chunk.headers[at])
        headers += b"cron_id: %b\r\ncron_time: %d\r\n" % (id, time_ms)
        key = chunk.key_of(at)
        occurrence = Chunk.single(make_row(b"", headers, chunk.bodies[at], chunk.tag_of(at), key))
        known = target.partitions  # always the same one: they come in order
        into = target.partition_for(key) if key else known[due.at % len(known)]
        if into.fenced is not None:
            self.refused(due)
            return
        assert self.times is not None
        next_ms = self.times.next_ms(due.cron, due.zone, now_ms) or 0  # 0 = it ends with this one
        attempts = backlog.attempts.get(due.at, 0)
        place = [range(due.at, due.at + 1)]
        source = Source(group, partition, place, due_ms=next_ms, attempts=attempts)
        self._completions.put_leased(into, due, occurrence, [source])

    def _time_of(self, due: _Due, chunk: Chunk, at: int) -> int | None:
        """What its occurrence stands for: the last time that the expression names, or the one that
        a request gave it. After a crash that is not known any more of one that was due already."""
        times, now_ms = self.times, self._runs.tick.now_ms
        given_ms = (due.group.moved or {}).get(due.at)
        if times is None:
            return None
        # A time that is to come was given by an order that did not reach the log.
        known_ms = given_ms if given_ms is not None and given_ms <= now_ms else None
        if known_ms is not None and times.last_ms(due.cron, due.zone, known_ms) != known_ms:
            return known_ms
        last_ms = times.last_ms(due.cron, due.zone, now_ms)
        made_ms = chunk.time_ms if chunk.times is None else chunk.times[at]
        return now_ms if last_ms is not None and last_ms < made_ms else last_ms

    def refused(self, due: _Due) -> None:
        """An occurrence cannot be stored now. Its schedule is due, and stays so: a time to try
        again at would be taken for one that it was given."""
        topic = due.group.topic
        self._refused.setdefault(topic, []).append(due)
        self._refusal.set(topic, self._runs.tick.now_ms)

    def _pause(self, topic: Topic) -> None:
        """Read this topic no more for a while, and give back what could not be stored."""
        for group in topic.groups.values():
            self._broker.leave_group(self.session, group, stay=True)
        refused = [due for due in self._refused.pop(topic, ()) if due.alive]
        if refused:
            group, partition = refused[0].group, refused[0].partition
            places = [range(due.at, due.at + 1) for due in refused]
            leases.nack(self._runs, Silent(), group, partition, places)

    def finish(self, due: _Due) -> None:
        if due.alive:
            done = [range(due.at, due.at + 1)]
            leases.ack(self._runs, Silent(), due.group, due.partition, done)


class _Pull(Pull):
    """For all that is due in a topic of schedules."""

    __slots__ = ("_schedules", "_topic")

    def __init__(self, schedules: Schedules, topic: Topic) -> None:
        super().__init__(schedules.session, PullOptions(credit=ENDLESS))
        self._schedules = schedules
        self._topic = topic

    def answer(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Delivered):
            self._schedules.ended(self._topic)
            return
        group = outcome.group
        for index, chunk, start, stop, _ in outcome.pieces:
            for at in range(start, stop):
                self._schedules.due(group, group.topic.partitions[index], chunk, at)


class _Due(Ticket):
    """A schedule that is due: the put of its occurrence."""

    __slots__ = ("_schedules", "at", "cron", "group", "partition", "zone")

    def __init__(
        self, schedules: Schedules, group: Group, partition: Partition, offset: int, headers: bytes
    ) -> None:
        super().__init__()
        self._schedules = schedules
        self.group = group
        self.partition = partition
        self.at = offset  # `Ticket.offset` is that of the occurrence
        self.cron, self.zone = line_of(headers, CRON), line_of(headers, ZONE) or "UTC"

    @property
    def alive(self) -> bool:
        """It is there still."""
        return not (self.group.gone or self.partition.removed or self.partition.fenced is not None)

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._schedules.refused(self)
        elif self.group.moved is not None:
            self.group.moved.pop(self.at, None)  # it may have ended with this one


def line_of(headers: bytes, name: bytes) -> str:
    """What a header line says; "" = it is not there."""
    for line in headers.split(b"\r\n"):
        if line.startswith(name):
            return line[len(name) :].decode("utf-8", "replace")
    return ""


def without_lines(headers: bytes) -> bytes:
    """Header lines but for those that are ours to say."""
    lines = headers.split(b"\r\n")
    return b"\r\n".join([line for line in lines if not line.startswith(_OURS)])
