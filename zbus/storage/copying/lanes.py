"""Copies logs, whatever keeps them: every batch stays what it is, so its checksum stays as well.

A copy that was interrupted goes on where it ended, and one that is made again takes what is new:
a target's log ends with a batch of the source, and the batches behind that one are copied. A log
whose last batch the source does not have (any more) is copied from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import attrs

from zbus.protocol.places import shard_of
from zbus.storage.format.batch import Batch, BatchHeader, Kind
from zbus.storage.port import JournalDamage, Lane

PORTION_BYTES: Final = 256 << 10
"""Written at once, at least."""


class Position(NamedTuple):
    """A place in a lane, behind a batch."""

    base: int = -1  # the offset with which its segment begins
    size: int = 0  # bytes of this segment up to here
    crc: int = 0  # of the batch

    def behind(self, header: BatchHeader) -> Position:
        """The place behind the next batch."""
        if header.kind is Kind.CHECKPOINT:
            return Position(header.base_offset, header.length, header.crc)
        return Position(self.base, self.size + header.length, header.crc)


class Source(Protocol):
    """Logs that are read. Raises JournalError, JournalDamage or OSError."""

    def lanes(self) -> Mapping[Lane, Position]:
        """All lanes, and where each ends now. It is read up to there."""

    def batches(self, lane: Lane, base: int) -> Iterator[Batch]:
        """Verified batches of a lane, from the segment on that begins at `base`, or the last one
        before it, or the first."""


class Target(Source, Protocol):
    """Logs that are written."""

    def remove(self, lanes: Collection[Lane]) -> None:
        """Forget these."""

    def append(self, lane: Lane, batches: Sequence[Batch]) -> None:
        """Write batches behind all others of a lane. A CHECKPOINT is the first of them, if there is
        one: it begins a segment, and replaces one that begins with the same offset."""

    def flush(self) -> None:
        """Make durable what was written."""


class Shards:
    """Logs of several shards, each of which has the lanes of its topics."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self._parts = parts

    def _part(self, lane: Lane) -> Source:
        return self._parts[shard_of(lane[0], len(self._parts))]

    def lanes(self) -> Mapping[Lane, Position]:
        """Raises JournalDamage for a topic in the wrong shard: it would be read from another."""
        found: dict[Lane, Position] = {}
        for part in self._parts:
            for lane, end in part.lanes().items():
                if self._part(lane) is not part:
                    raise JournalDamage(f"{_name(lane)} is in a shard of other topics")
                found[lane] = end
        return found

    def batches(self, lane: Lane, base: int) -> Iterator[Batch]:
        return self._part(lane).batches(lane, base)


class ShardTargets(Shards):
    """The same, to be written."""

    def __init__(self, parts: Sequence[Target]) -> None:
        super().__init__(parts)
        self._targets = parts

    def _target(self, lane: Lane) -> Target:
        return self._targets[shard_of(lane[0], len(self._targets))]

    def remove(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            self._target(lane).remove([lane])

    def append(self, lane: Lane, batches: Sequence[Batch]) -> None:
        self._target(lane).append(lane, batches)

    def flush(self) -> None:
        for target in self._targets:
            target.flush()


@attrs.define
class Copied:
    """What was done. `kept` are bytes that were there already."""

    partitions: int = 0
    messages: int = 0
    bytes: int = 0
    removed: int = 0  # partitions that the source does not have, or not so


def copy_lanes(
    source: Source,
    wanted: Mapping[Lane, Position],
    target: Target,
    progress: Callable[[int], None],
) -> Copied:
    """Make the target's logs those of the source, which has these lanes. `progress` is called with
    bytes as they are copied."""
    done = Copied()
    there = target.lanes()
    if others := [lane for lane in there if lane not in wanted]:
        target.remove(others)
        done.removed += len(others)
    for lane, end in wanted.items():
        done.partitions += 1
        if there.get(lane) != end:
            _copy_lane(source, target, lane, there.get(lane), done, progress)
    target.flush()
    return done


def _copy_lane(
    source: Source,
    target: Target,
    lane: Lane,
    there: Position | None,
    done: Copied,
    progress: Callable[[int], None],
) -> None:
    batches = source.batches(lane, 0 if there is None else there.base)
    if there is not None and not _skip(batches, there):
        target.remove([lane])
        done.removed += 1
        batches = source.batches(lane, 0)
    portion: list[Batch] = []
    size = 0
    for batch in batches:
        if portion and (size >= PORTION_BYTES or batch.header.kind is Kind.CHECKPOINT):
            target.append(lane, portion)
            portion, size = [], 0
        portion.append(batch)
        size += len(batch.raw)
        done.messages += batch.header.records
        done.bytes += len(batch.raw)
        progress(len(batch.raw))
    if portion:
        target.append(lane, portion)


def _skip(batches: Iterator[Batch], end: Position) -> bool:
    """Go on behind this place; whether there is such a one."""
    place = Position()
    for batch in batches:
        place = place.behind(batch.header)
        if place == end:
            return True
    return False


def compare(
    source: Source,
    wanted: Mapping[Lane, Position],
    target: Source,
    progress: Callable[[int], None],
) -> None:
    """Read all of both, up to where the source's lanes ended. Raises JournalDamage unless the
    target has every batch of the source, and nothing else, but perhaps older segments."""
    there = target.lanes()
    for lane in wanted:
        if lane not in there:
            raise JournalDamage(f"the copy has no {_name(lane)}")
        batches = source.batches(lane, 0)
        first = next(batches)
        copies = target.batches(lane, first.header.base_offset)
        if not any(copy.header == first.header for copy in copies):
            raise JournalDamage(f"the copy of {_name(lane)} lacks its beginning")
        progress(len(first.raw))
        for batch in batches:
            copy = next(copies, None)
            if copy is None or copy.header != batch.header:
                place = f"offset {batch.header.base_offset}"
                raise JournalDamage(f"the copy of {_name(lane)} is another one from {place} on")
            progress(len(batch.raw))
        if next(copies, None) is not None:
            raise JournalDamage(f"the copy of {_name(lane)} is longer than its source")
    if others := there.keys() - wanted.keys():
        raise JournalDamage(f"the copy has {_name(min(others))}, which the source does not have")


def _name(lane: Lane) -> str:
    return f"partition {lane[1]} of {lane[0]}"
