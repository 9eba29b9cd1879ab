"""From stored lanes back to topics, groups and backlogs, exactly as they were.

What is read of a lane begins with a checkpoint or snapshot; every STATE batch after it is applied
in order, every DATA batch moves the end of the log. Messages themselves are not kept: they come
when a group wants them.
"""

from __future__ import annotations

import attrs

from zbus.core.backlog import Backlog
from zbus.core.group import Group
from zbus.core.originals import KEY_MS, Originals
from zbus.core.state import GroupOptions, StateChange, TopicOptions
from zbus.core.topic import Partition, Topic
from zbus.journal.batch import (
    HEADER_BYTES,
    BatchHeader,
    Kind,
    decode_chunk,
    may_have_keys,
    read_header,
)
from zbus.journal.checkpoint import decode_change
from zbus.journal.port import Journal, JournalDamage, Lane, StoredLane
from zbus.store.lane import Extent, state_of


class _Lane:
    """One lane while it is replayed."""

    def __init__(self, stored: StoredLane) -> None:
        self.lane: Lane = stored.lane
        self.first = stored.first_offset
        self.forgotten = 0  # what is before it, the log says itself
        self.end = 0
        self.last_crc = 0
        self.size = stored.begin
        self.checkpoint_size = 0
        self.snapshot_at = 0
        self.replays = 0
        self.time_ms = 0
        self.topic: TopicOptions | None = None
        self.originals = Originals()
        self._tick: list[bytes] = []  # the DATA batches of the latest tick
        self._tick_ms = 0  # when that was
        self.backlogs: dict[str, Backlog] = {}  # by lower-case name
        self.options: dict[str, GroupOptions] = {}
        self.names: dict[str, str] = {}
        self.segments = [Extent(base, measure=measure) for base, measure in stored.segments]
        for batch in stored.batches:
            self._apply(batch)

    def _apply(self, batch: bytes) -> None:
        header = read_header(batch)
        self.last_crc = header.crc
        self.time_ms = max(self.time_ms, header.time_ms)
        self.size += len(batch)
        self.replays += 1  # a write is one or two batches
        if header.kind is Kind.DATA:
            self.end = header.end_offset
            self._data(header, batch)
            return
        change = decode_change(memoryview(batch)[HEADER_BYTES:])
        if header.is_whole_state:
            if header.kind is Kind.CHECKPOINT:
                self.size = len(batch)
            self.end = header.base_offset
            self.checkpoint_size = len(batch)
            self.snapshot_at = self.size
            self.replays = 0
            self.backlogs.clear()
            self.originals = Originals()
            self._tick = []
        self._change(change)
        for original in change.originals:
            self.originals.remember(original)

    def _change(self, change: StateChange) -> None:
        if change.topic is not None:
            self.topic = change.topic
            for batch in self._tick if self._remembers_ids else ():
                # It may have been declared before these were put: its tick's state comes last.
                self._note(read_header(batch), batch)
        if change.first > self.forgotten:
            self.forgotten = change.first
            for backlog in self.backlogs.values():
                # What is lost by it, the groups' own changes say: they come next.
                backlog.fall_off(change.first)
        for group in change.groups:
            key = group.name.lower()
            if group.removed:
                self.backlogs.pop(key, None)
                continue
            if group.options is not None:
                self.options[key] = group.options
                self.names[key] = group.name
            self.backlogs.setdefault(key, Backlog()).apply(group)

    @property
    def _remembers_ids(self) -> bool:
        return self.topic is not None and self.topic.dedupe_ms > 0

    def _data(self, header: BatchHeader, batch: bytes) -> None:
        if self._tick_ms != header.time_ms:
            self._tick, self._tick_ms = [], header.time_ms
        self._tick.append(batch)
        if self._remembers_ids or may_have_keys(header, batch):
            self._note(header, batch)

    def _note(self, header: BatchHeader, batch: bytes) -> None:
        remember_ms = (self.topic.dedupe_ms if self.topic else 0) or KEY_MS
        self.originals.expire(header.time_ms - remember_ms)
        self.originals.note(decode_chunk(batch), self._remembers_ids)

    def fill(self, partition: Partition) -> None:
        partition.first = max(self.first, self.forgotten)
        partition.end = partition.visible = self.end
        partition.originals = self.originals
        # A crash while several lanes were changed leaves some behind: they follow now.
        partition.topic_changed = self.topic != partition.topic.options
        state = state_of(partition)
        state.last_crc = self.last_crc
        state.segment_bytes = self.size
        state.checkpoint_bytes = self.checkpoint_size
        state.segments = self.segments
        state.snapshot_at = self.snapshot_at
        state.replays = self.replays


def recover(journal: Journal) -> tuple[list[Topic], int]:
    """All topics that the journal holds, and the latest time it knows of (epoch milliseconds).

    Raises JournalDamage for bytes that are not what was written.
    """
    lanes: dict[str, dict[int, _Lane]] = {}
    time_ms = 0
    for stored in journal.lanes():
        lane = _Lane(stored)
        name, index = lane.lane
        lanes.setdefault(name, {})[index] = lane
        time_ms = max(time_ms, lane.time_ms)
    topics = [_topic(name, dict(sorted(found.items()))) for name, found in sorted(lanes.items())]
    return topics, time_ms


def _topic(name: str, lanes: dict[int, _Lane]) -> Topic:
    # A crash while several lanes were declared or changed leaves the last of them behind: nobody
    # was told that it was done, so any of the states is right.
    options = next((lane.topic for lane in lanes.values() if lane.topic is not None), None)
    if options is None:
        raise JournalDamage(f"the log of topic {name!r} does not say what topic it is")
    topic = Topic(attrs.evolve(options, name=name, partitions=options.partitions))
    for index, lane in lanes.items():
        if index < len(topic.partitions):
            lane.fill(topic.partitions[index])
    for key in dict.fromkeys(key for lane in lanes.values() for key in lane.backlogs):
        owner = next((lane for lane in lanes.values() if key in lane.options), None)
        if owner is None:
            continue  # a crash left behind the lane that never got its declaration
        backlogs = []
        for index, partition in enumerate(topic.partitions):
            here = lanes.get(index)
            backlog = (here.backlogs.get(key) if here else None) or Backlog(partition.first)
            # Segments may be gone of which nothing was written down.
            backlog.fall_off(partition.first)
            backlogs.append(backlog)
        topic.groups[key] = Group(topic, owner.names[key], owner.options[key], backlogs)
    return topic
