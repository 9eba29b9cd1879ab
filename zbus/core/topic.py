"""A topic and its partitions: where messages wait between being put and being written."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import attrs

from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError
from zbus.core.group import Group
from zbus.core.originals import KEY_MS, Originals
from zbus.core.outcomes import Outcome
from zbus.core.state import GroupChange, StateChange, TopicOptions
from zbus.core.ticket import Ticket

if TYPE_CHECKING:
    from zbus.core.deciding import Departed
    from zbus.core.flock import Watch
    from zbus.core.log import Log


class Partition:
    """One append-only log. first <= visible <= end; offsets below `visible` are durable at the
    topic's level and may be handed out; those from `staged_from` on wait for this tick's write."""

    __slots__ = (
        "changed",
        "confirms",
        "end",
        "epoch",
        "fenced",
        "first",
        "index",
        "lane",
        "last",
        "log",
        "options_changed",
        "originals",
        "purged_to",
        "purges",
        "puts",
        "recovered",
        "removed",
        "removed_groups",
        "staged",
        "stored",
        "topic",
        "topic_changed",
        "touched",
        "visible",
    )

    def __init__(self, topic: Topic, index: int, first: int = 0, end: int = 0) -> None:
        self.topic = topic
        self.index = index
        self.lane = (topic.name, index)
        self.log: Log  # by whoever has the memory for it
        self.touched = False  # it is to be written in this tick
        self.removed = False  # its topic is gone, and its lane may be another's by now
        self.fenced: BrokerError | None = None  # nothing of it is served, see `zbus.core.fencing`
        self.epoch = 0  # how often it was fenced
        self.reset(first, end)

    def reset(self, first: int = 0, end: int = 0) -> None:
        """Know nothing but this; all else has to be told."""
        self.first = first
        self.end = end
        self.visible = end
        self.recovered = 0  # what is below it was there when the broker read the log
        self.originals = Originals()  # what must not be stored again
        # This tick.
        self.staged: Chunk | None = None
        self.last: Ticket | None = None  # of what is staged: more may be put along with it
        self.puts: list[Ticket] = []  # settled with Stored
        self.confirms: list[tuple[Ticket, Outcome]] = []  # changes that somebody waits for
        self.changed: list[Group] = []  # groups whose backlog here changed
        self.topic_changed = False
        self.options_changed: dict[Group, None] = {}
        self.removed_groups: list[str] = []
        self.purged_to = 0  # what is below it is to be dropped when that is durable
        # Of a topic with several: the last decided emptying and those on their way, by number, and
        # where this partition begins by it.
        self.purges: dict[int, int] = {}
        self.stored: object = None  # what the recorder knows of its lane

    @property
    def written(self) -> int:
        """The offset after the last message that is not only staged."""
        return self.end if self.staged is None else self.staged.first

    def readers_at(self) -> list[int]:
        """The cursors of all groups that somebody reads from, and the places of followers."""
        index = self.index
        places = [g.backlogs[index].cursor for g in self.topic.groups.values() if g.readers]
        followed = self.topic.followed
        return places if followed is None else places + followed.places(index)

    def snapshot(self, now_ms: int = 0) -> StateChange:
        """Everything a checkpoint has to hold."""
        self.originals.expire(now_ms - (self.topic.options.dedupe_ms or KEY_MS))
        topic, index = self.topic, self.index
        groups = []
        for group in topic.groups.values():
            change = group.backlogs[index].snapshot(group.name, group.incarnation)
            origin = None if index else group.origin
            groups.append(attrs.evolve(change, options=group.options, origin=origin))
        groups += [
            other.backlogs[index].snapshot(other.name, other.incarnation)
            for other in (topic.departing if index else ())
        ]
        return StateChange(
            topic.options,
            tuple(groups),
            max(self.first, self._purged_to),
            self.originals.snapshot(),
            incarnation=topic.incarnation,
            number=0 if index else topic.number,
            emptied=() if index else topic.emptied,
            purges=tuple(self.purges.items()),
        )

    @property
    def _purged_to(self) -> int:
        """What is to be told of it: partition 0 decides, and says it first."""
        undecided = self.index > 0 and self.topic.emptying
        return 0 if undecided else self.purged_to

    def take_changes(self) -> StateChange | None:
        """What this tick changed, and nothing left to tell; None = nothing."""
        if not (
            self.changed
            or self.removed_groups
            or self.topic_changed
            or self._purged_to > self.first
        ):
            return None
        index, known = self.index, self.topic
        decides = index == 0 and known.number > 0 and (self.removed_groups or self.topic_changed)
        changes = [GroupChange(name, removed=True) for name in self.removed_groups]
        for group in self.changed:
            backlog = group.backlogs[index]
            backlog.dirty = False
            change = backlog.changes(group.name, group.incarnation)
            if group in self.options_changed:
                origin = None if index else group.origin
                change = attrs.evolve(change, options=group.options, origin=origin)
            changes.append(change)
        # If a decision is lost, what was before it counts, and as it was then.
        if known.departing and index:
            for other in known.departing:
                backlog = other.backlogs[index]
                if backlog.dirty:
                    backlog.dirty = False
                    changes.append(backlog.changes(other.name, other.incarnation))
        self.changed = []
        if self.removed_groups or self.options_changed:
            self.removed_groups = []
            self.options_changed = {}
        topic = known.options if self.topic_changed else None
        first = self._purged_to if self._purged_to > self.first else 0
        purges = tuple(self.purges.items()) if self.topic_changed else ()
        self.topic_changed = False
        return StateChange(
            topic,
            tuple(changes),
            first,
            number=known.number if decides else 0,
            emptied=known.emptied if decides else (),
            purges=purges,
        )


class Topic:
    """A name, options, partitions, groups. Group names are compared without regard to case."""

    __slots__ = (
        "born",
        "careful",
        "competing",
        "decided",
        "departing",
        "emptied",
        "emptying",
        "followed",
        "groups",
        "incarnation",
        "name",
        "number",
        "options",
        "partitions",
        "retains",
        "turn",
        "updated_ms",
    )

    def __init__(self, options: TopicOptions) -> None:
        self.name = options.name
        self.partitions = [Partition(self, index) for index in range(options.partitions)]
        self.configure(options)
        self.groups: dict[str, Group] = {}  # by lower-case name
        self.followed: Watch | None = None
        self.turn = 0  # the partition that takes messages without a key in this tick
        self.updated_ms = options.created_ms
        # Of a topic with several partitions, see `zbus.core.deciding`.
        self.incarnation = ""
        self.number = 0  # the last one given to a decision
        self.decided = 0  # the last one of which that is durable
        self.departing: list[Departed] = []
        self.emptied: tuple[int, ...] = ()  # the last decision to empty it: number, then offsets
        self.emptying = 0  # such decisions that are not durable yet
        self.born = False  # somebody was told of it, or it was recovered: it must not go again

    def configure(self, options: TopicOptions) -> None:
        """Take over options."""
        self.options = options
        for partition in self.partitions:
            partition.last = None
        self.careful = options.calls or options.dedupe_ms > 0  # a put is not just stored
        self.retains = options.retains
        self.competing = options.competing

    @property
    def undecided(self) -> bool:
        """Partition 0 has not said yet, durably, all that was decided."""
        return self.decided < self.number

    def group(self, name: str) -> Group | None:
        """The group of that name; a competing topic has one queue, whatever name is asked for."""
        if self.competing:
            return next(iter(self.groups.values()), None)
        return self.groups.get(name.lower())

    def partition_for(self, key: bytes) -> Partition:
        """Same key, same partition; no key, whichever has its turn."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        if key:
            return self.partitions[crc32(key) % len(self.partitions)]
        partition = self.partitions[self.turn % len(self.partitions)]
        return partition if partition.fenced is None else self._serving(partition)

    def _serving(self, partition: Partition) -> Partition:
        """Another that is not fenced, if there is one."""
        return next((one for one in self.partitions if one.fenced is None), partition)

    def depth(self) -> int:
        """Messages ever put."""
        return sum([partition.end for partition in self.partitions])

    def readers(self) -> int:
        return sum(len(group.readers) for group in self.groups.values())
