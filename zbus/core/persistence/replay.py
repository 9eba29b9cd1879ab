"""From stored lanes back to topics, groups and backlogs, exactly as they were.

What is read of a lane begins with a checkpoint or snapshot; every STATE batch after it is applied
in order, every DATA batch moves the end of the log. Messages themselves are not kept: they come
when a group wants them.

A crash may have kept what was written to some partitions of a topic and lost what was written to
others. What partition 0 says is done in all of them; what it does not say is done in none
(`zbus.core.commit.topic_changes`). Topics that an older program wrote know no such decisions: they
have what any of their partitions says, until the first decision is made.

Tests: `tests/core/test_recovery.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from zbus.core.cursor import journal
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import Origin, TopicOptions
from zbus.core.dedup.active_ids import ActiveIds
from zbus.core.dedup.window import DedupWindow
from zbus.core.timing.delays import Delays
from zbus.core.topics.growth import cut_lines
from zbus.core.topics.open_completions import OpenCompletions
from zbus.core.topics.recovered import RecoveredState
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.storage.format.batch import (
    HEADER_BYTES,
    BatchHeader,
    Kind,
    decode_chunk,
    may_have_keys,
    read_header,
)
from zbus.storage.format.checkpoint import decode_change
from zbus.storage.format.columns import Column
from zbus.storage.port import Journal, JournalDamage, JournalError, Lane, StoredLane
from zbus.storage.segments import Segments

log = logging.getLogger("zbus")

_EXPIRES = int(Column.EXPIRES)


class Replay(RecoveredState):
    """One lane while it is replayed. Raises JournalDamage if bytes are not what was written."""

    def __init__(self, stored: StoredLane) -> None:
        super().__init__(stored.lane[1])
        self.lane: Lane = stored.lane
        self.was_durable = stored.was_durable
        self.first = stored.first_offset
        self.end = 0
        self.last_crc = 0
        self.size = stored.begin
        self.checkpoint_size = 0
        self.snapshot_at = 0
        self.replays = 0
        self.time_ms = 0
        self.originals = DedupWindow()
        self.expiries = Delays()
        self.ids = ActiveIds()  # stays empty if the topic does not look at them
        self._tick: list[bytes] = []  # the DATA batches of the latest tick
        self._tick_ms = 0  # when that was
        self.segments = Segments(stored.segments)
        for batch in stored.batches:
            self._batch(batch)

    def _batch(self, batch: bytes) -> None:
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
            self.originals = DedupWindow()
            self._tick = []
        self.apply(change, header.is_whole_state)
        if header.is_whole_state:
            self.expiries = Delays()
            self.expiries.load(change.expiries)
        if header.is_whole_state or (change.topic and not change.topic.dedupe_live):
            self.ids = ActiveIds(change.ids)
        here = self._tick_ms == header.time_ms
        if change.topic is not None and self._remembers_ids and here:
            for chunk in self._tick:
                # It may have been declared before these were put: its tick's state comes last.
                self._note(read_header(chunk), chunk)
        for original in change.originals:
            self.originals.remember(original)

    @property
    def grown(self) -> bool:
        """Its topic had fewer partitions at first, perhaps one, which has no incarnation."""
        return self.topic is not None and bool(self.topic.grown)

    @property
    def _remembers_ids(self) -> bool:
        return self.topic is not None and self.topic.remembers_ids

    def _data(self, header: BatchHeader, batch: bytes) -> None:
        if self._tick_ms != header.time_ms:
            self._tick, self._tick_ms = [], header.time_ms
        self._tick.append(batch)
        if header.flags & _EXPIRES:
            chunk = decode_chunk(batch)
            self.expiries.set_all(chunk.first, chunk.expires or ())
        if self._remembers_ids or may_have_keys(header, batch):
            self._note(header, batch)

    def _note(self, header: BatchHeader, batch: bytes) -> None:
        chunk, dedupe_ms = decode_chunk(batch), self.topic.dedupe_ms if self.topic else 0
        self.originals.expire(header.time_ms, dedupe_ms)
        self.originals.note(chunk, dedupe_ms > 0)
        if self.topic and self.topic.dedupe_live:
            self.ids.note(chunk)

    def fill(self, partition: Partition) -> None:
        partition.first = max(self.first, self.forgotten)
        partition.end = partition.visible = self.end
        partition.originals = self.originals
        partition.keep_ids(self.ids if partition.topic.options.dedupe_live else None)
        partition.expiries = self.expiries or None
        partition.completions = OpenCompletions.found(self.completions.values(), self.end)
        # A crash while several lanes were changed leaves some behind: they follow now.
        partition.topic_changed = self.topic != partition.topic.options
        state = partition.stored
        state.last_crc = self.last_crc
        state.segment_bytes = self.size
        state.checkpoint_bytes = self.checkpoint_size
        state.segments = self.segments
        state.snapshot_at = self.snapshot_at
        state.replays = self.replays

    def empty(self, partition: Partition, decided: tuple[int, ...]) -> None:
        """Forget what partition 0 says was emptied, and nothing else that was to be."""
        if not decided:
            return
        number = decided[0]
        first = self.purges.get(number)
        if first is None:
            # The crash took it, and perhaps messages before it that no client was told of.
            at = 1 + partition.index  # one that is newer had nothing then
            first = min([*(decided[at : at + 1] or (0,)), self.end])
            partition.topic_changed = True
        partition.purges = {number: first}
        partition.first = max(partition.first, first)


Lanes: TypeAlias = "dict[int, Replay]"
"""Of one topic, by partition."""


def recover(journal: Journal, wait: Callable[[], None] | None = None) -> tuple[list[Topic], int]:
    """All topics that the journal holds, and the latest time it knows of (epoch milliseconds).

    `wait` runs what the engine has posted, and waits for it; needed for one that answers later.
    Raises JournalDamage for bytes that are not what was written, JournalError for anything else.
    """
    lanes: dict[str, Lanes] = {}
    answers: list[JournalError | None] = []

    def found(stored: StoredLane) -> None:
        name, index = stored.lane
        lanes.setdefault(name, {})[index] = Replay(stored)

    journal.open(None, found, answers.append)
    while not answers:
        if wait is None:
            raise JournalError("the engine did not say in time what is stored")
        wait()
    if answers[0] is not None:
        raise answers[0]
    time_ms = max([lane.time_ms for known in lanes.values() for lane in known.values()], default=0)
    topics = []
    for name, known in sorted(lanes.items()):
        if 0 in known or not any(lane.incarnation or lane.grown for lane in known.values()):
            topics.append(_topic(name, dict(sorted(known.items()))))
        else:
            _drop(journal, name, known)
    return topics, time_ms


def _drop(journal: Journal, name: str, lanes: Lanes) -> None:
    """There is no partition 0. Either a crash came while the topic was made: no client was told of
    it and nothing in it was acknowledged. Or partition 0 is lost: an operator decides."""
    for index, lane in lanes.items():
        if lane.end and lane.was_durable is not False:
            raise JournalDamage(
                f"partition 0 of topic {name!r} is missing, and partition {index} is there; put it "
                "back from a backup, or move the topic's directory out of the data directory"
            )
    log.warning("a topic that was never made whole is removed", extra={"topic": name})
    journal.remove([lane.lane for lane in lanes.values()], lambda: None)


def _topic(name: str, lanes: Lanes) -> Topic:
    # Of an older program's topics a crash while several lanes were declared or changed leaves the
    # last of them behind: no client was told that it was done, so any of the states is right.
    options = _options(lanes)
    if options is None:
        raise JournalDamage(f"the log of topic {name!r} does not say what topic it is")
    topic = Topic(options if options.name == name else attrs.evolve(options, name=name))
    _fill(topic, lanes)
    return topic


def _options(lanes: Lanes, known: TopicOptions | None = None) -> TopicOptions | None:
    """What the first lane says that knows it. But a growth counts if any lane says so, or the
    program: there may be messages that are where they are because of it."""
    said = [lane.topic for lane in lanes.values()]
    found = [options for options in (*said, known) if options is not None]
    if not found:
        return None
    most = max(found, key=lambda options: options.partitions)
    ends = {index: lanes[index].end if index in lanes else 0 for index in range(most.partitions)}
    return cut_lines(most, ends)


def _fill(topic: Topic, lanes: Lanes) -> list[Group]:
    """Make the topic what all its lanes say, which are in order: of options the first that knows
    them is believed. Give the groups that it has not any more."""
    zero = lanes.get(0)
    decides = zero is not None and zero.number > 0
    if zero is not None:
        topic.incarnation, topic.emptied = zero.incarnation, zero.emptied
    # Not even the number of a decision that is lost is given again: some partition may speak of it.
    topic.number = max([topic.number, *[lane.number for lane in lanes.values()]])
    topic.number = max(topic.number, int(bool(topic.options.grown)))  # of what had one partition
    topic.decided = topic.number
    _fill_partitions(topic, lanes)
    former, topic.groups = topic.groups, {}
    for key in dict.fromkeys(key for lane in lanes.values() for key in lane.backlogs):
        incarnation = 0
        if decides and zero is not None:
            incarnation = next(iter(zero.backlogs.get(key, {})), -1)
        having = [lane for lane in lanes.values() if incarnation in lane.backlogs.get(key, {})]
        owner = next((lane for lane in having if key in lane.options), None)
        if owner is None:
            continue  # a crash left behind a lane that never got its declaration
        options = owner.options[key]
        group = former.pop(key, None)
        if group is None:
            group = Group(topic, owner.names[key], options, [Backlog()] * len(topic.partitions))
        else:
            group.configure(options)
        group.incarnation, group.origin = incarnation, owner.origins.get(key)
        topic.groups[key] = group
        for partition in topic.partitions:
            _fill_backlog(group, key, partition, lanes.get(partition.index))
        if not any(group in partition.changed for partition in topic.partitions):
            group.origin = None  # all partitions know it
    _let_go_of_ids(lanes, topic.partitions)
    return list(former.values())


def _let_go_of_ids(lanes: Lanes, partitions: Sequence[Partition]) -> None:
    """Forget the ids of what is finished: how much that is does not depend on what lives."""
    for partition in partitions:
        if partition.ids is not None and partition.index in lanes:
            partition.ids.sweep(lanes[partition.index].time_ms, len(partition.ids))


def _fill_partitions(topic: Topic, lanes: Lanes) -> None:
    for index, lane in lanes.items():
        if lane.incarnation != topic.incarnation:
            raise JournalDamage(
                f"partition {index} is of another topic {topic.name!r} than partition 0"
            )
        if index < len(topic.partitions):
            lane.fill(topic.partitions[index])
            if len(topic.partitions) > 1:
                lane.empty(topic.partitions[index], topic.emptied)


def _fill_backlog(group: Group, key: str, partition: Partition, here: Replay | None) -> None:
    index, origin = partition.index, group.origin
    backlog = here.backlog(key, group.incarnation) if here else None
    if backlog is None:
        backlog = Backlog(partition.first)
        if origin is not None:
            _begin(backlog, key, origin, index, here)
            backlog.truncate(partition.end)  # the crash may have taken messages before it
        backlog.record_all()
        backlog.dirty = True
        partition.changed.append(group)
        partition.topic_changed = True  # so all this is told soon, and before anything else
        if not index:
            partition.options_changed[group] = None
    # Segments may be gone of which nothing was written down.
    backlog.fall_off(partition.first, counted=not partition.topic.options.compact)
    backlog.keep_fates(group.topic.options.settled_ms > 0)
    group.backlogs[index] = backlog


def reread(topic: Topic, partitions: Sequence[Partition], stored: Lanes) -> list[Group]:
    """Make these partitions of a topic that is served, and its groups in them, what is stored;
    give the groups that there are not any more. With partition 0 come all others.

    Raises JournalDamage if it is another topic by now, or if partition 0 is not there; then nothing
    is changed.
    """
    zero = partitions[0].index == 0
    if zero and 0 not in stored:
        raise JournalDamage(f"partition 0 of topic {topic.name!r} is not stored any more")
    stored = dict(sorted(stored.items()))  # whichever was read first
    if zero:
        options = _options(stored, topic.options) or topic.options
    else:
        options = cut_lines(topic.options, {i: lane.end for i, lane in stored.items()})
    if options.partitions > len(topic.partitions):
        raise JournalDamage(f"topic {topic.name!r} has {options.partitions} partitions by now")
    incarnation = stored[0].incarnation if zero else topic.incarnation
    if any(lane.incarnation != incarnation for lane in stored.values()):
        raise JournalDamage(f"a partition of topic {topic.name!r} is another topic's by now")
    for partition in partitions:
        partition.reset()
    if zero:
        topic.configure(attrs.evolve(options, name=topic.name))
        topic.departing, topic.emptying = [], 0
        return _fill(topic, stored)
    if options != topic.options:
        topic.configure(options)
        topic.partitions[0].topic_changed = True
    _fill_partitions(topic, stored)
    for partition in partitions:
        here = stored.get(partition.index)
        for key, group in topic.groups.items():
            _fill_backlog(group, key, partition, here)
        for other in topic.departing:
            known = here.backlog(other.name, other.incarnation) if here else None
            other.backlogs[partition.index] = known or Backlog(partition.first)
    _let_go_of_ids(stored, partitions)
    return []


def _begin(backlog: Backlog, key: str, origin: Origin, index: int, here: Replay | None) -> None:
    """Put the backlog where the group begins in a partition that has not told of it."""
    if index >= len(origin.starts):
        return  # there was no such partition: it begins where that begins
    if origin.starts[index] >= 0:
        backlog.seek(origin.starts[index])
        return
    model_key = origin.model.lower()
    model = here.backlog(model_key, origin.incarnation) if here else None
    if model is None:
        if origin.before is None:
            return  # it is as new as the partition
        model = Backlog(backlog.cursor)
        _begin(model, model_key, origin.before, index, here)
    if model_key == key:
        journal.apply(backlog, attrs.evolve(journal.snapshot(model, ""), reset=True))
    elif origin.whole:
        backlog.copy_from(model)
    else:
        backlog.seek(model.cursor)
        backlog.copy_delayed(model)
