"""The engine for tests, and for topics that need not outlive the process: everything is in memory.

It keeps the contract to the letter, only that each batch is a segment of its own when it comes to
trimming. Nothing is ever late: `done` callbacks run inside the call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter

from zbus.storage.format.batch import Batch, Kind, read_header, require_link
from zbus.storage.port import (
    CommitDone,
    Found,
    JournalError,
    JournalFull,
    Lane,
    OpenDone,
    ReadDone,
    StoredLane,
    StoredSegment,
    Verdict,
    of_lanes,
)


class _MemoryLane:
    """One lane. `serial` numbers put DATA and state batches back into one order."""

    __slots__ = ("bases", "data", "ends", "last_crc", "serial", "size", "state")

    def __init__(self) -> None:
        self.last_crc = 0
        self.serial = 0
        self.size = 0  # bytes of `data`
        self.state: list[tuple[int, bytes]] = []  # the last checkpoint and what followed it
        self.data: list[tuple[int, bytes]] = []
        self.bases: list[int] = []  # of `data`: first offsets
        self.ends: list[int] = []  # of `data`: offsets after the last


class MemoryJournal:
    """See above."""

    late = False

    def __init__(self, bytes_max: int | None = None) -> None:
        self._lanes: dict[Lane, _MemoryLane] = {}
        self.verdicts: dict[Lane, Verdict] = {}
        self.bytes_max = bytes_max  # of all messages together; None = no limit
        self.bytes_used = 0  # by messages

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        known = self._lanes.get(lane)
        if after != (0 if known is None else known.last_crc):
            self.verdicts[lane] = Verdict.CONFLICT
        if lane in self.verdicts:
            return
        require_link(batches, after)
        if known is None and batches[0].header.kind is not Kind.CHECKPOINT:
            raise JournalError(f"{lane} is new and must begin with a checkpoint")
        size = sum([len(batch.raw) for batch in batches if batch.header.kind is Kind.DATA])
        if size and self.bytes_max is not None and self.bytes_used + size > self.bytes_max:
            raise JournalFull(f"messages in memory take {self.bytes_max} bytes already")
        self.bytes_used += size
        if known is None:
            known = self._lanes[lane] = _MemoryLane()
        known.size += size
        for header, raw in batches:
            known.serial += 1
            if header.kind is Kind.DATA:
                known.data.append((known.serial, raw))
                known.bases.append(header.base_offset)
                known.ends.append(header.end_offset)
            elif header.kind is Kind.STATE:
                known.state.append((known.serial, raw))
            else:
                known.state = [(known.serial, raw)]
        known.last_crc = batches[-1].header.crc

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        done(of_lanes(self.verdicts, lanes))

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        known = self._lanes.get(lane)
        if known is None:
            done(JournalError(f"there is no {lane} to read"))
            return
        first = index = bisect_right(known.ends, offset)
        total = 0
        while index < len(known.data):
            total += len(known.data[index][1])
            if total > bytes_max and index > first:
                break
            index += 1
        done(b"".join([batch for _, batch in known.data[first:index]]))

    def trim(self, lane: Lane, before: int) -> None:
        known = self._lanes.get(lane)
        if known is None:
            return
        # The newest stays: the end of the log must be known, whatever was read.
        count = min(bisect_right(known.ends, before), len(known.data) - 1)
        if count > 0:
            size = sum([len(batch) for _, batch in known.data[:count]])
            self.bytes_used -= size
            known.size -= size
            del known.data[:count], known.bases[:count], known.ends[:count]

    def size_of(self, lane: Lane) -> int:
        """Bytes of its messages."""
        known = self._lanes.get(lane)
        return 0 if known is None else known.size

    def largest(self) -> Lane | None:
        """The lane whose messages take most, of those that `trim` can make smaller."""
        sizes = [(known.size, lane) for lane, known in self._lanes.items() if len(known.data) > 1]
        return max(sizes, default=(0, None), key=itemgetter(0))[1]

    def oldest(self, lane: Lane, size: int) -> int:
        """The offset before which its oldest messages take that much, at least; but the newest
        batch stays."""
        known = self._lanes[lane]
        first = 0
        for (_, raw), end in zip(known.data[:-1], known.ends, strict=False):
            if size <= 0:
                break
            size -= len(raw)
            first = end
        return first

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        for lane in lanes:
            self.verdicts.pop(lane, None)
            known = self._lanes.pop(lane, None)
            self.bytes_used -= 0 if known is None else known.size
        done()

    def open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        for lane in self._lanes | self.verdicts if lanes is None else lanes:
            self.verdicts.pop(lane, None)
            known = self._lanes.get(lane)
            if known is None:
                continue
            checkpoint = known.state[0][0]
            since = [part for part in known.data if part[0] > checkpoint]
            batches = [batch for _, batch in sorted(known.state + since)]
            first_offset = (known.bases or [read_header(known.state[0][1]).base_offset])[0]
            whole = [batch for serial, batch in known.data if serial < checkpoint]
            segments = [_segment(batch) for batch in (*whole, known.state[0][1])]
            found(StoredLane(lane, first_offset, batches, segments=segments))
        done(None)

    def upkeep(self, now_ms: int) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """Nothing to let go of."""


def _segment(batch: bytes) -> StoredSegment:
    header = read_header(batch)
    return StoredSegment(header.base_offset, header.time_ms, len(batch))
