"""What a broker promised so far: the book that the state machine keeps and checks against.

It knows messages by their bodies, which are unique here, and judges each delivery when it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.core.support import Box, CrashJournal, Probe
from tests.records import Record
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import GroupOptions
from zbus.core.model.chunk import implied_id
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.topics.topic import Group, Topic

Place = tuple[int, int]
"""Partition and offset."""


Fate = tuple[MessageState, int]
"""A life, and when it ends; 0 = not by time."""


def fate_of(backlog: Backlog, offset: int) -> Fate:
    """What the broker made of an offset."""
    life = backlog.life(offset)
    if life in (MessageState.LEASED, MessageState.DELAYED):
        return life, (backlog.leased if life is MessageState.LEASED else backlog.delayed).due_of(
            offset
        )
    return life, 0


@dataclass
class PutRecord:
    """One message that was put, whatever became of it."""

    message: Message
    index: int
    probe: Probe
    position: int  # among the messages of its put

    @property
    def offset(self) -> int:
        return self.probe.offset + self.position

    @property
    def acknowledged(self) -> bool:
        return self.probe.fine


@dataclass
class GroupRecord:
    """What one group has been promised and given. `life` is between two restarts."""

    options: GroupOptions
    start: list[int]  # per partition: offsets before it are none of its business
    declared: Probe | None = None
    leases: dict[Place, int] = field(default_factory=dict)  # -> deadline
    got: set[bytes] = field(default_factory=set)  # bodies, ever
    attempts: dict[bytes, int] = field(default_factory=dict)  # in this life
    settled: set[bytes] = field(default_factory=set)  # must not come again in this life
    # First deliveries, per partition and, with order per key, key.
    highest: dict[tuple[int, bytes], int] = field(default_factory=dict)
    confirming: list[tuple[Probe, set[bytes]]] = field(default_factory=list)
    excused: set[bytes] = field(default_factory=set)  # purged: need not come
    # What was asked for a lease (to extend it, to give it back), one after the other, while nothing
    # else has become of the message.
    asked: dict[Place, list[tuple[Probe, Fate]]] = field(default_factory=dict)

    def wants(self, put: PutRecord) -> bool:
        """Whether the message has to come, sooner or later."""
        return (
            put.acknowledged
            and put.offset >= self.start[put.index]
            and not put.message.expires_ms
            and put.message.body not in self.excused
            and wanted_by(self.options.filter, put.message.tag)
        )

    def ask(self, place: Place, probe: Probe, fate: Fate) -> None:
        """A lease is extended or given back."""
        if fate[0] is MessageState.LEASED:
            self.leases[place] = fate[1]
        else:
            del self.leases[place]
        self.asked.setdefault(place, []).append((probe, fate))

    def time_passed(self, now_ms: int) -> None:
        """Leases and delays end."""
        for place in [at for at, end_ms in self.leases.items() if end_ms <= now_ms]:
            del self.leases[place]
        self.asked = {
            place: asked for place, asked in self.asked.items() if not 0 < asked[-1][1][1] <= now_ms
        }

    def restarted(self, backlogs: list[Backlog]) -> None:
        """Only what was confirmed is certain now."""
        for (index, offset), asked in self.asked.items():
            confirmed = [number for number, (probe, _) in enumerate(asked) if probe.fine]
            if confirmed:  # what was asked for after it may have happened, too
                possible = [fate for _, fate in asked[confirmed[-1] :]]
                found = fate_of(backlogs[index], offset)
                assert found in possible, f"{offset} is {found}, not one of {possible}"
        self.asked.clear()
        certain = [bodies for probe, bodies in self.confirming if probe.fine]
        self.settled = set().union(*certain)
        self.confirming = [(probe, bodies) for probe, bodies in self.confirming if probe.fine]
        self.attempts.clear()


@dataclass
class TopicRecord:
    """One topic, from its declaration to its removal."""

    topic: Topic
    declared: Probe
    puts: dict[bytes, PutRecord] = field(default_factory=dict)
    groups: dict[str, GroupRecord] = field(default_factory=dict)
    vague: set[str] = field(default_factory=set)  # groups whose removal is not confirmed
    removals: list[tuple[str, Probe]] = field(default_factory=list)
    purged: set[bytes] = field(default_factory=set)  # with the topic: not for later groups either

    @property
    def durability(self) -> str:
        return self.topic.options.durability


def wanted_by(text: str, tag: bytes) -> bool:
    """The filters that the machine uses, spelled out."""
    if text == "a.*":
        return tag.startswith(b"a.")
    assert text in ("", "#")
    return not text or tag != b""


def leases_of(group: Group) -> dict[Place, int]:
    """What the broker has leased, and until when."""
    return {
        (index, offset): backlog.leased.due_of(offset)
        for index, backlog in enumerate(group.backlogs)
        for offset in backlog.leased
    }


class Book:
    """All topics that should be there."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.topics: dict[str, TopicRecord] = {}

    @property
    def journal(self) -> CrashJournal:
        assert isinstance(self.box.journal, CrashJournal)
        return self.box.journal

    def durable(self, record: TopicRecord, index: int, offset: int) -> bool:
        """Whether a power cut could not take the message any more."""
        lane = (record.topic.name, index)
        return record.durability != "disk" or offset < self.journal.synced_end.get(lane, 0)

    def stored(self, record: TopicRecord, put: PutRecord) -> None:
        """A put was acknowledged."""
        if put.probe.fine:
            assert self.durable(record, put.index, put.offset), "acknowledged before the sync"

    def delivered(self, record: TopicRecord, group: Group, given: Record) -> None:
        """Judge one message in somebody's hands."""
        message, now_ms = given.message, self.box.now_ms
        body = message.body
        put = record.puts.get(body)
        assert put is not None, "nobody put it there"
        assert (put.index, put.offset) == (given.partition, given.offset)
        for column in ("tag", "key", "headers", "produced_ms", "due_ms", "expires_ms", "once"):
            assert getattr(message, column) == getattr(put.message, column), column
        assert message.id == (put.message.id or implied_id(put.index, put.offset))
        assert message.due_ms <= now_ms, "early"
        assert not message.expires_ms or message.expires_ms > now_ms, "expired"
        assert self.durable(record, given.partition, given.offset), "handed out before the sync"
        known = record.groups[group.name]
        assert wanted_by(known.options.filter, message.tag), "not what the filter lets through"
        assert body not in known.settled, "settled, and here again"
        # What a purge left in a segment may be back after a crash, for a group declared before
        # the purge was durable.
        if body not in known.got and not message.due_ms and body not in record.purged:
            line = (given.partition, message.key if known.options.order else b"")
            assert given.offset > known.highest.get(line, -1), "out of order"
            known.highest[line] = given.offset
        known.got.add(body)
        if known.options.lease:
            self._leased(known, given)
        else:
            assert given.attempts == 0
            known.settled.add(body)  # in this life

    def _leased(self, known: GroupRecord, given: Record) -> None:
        place = (given.partition, given.offset)
        assert place not in known.leases, "in two hands"
        known.asked.pop(place, None)
        known.leases[place] = self.box.now_ms + known.options.lease_ms
        assert len(known.leases) <= known.options.window, "more than the window"
        body = given.message.body
        if body in known.attempts:
            assert given.attempts == known.attempts[body] + 1
        assert given.attempts >= 1
        known.attempts[body] = given.attempts

    def time_passed(self) -> None:
        """Leases end by time."""
        for record in self.topics.values():
            for known in record.groups.values():
                known.time_passed(self.box.now_ms)

    def agrees(self) -> None:
        """The broker holds what the book says, no more and no less."""
        broker = self.box.broker
        self.box.check()
        assert set(broker.topics) == {name.lower() for name in self.topics}
        for record in self.topics.values():
            assert set(record.topic.groups) == set(record.groups)
            for name, known in record.groups.items():
                group = record.topic.groups[name]
                leased = leases_of(group)
                assert leased == known.leases
                assert group.leased_count() == len(leased)
            for put in record.puts.values():
                self.stored(record, put)

    def purged(self, record: TopicRecord, name: str, probe: Probe) -> None:
        """What the log held when a group was purged need not come, and may not."""
        known = record.groups[name]
        bodies = {
            body
            for body, put in record.puts.items()
            if put.probe.offset >= 0 and (put.probe.open or put.probe.fine)
        }
        known.excused |= bodies
        known.settled |= bodies
        known.leases.clear()
        known.asked.clear()
        known.confirming.append((probe, bodies))

    def restarted(self, box: Box) -> None:
        """Hold a new broker on the same bytes against what was promised."""
        self.box = box
        old, self.topics = self.topics, {}
        for key, topic in box.broker.topics.items():
            assert key in old, "a topic that was removed is here again"
            record = old.pop(key)
            record.topic = topic
            self.topics[key] = record
            self._groups_after_restart(record)
        for record in old.values():
            if record.durability != "memory":
                assert not record.declared.fine, "a topic is lost"
                assert not any(put.acknowledged for put in record.puts.values())
        self.agrees()

    def _groups_after_restart(self, record: TopicRecord) -> None:
        vague = record.vague | {key for key, probe in record.removals if probe.open}
        record.vague, record.removals = set(), []
        known, record.groups = record.groups, {}
        for key, group in record.topic.groups.items():
            if key in known and key not in vague:
                record.groups[key] = known[key]
            else:
                # Its removal was never confirmed: it may be back, in any of its states.
                ends = [partition.end for partition in record.topic.partitions]
                record.groups[key] = GroupRecord(group.options, ends, got=set(record.puts))
            now = record.groups[key]
            now.restarted(group.backlogs)
            now.leases = leases_of(group)
        for key, gone in known.items():
            if key not in record.groups and key not in vague:
                assert gone.declared is None or not gone.declared.fine, "a group is lost"

    def nothing_is_missing(self) -> None:
        """Everything is drained: who should have got what has it, and the counts say so."""
        for record in self.topics.values():
            ends = [0] * len(record.topic.partitions)
            for put in record.puts.values():
                if put.acknowledged:
                    ends[put.index] = max(ends[put.index], put.offset + 1)
            for partition, end in zip(record.topic.partitions, ends, strict=True):
                assert partition.first <= partition.visible == partition.end >= end
            assert record.topic.depth() == sum(p.end for p in record.topic.partitions)
            for name, known in record.groups.items():
                group = record.topic.groups[name]
                for body, put in record.puts.items():
                    got = body in known.got or body in record.purged
                    assert got or not known.wants(put), f"{name} misses {body!r}"
                counts = (group.ready_count(), group.leased_count(), group.delayed_count())
                assert counts == (0, 0, 0)
