"""Partitions in the lanes of an engine: messages and changes become batches, and batches messages.

A partition's write in one tick is a DATA batch and then a STATE batch, in one append: a state
never tells of messages that a torn tail may have lost. When the segment is full a CHECKPOINT
follows, which begins the next segment. Within a segment, a snapshot of the state is written now and
then at the end of an append, so that recovery has little to read however large the segment is.

Tests: `tests/core/test_recovery.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from zbus.core.cursor.state import StateChange
from zbus.core.log import Found, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal, fenced
from zbus.core.model.ticket import Ticket
from zbus.core.persistence import retention
from zbus.core.persistence.replay import Replay, reread
from zbus.core.topics.delta import snapshot
from zbus.core.topics.stored import StoredLog
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.storage.format.batch import (
    SNAPSHOT,
    Batch,
    Ending,
    Kind,
    decode_chunk,
    encode_chunk,
    encode_state,
    headers_of,
    iterate,
)
from zbus.storage.format.checkpoint import encode_change
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import (
    Journal,
    JournalError,
    JournalFull,
    Lane,
    StoredLane,
    StoredSegment,
    Verdicts,
)

log = logging.getLogger("zbus")

Failed: TypeAlias = "Mapping[Partition, BrokerError]"
"""Partitions of which it is not so that all is durable, and why."""

NONE_FAILED: Final[Failed] = MappingProxyType({})

_MEMORY_SEGMENT_BYTES = 1 << 20
"""Topics in memory drop what all groups have finished each time this much has come."""

_STATE_BYTES = 4 << 20
"""After that much of changes alone a segment begins. If it has no messages either, it is replaced:
so acknowledgements without end take room that has an end, which matters when a disk is full."""

SNAPSHOT_EVERY_BYTES = 256 << 10
"""What recovery has to read of a partition at most, about. More if the state is large: a snapshot
must stay a small part of what is written."""

REPLAYS_MAX = 100_000
"""Writes that recovery has to read at most, however large the state is: each takes 30 us then."""

LATE_REPLAYS_MAX = 20_000
"""The same of an engine that is late. Clients wait while a new owner reads them, 20 us each, and
should not wait for more than 3 s in all."""

MEMORY_TOPIC_BYTES_MAX = 64 << 20
"""A topic in memory is a ring: past this, its oldest messages go, whether or not they were read."""

_RING_SHARE = 4
"""One part in that many of a ring goes at once."""

_PORTION_MESSAGES = 1 << 15
_PORTION_BYTES = 256 << 20
"""A batch takes no more puts once it holds this much: its counters have 32 bits."""

_FEW_MESSAGES = 60
"""This many fit into a batch, however long they are: none is longer than 64 MiB."""


def _portions(chunk: Chunk, puts: Sequence[Ticket]) -> Iterator[Chunk]:
    """The messages of a turn in pieces that fit into a batch each; nearly always one.

    A piece ends only where a put begins: a write that is torn must not leave half of one.
    """
    bytes_count = sum(map(len, chunk.bodies)) + sum(map(len, chunk.headers))
    if len(chunk) <= _PORTION_MESSAGES and bytes_count <= _PORTION_BYTES:
        yield chunk
        return
    start = size = 0
    begins: set[int] = set()
    for at, (body, headers) in enumerate(zip(chunk.bodies, chunk.headers, strict=True)):
        if size > _PORTION_BYTES or at - start >= _PORTION_MESSAGES:
            begins = begins or {ticket.offset - chunk.first for ticket in puts}
            if at in begins:
                yield chunk.part(start, at)
                start, size = at, 0
        size += len(body) + len(headers)
    yield chunk.part(start, len(chunk))


def _unreadable(error: JournalError) -> BrokerError:
    """The error for a reader; without descriptors it is worth another try."""
    full = isinstance(error, JournalFull)
    return BrokerError(Refusal.OVERLOADED if full else Refusal.DAMAGED, str(error))


def _failed(partitions: Sequence[Partition], verdicts: Verdicts) -> Failed:
    """Receives verdicts for the broker."""
    if not verdicts:
        return NONE_FAILED
    return {
        one: fenced(*one.lane, verdicts[one.lane].value)
        for one in partitions
        if one.lane in verdicts
    }


def _apart(change: StateChange) -> tuple[StateChange, StateChange | None]:
    """What a change says of completions that messages decide, and all else if there is more. One
    that counts with the change itself stays with it."""
    by_messages = tuple([one for one in change.completions if one.end])
    by_itself = tuple([one for one in change.completions if not one.end])
    own = StateChange(completions=by_messages, completed=change.completed)
    rest = attrs.evolve(change, completions=by_itself, completed=())
    return own, None if rest == StateChange() else rest


class Storage:
    """Keeps topics of the levels `os` and `disk` in one engine, those of `memory` in another."""

    def __init__(
        self,
        durable: Journal,
        memory: MemoryJournal,
        segment_bytes_max: int,
        snapshot_bytes: int | None = None,
        memory_topic_bytes_max: int = MEMORY_TOPIC_BYTES_MAX,
    ) -> None:
        """`snapshot_bytes` takes the place of `SNAPSHOT_EVERY_BYTES`."""
        self._rings: dict[Lane, Partition] = {}  # partitions in memory
        self._ring_bytes_max = memory_topic_bytes_max
        self._snapshot_bytes = snapshot_bytes
        self._durable = durable
        self._memory = memory
        self._segment_bytes_max = segment_bytes_max

    @property
    def synchronous(self) -> bool:
        """What is written is out of this process's hands: only for `synced` need one ask."""
        return not (self._durable.late or self._durable.verdicts)

    @property
    def memory_bytes(self) -> int:
        """What the messages of topics in memory take."""
        return self._memory.bytes_used

    def _engine(self, partition: Partition) -> Journal:
        in_memory = partition.topic.options.durability == "memory"
        return self._memory if in_memory else self._durable

    def write(
        self, partition: Partition, chunk: Chunk | None, change: StateChange | None, now_ms: int
    ) -> bool:
        """Append messages, then the change. False if there was no room: then nothing of them was
        written. A change that found none is in whatever is written to the partition next. After a
        crash each of the partition's puts is there as a whole, or not at all."""
        state = partition.stored
        if not state.segment_bytes or state.behind:
            try:
                offset = partition.end if chunk is None else chunk.first
                self._checkpoint(partition, offset, now_ms)
            except JournalFull:
                return False
        batches: list[Batch] = []
        crc = state.last_crc
        if chunk is not None:
            if change is not None and (change.completions or change.completed):
                # Before the messages: those of a torn write must not be there without it.
                own, change = _apart(change)
                batches.append(
                    encode_state(Kind.STATE, chunk.first, now_ms, encode_change(own), crc)
                )
                crc = batches[-1].header.crc
            small = len(chunk) <= _FEW_MESSAGES
            for portion in (chunk,) if small else _portions(chunk, partition.puts):
                batch = encode_chunk(portion, crc)
                batches.append(batch)
                crc = batch.header.crc
                chunk.stored_bytes += len(batch.raw)
        if change is not None:
            payload = encode_change(change)
            batches.append(encode_state(Kind.STATE, partition.end, now_ms, payload, crc))
        if not batches:
            return True
        try:
            size = self._append(partition, state, batches, now_ms)
        except JournalFull:
            state.behind = state.behind or chunk is None
            return False
        alone_bytes = state.state_bytes = state.state_bytes + size if chunk is None else 0
        if chunk is not None:
            state.message_bytes += chunk.stored_bytes
        if (
            state.segment_bytes >= self._roll_at(partition, state)
            or (
                alone_bytes
                and alone_bytes
                > 4 * state.checkpoint_bytes + min(_STATE_BYTES, self._segment_bytes_max)
            )
            or (
                (partition.topic.retains or partition.newest is not None)
                and retention.is_large(partition, partition.end)
            )
        ):
            self._roll(partition, now_ms)
        return True

    def _append(
        self, partition: Partition, state: StoredLog, batches: list[Batch], now_ms: int
    ) -> int:
        """Append batches, and a snapshot if it is time for one; how many bytes they have."""
        engine = self._engine(partition)
        added = sum([len(batch.raw) for batch in batches])
        self._append_once(engine, partition, state, batches)
        size = state.segment_bytes = state.segment_bytes + added
        state.last_crc = batches[-1].header.crc
        state.replays += 1
        fresh = size - state.snapshot_at
        if (
            fresh > (self._snapshot_bytes or SNAPSHOT_EVERY_BYTES)
            and (
                fresh > 4 * state.checkpoint_bytes
                or state.replays > (LATE_REPLAYS_MAX if engine.late else REPLAYS_MAX)
            )
            and size < self._roll_at(partition, state)  # else a checkpoint follows
            and engine is self._durable
        ):
            with suppress(JournalFull):  # then without it
                self._snapshot(partition, now_ms)
        return added

    def _snapshot(self, partition: Partition, now_ms: int) -> None:
        state = partition.stored
        payload = encode_change(snapshot(partition, now_ms))
        crc = state.last_crc
        batch = encode_state(Kind.STATE, partition.end, now_ms, payload, crc, SNAPSHOT)
        self._durable.append(partition.lane, crc, [batch])
        state.last_crc = batch.header.crc
        state.segment_bytes = state.snapshot_at = state.segment_bytes + len(batch.raw)
        state.checkpoint_bytes = len(batch.raw)
        state.replays = 0

    def holds(self, partition: Partition) -> bool:
        """Whether anything of the partition is stored."""
        return partition.stored.segment_bytes > 0

    def roll_segment(self, partition: Partition, now_ms: int) -> bool:
        """End the newest segment if that serves the topic's retention and there is room for
        another; whether it was to end."""
        ripe = retention.is_ripe(partition, now_ms)
        if ripe:
            self._roll(partition, now_ms)
        return ripe

    def _roll(self, partition: Partition, now_ms: int) -> None:
        try:
            self._checkpoint(partition, partition.written, now_ms)
        except JournalFull:
            return  # the segment grows a little more; the next write tries again
        if self._engine(partition) is self._memory:
            self._trim_memory(partition)

    def _append_once(
        self, engine: Journal, partition: Partition, state: StoredLog, batches: list[Batch]
    ) -> None:
        try:
            engine.append(partition.lane, state.last_crc, batches)
        except JournalFull:
            if engine is not self._memory:
                raise
            self._trim_memory(partition)
            engine.append(partition.lane, state.last_crc, batches)

    def commit(
        self, partitions: Sequence[Partition], synced: bool, done: Callable[[Failed], None]
    ) -> None:
        """Call `done` once it is known what became of everything written so far to these
        partitions: it is durable, but for those that are named. `synced`: on stable storage, else
        only out of this process's hands. One that has failed takes nothing until it is reopened."""
        kept = [one.lane for one in partitions if one.topic.options.durability != "memory"]
        if kept:
            self._durable.commit(kept, synced, lambda found: done(_failed(partitions, found)))
        else:
            done(NONE_FAILED)

    def reopen(
        self,
        partitions: Sequence[Partition],
        ready: Callable[[], bool],
        done: Callable[[BrokerError | list[Group]], None],
    ) -> None:
        """Read partitions of one topic again, and make them, and the groups of the topic, what is
        stored. Calls `done` with the groups that there are not any more, or with what stands in the
        way: then nothing was changed. With partition 0 come all others of a topic. `ready` is asked
        right before anything is changed; if it says no, that is the end of it."""
        # What was appended before comes first, so the lanes are committed, and then opened.
        topic, lanes = partitions[0].topic, [one.lane for one in partitions]
        found: dict[int, Replay] = {}
        problems: list[JournalError] = []

        def replay(stored: StoredLane) -> None:
            try:
                found[stored.lane[1]] = Replay(stored)
            except JournalError as error:
                problems.append(error)

        def opened(problem: JournalError | None) -> None:
            if problem is not None:
                problems.append(problem)
            if not ready():
                return
            try:
                if problems:
                    raise problems[0]
                gone = reread(topic, partitions, found)
            except JournalError as error:
                log.error("a partition cannot be read again", extra={"lane": lanes, "why": error})
                done(fenced(*lanes[0], str(error)))
                return
            log.warning("read again", extra={"topic": topic.name, "partitions": len(lanes)})
            done(gone)

        engine = self._engine(partitions[0])
        engine.commit(lanes, False, lambda verdicts: engine.open(lanes, replay, opened))

    def fetch(
        self, partition: Partition, offset: int, portion: Size, done: Callable[[Found], None]
    ) -> None:
        """Read stored messages from `offset` on; may be late. At least one, if there is any; only
        within a stored batch more than `bytes_max`."""

        def got(batches: bytes | JournalError) -> None:
            if isinstance(batches, JournalError):
                done(_unreadable(batches))
                return
            found: Chunk | None = None
            left = portion.count_max
            walk = iterate(batches)
            try:
                for batch in walk:
                    skipped = max(0, offset - batch.header.base_offset)
                    chunk = decode_chunk(batch, skipped, left)
                    if found is None:
                        found = chunk
                    elif chunk.first != found.end:
                        break
                    else:
                        found.extend(chunk)
                    left = portion.count_max - len(found)
                    if left <= 0:
                        break
            except JournalError as error:
                done(BrokerError(Refusal.DAMAGED, str(error)))
                return
            if left <= 0 or walk.ending in (Ending.CLEAN, None):
                done(found)
            else:
                done(BrokerError(Refusal.DAMAGED, f"{partition.lane}: {walk.reason}"))

        self._engine(partition).read(partition.lane, offset, portion.bytes_max, got)

    def fetch_raw(
        self,
        partition: Partition,
        offset: int,
        bytes_max: int,
        done: Callable[[bytes | BrokerError], None],
    ) -> None:
        """Read stored batches as they are, from the one that holds `offset` on."""
        visible = partition.visible

        def got(batches: bytes | JournalError) -> None:
            if isinstance(batches, JournalError):
                done(_unreadable(batches))
                return
            size = 0
            try:
                for header in headers_of(batches):  # the engine has verified them, and readers will
                    if header.base_offset >= visible:
                        break
                    size += header.length
            except JournalError as error:
                done(BrokerError(Refusal.DAMAGED, str(error)))
            else:
                done(batches[:size])

        self._engine(partition).read(partition.lane, offset, bytes_max, got)

    def largest(self, chunk: Chunk) -> tuple[Partition, int] | None:
        """There was no room in memory for these messages: the partition in memory that takes most,
        and the offset before which a part of it goes first. None = that would not help."""
        memory = self._memory
        lane, size = memory.largest(), chunk.stored_bytes
        if lane is None or (memory.bytes_max is not None and size >= memory.bytes_max):
            return None
        part = max(size, memory.size_of(lane) // _RING_SHARE)
        return self._rings[lane], memory.oldest(lane, min(part, memory.size_of(lane)))

    def over_limit(self, partition: Partition) -> int:
        """The offset before which a partition in memory is more than one may keep; 0: it is not."""
        lane = partition.lane
        size_max = self._ring_bytes_max // len(partition.topic.partitions)
        size = self._memory.size_of(lane)
        if size <= size_max:
            return 0
        return self._memory.oldest(lane, size - size_max + size_max // _RING_SHARE)

    def trim(self, partition: Partition) -> None:
        """Drop whole segments before the partition's first offset, which is durable."""
        if not partition.removed:  # else the lane may be another partition's by now
            self._engine(partition).trim(partition.lane, partition.first)
            partition.stored.segments.forget_before(partition.first)

    def discard(self, partition: Partition, now_ms: int) -> None:
        """Drop what is stored before the partition's first offset, safely against a crash."""
        engine = self._engine(partition)
        try:
            self._checkpoint(partition, partition.written, now_ms)
        except JournalError:  # full, or closed by now
            return  # what was purged is not read again; its space is free after another purge

        def durable(verdicts: Verdicts) -> None:
            if not verdicts:
                self.trim(partition)

        # The old segments go only when the new one is there to stay.
        engine.commit([partition.lane], True, durable)

    def remove(self, topic: Topic, done: Callable[[], None]) -> None:
        """Drop a topic: at once here, after a crash wholly or not at all. Calls `done` when it
        cannot come back."""
        for partition in topic.partitions:
            partition.removed = True
            self._rings.pop(partition.lane, None)
        # Also if nothing of it is stored: of a former topic of its name something may be, whose
        # removal is not durable yet.
        lanes = [one.lane for one in topic.partitions]
        self._engine(topic.partitions[0]).remove(lanes, done)

    def _roll_at(self, partition: Partition, state: StoredLog) -> int:
        """The size at which a segment ends: a checkpoint must stay a small part of it."""
        in_memory = partition.topic.options.durability == "memory"
        wanted = _MEMORY_SEGMENT_BYTES if in_memory else self._segment_bytes_max
        return state.checkpoint_bytes + max(wanted, 4 * state.checkpoint_bytes)

    def _checkpoint(self, partition: Partition, first: int, now_ms: int) -> None:
        """Begin a segment whose messages count from `first`."""
        state = partition.stored
        payload = encode_change(snapshot(partition, now_ms).truncated(first))
        batch = encode_state(Kind.CHECKPOINT, first, now_ms, payload, state.last_crc)
        engine = self._engine(partition)
        engine.append(partition.lane, state.last_crc, [batch])
        if engine is self._memory:
            self._rings[partition.lane] = partition
        state.last_crc = batch.header.crc
        if state.segments:
            state.segments[-1].end(state.segment_bytes)
        state.segments.begin(StoredSegment(first, now_ms))
        state.segment_bytes = state.checkpoint_bytes = state.snapshot_at = len(batch.raw)
        state.state_bytes = 0
        state.replays = 0
        state.behind = False

    def _trim_memory(self, partition: Partition) -> None:
        """What all groups of a topic in memory have finished is gone."""
        done = partition.finished()
        if done is None:
            return
        partition.first = max(partition.first, done)
        for group in partition.topic.groups.values():
            # no client has read it yet
            if group.backlogs[partition.index].fall_off(partition.first):
                group.unreported = True
        self.trim(partition)
