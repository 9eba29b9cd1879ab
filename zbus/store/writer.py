"""Between the broker and an engine: messages and changes become batches, and batches messages.

A partition's write in one tick is a DATA batch and then a STATE batch, in one append: a state
never tells of messages that a torn tail may have lost. When the segment is full a CHECKPOINT
follows, which begins the next segment. Within a segment, a snapshot of the state is written now and
then at the end of an append, so that recovery has little to read however large the segment is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError, Refusal
from zbus.core.recorder import Found, Size
from zbus.core.retention import Extent, is_large
from zbus.core.state import StateChange
from zbus.core.ticket import Ticket
from zbus.core.topic import Partition, Topic
from zbus.journal.batch import (
    SNAPSHOT,
    Batch,
    Ending,
    Kind,
    decode_chunk,
    encode_chunk,
    encode_state,
    iterate,
)
from zbus.journal.checkpoint import encode_change
from zbus.journal.port import Journal, JournalError, JournalFull

_MEMORY_SEGMENT_BYTES = 1 << 20
"""Topics in memory drop what all groups have finished each time this much has come."""


_STATE_BYTES = 4 << 20
"""After so much of changes alone a segment begins. If it has no messages either, it is replaced:
so acknowledgements without end take room that has an end, which matters when a disk is full."""

SNAPSHOT_EVERY_BYTES = 256 << 10
"""What recovery has to read of a partition at most, about. More if the state is large: a snapshot
must stay a small part of what is written."""

REPLAYS_MAX = 100_000
"""Writes that recovery has to read at most, however large the state is: each takes 30 us then."""

_PORTION_MESSAGES = 1 << 15
_PORTION_BYTES = 256 << 20
"""A batch takes no more puts once it holds so much: its counters have 32 bits."""

_FEW_MESSAGES = 60
"""So many fit into a batch, however long they are: none is longer than 64 MiB."""


def _portions(chunk: Chunk, puts: Sequence[Ticket]) -> Iterator[Chunk]:
    """The messages of a turn in pieces that fit into a batch each; nearly always one.

    A piece ends only where a put begins: a write that is torn must not leave half of one.
    """
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
    """What a reader is told; for want of descriptors it is worth another try."""
    full = isinstance(error, JournalFull)
    return BrokerError(Refusal.OVERLOADED if full else Refusal.DAMAGED, str(error))


class LogWriter:
    """Keeps topics of the levels `os` and `disk` in one engine, those of `memory` in another."""

    def __init__(self, durable: Journal, memory: Journal, segment_bytes_max: int) -> None:
        self._durable = durable
        self._memory = memory
        self._segment_bytes_max = segment_bytes_max

    def _engine(self, partition: Partition) -> Journal:
        in_memory = partition.topic.options.durability == "memory"
        return self._memory if in_memory else self._durable

    def write(
        self, partition: Partition, chunk: Chunk | None, change: StateChange | None, now_ms: int
    ) -> bool:
        if not partition.segment_bytes or partition.behind:
            try:
                offset = partition.end if chunk is None else chunk.first
                self._checkpoint(partition, offset, now_ms)
            except JournalFull:
                return False
        batches: list[Batch] = []
        crc = partition.last_crc
        if chunk is not None:
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
            size = self._append(partition, batches, now_ms)
        except JournalFull:
            partition.behind = partition.behind or chunk is None
            return False
        partition.state_bytes = 0 if chunk is not None else partition.state_bytes + size
        alone_max = 4 * partition.checkpoint_bytes + min(_STATE_BYTES, self._segment_bytes_max)
        if (
            partition.segment_bytes >= self._roll_at(partition)
            or partition.state_bytes > alone_max
            or (partition.topic.retains and is_large(partition, partition.end))
        ):
            self.roll(partition, now_ms)
        return True

    def _append(self, partition: Partition, batches: list[Batch], now_ms: int) -> int:
        """Append batches, and a snapshot if it is time for one; how many bytes they have."""
        engine = self._engine(partition)
        added = sum([len(batch.raw) for batch in batches])
        size = partition.segment_bytes = self._append_once(engine, partition, batches)
        partition.last_crc = batches[-1].header.crc
        partition.replays += 1
        fresh = size - partition.snapshot_at
        if (
            fresh > SNAPSHOT_EVERY_BYTES
            and (fresh > 4 * partition.checkpoint_bytes or partition.replays > REPLAYS_MAX)
            and size < self._roll_at(partition)  # else a checkpoint follows
            and engine is self._durable
        ):
            with suppress(JournalFull):  # then without it
                self._snapshot(partition, now_ms)
        return added

    def _snapshot(self, partition: Partition, now_ms: int) -> None:
        payload = encode_change(partition.snapshot(now_ms))
        crc = partition.last_crc
        batch = encode_state(Kind.STATE, partition.end, now_ms, payload, crc, SNAPSHOT)
        size = self._durable.append(partition.lane, crc, [batch])
        partition.last_crc = batch.header.crc
        partition.segment_bytes = partition.snapshot_at = size
        partition.checkpoint_bytes = len(batch.raw)
        partition.replays = 0

    def roll(self, partition: Partition, now_ms: int) -> None:
        try:
            self._checkpoint(partition, partition.written, now_ms)
        except JournalFull:
            return  # the segment grows a little more; the next write tries again
        if self._engine(partition) is self._memory:
            self._trim_memory(partition)

    def _append_once(self, engine: Journal, partition: Partition, batches: list[Batch]) -> int:
        try:
            return engine.append(partition.lane, partition.last_crc, batches)
        except JournalFull:
            if engine is not self._memory:
                raise
            self._trim_memory(partition)
            return engine.append(partition.lane, partition.last_crc, batches)

    def commit(self, partitions: Iterable[Partition], done: Callable[[], None]) -> None:
        self._durable.commit([partition.lane for partition in partitions], done)

    def fetch(
        self, partition: Partition, offset: int, portion: Size, done: Callable[[Found], None]
    ) -> None:
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
        visible = partition.visible

        def got(batches: bytes | JournalError) -> None:
            if isinstance(batches, JournalError):
                done(_unreadable(batches))
                return
            size = 0
            for batch in iterate(batches):
                if batch.header.base_offset >= visible:
                    break
                size += len(batch.raw)
            done(batches[:size])

        self._engine(partition).read(partition.lane, offset, bytes_max, got)

    def trim(self, partition: Partition) -> None:
        if not partition.removed:  # else the lane may be another partition's by now
            self._engine(partition).trim(partition.lane, partition.first)
            _forget_extents(partition)

    def discard(self, partition: Partition, now_ms: int) -> None:
        engine = self._engine(partition)

        try:
            self._checkpoint(partition, partition.written, now_ms)
        except JournalError:  # full, or closed by now
            return  # what was purged is not read again; its space is free after another purge
        # The old segments go only when the new one is there to stay.
        engine.commit([partition.lane], lambda: self.trim(partition))

    def remove(self, topic: Topic, done: Callable[[], None]) -> None:
        for partition in topic.partitions:
            partition.removed = True
        lanes = [partition.lane for partition in topic.partitions if partition.segment_bytes]
        if lanes:
            self._engine(topic.partitions[0]).remove(lanes, done)
        else:
            done()

    def _roll_at(self, partition: Partition) -> int:
        """The size at which a segment ends: a checkpoint must stay a small part of it."""
        in_memory = partition.topic.options.durability == "memory"
        wanted = _MEMORY_SEGMENT_BYTES if in_memory else self._segment_bytes_max
        return partition.checkpoint_bytes + max(wanted, 4 * partition.checkpoint_bytes)

    def _checkpoint(self, partition: Partition, first: int, now_ms: int) -> None:
        """Begin a segment whose messages count from `first`."""
        payload = encode_change(partition.snapshot(now_ms).truncated(first))
        batch = encode_state(Kind.CHECKPOINT, first, now_ms, payload, partition.last_crc)
        engine = self._engine(partition)
        size = engine.append(partition.lane, partition.last_crc, [batch])
        partition.last_crc = batch.header.crc
        segments = partition.segments
        if segments and segments[-1].base == first:
            segments.pop()  # it had no messages and is replaced
        elif segments:
            segments[-1].end(partition.segment_bytes)
        segments.append(Extent(first, now_ms))
        partition.segment_bytes = size
        partition.checkpoint_bytes = partition.snapshot_at = len(batch.raw)
        partition.state_bytes = 0
        partition.replays = 0
        partition.behind = False

    def _trim_memory(self, partition: Partition) -> None:
        """What all groups of a topic in memory have finished is gone."""
        groups = partition.topic.groups.values()
        if groups:
            floor = min(group.backlogs[partition.index].floor() for group in groups)
            partition.first = max(partition.first, floor)
            self.trim(partition)


def _forget_extents(partition: Partition) -> None:
    segments = partition.segments
    while len(segments) > 1 and segments[1].base <= partition.first:
        del segments[0]
