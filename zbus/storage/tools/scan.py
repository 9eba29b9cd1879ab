"""Reading one segment, and finding the way behind what is bad in it.

Every batch is checked: its crc, the chain, its offsets, its payload. Where that fails, the next
batch that can belong there is looked for, so that what lies between is a `Hole` of known bytes and
known offsets. Memory is a window and one batch, however large the segment.

A batch behind a hole must be intact, speak of offsets and times that may come there, and not lie
within the extent that the bad batch's own header claims: bodies may hold anything, batches too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from zbus.storage.format.batch import (
    HEADER_BYTES,
    MAGIC,
    SEARCH_BYTES_MAX,
    Batch,
    BatchHeader,
    Kind,
    decode_chunk,
    inspect_header,
    is_intact,
)
from zbus.storage.format.checkpoint import decode_change
from zbus.storage.local.files import Files
from zbus.storage.local.segment import WINDOW_BYTES, BadBatch, walk
from zbus.storage.port import JournalDamage
from zbus.storage.tools.placeholders import is_loss

OFFSET_MAX: Final = (1 << 63) - 1
LOST_MAX: Final = 1 << 26
"""This many messages a hole may have lost; a batch that is further on belongs to another log."""

_RUNS_MAX: Final = 200  # runs looked back at when choosing between them

Progress = Callable[[int], None]
"""Called with the bytes as they are read."""


class Hole(NamedTuple):
    """Bytes `start` to `stop` of a segment that cannot be served, and the offsets they held."""

    start: int
    stop: int
    first_offset: int
    end_offset: int
    previous_crc: int  # of the good batch before
    next_previous_crc: int | None  # what the good batch behind names as before it; None: no such
    time_ms: int  # what a filling says it is from, so that times stay in order
    reason: str


@attrs.define
class SegmentReport:
    """What one segment file holds."""

    path: Path
    base: int
    bytes: int
    batches: int = 0
    messages: int = 0
    end_offset: int = 0
    first_crc: int | None = None  # of its checkpoint, if that is good
    first_previous_crc: int | None = None  # what that names as before it
    last_crc: int = 0
    last_time_ms: int = 0
    linked: bool = True  # continues the chain of the segment before
    holes: list[Hole] = attrs.Factory(list)
    unfinished: Hole | None = None  # a write that a crash cut short, at the end of the newest
    lost_before: int = 0  # messages that an earlier repair has replaced


class Place(NamedTuple):
    """Where in a lane a walk is."""

    end: int  # the next offset
    crc: int | None  # of the batch before; None: anything may be
    time_ms: int


class _Run(NamedTuple):
    """Batches that are chained to each other."""

    start: int
    stop: int
    header: BatchHeader  # of its first batch
    first: int
    end: int
    time_ms: int  # of its last batch
    batches: int
    is_cut: bool = False  # more is chained to it, and comes again further on


class _Unfit(Exception):
    """An intact batch that cannot stand where it does."""


def _most(runs: list[_Run]) -> deque[_Run]:
    """Of runs in the order of the file, choose those that fit behind each other and hold most."""
    best: list[tuple[int, int]] = []  # batches up to a run, and the run before it
    for number, run in enumerate(runs):
        before = [
            (best[other][0], other)
            for other in range(max(number - _RUNS_MAX, 0), number)
            if runs[other].end <= run.first and runs[other].time_ms <= run.header.time_ms
        ]
        count, previous = max(before, default=(0, -1))
        best.append((count + run.batches, previous))
    chosen: deque[_Run] = deque()
    at = max(range(len(runs)), key=lambda number: best[number][0], default=-1)
    while at >= 0:
        chosen.appendleft(runs[at])
        at = best[at][1]
    return chosen


class Scan:
    """One segment's walk. `upper` is where the next segment begins; None for the newest."""

    def __init__(
        self, files: Files, path: Path, base: int, upper: int | None, progress: Progress
    ) -> None:
        self._files = files
        self._path = path
        self._base = base
        self._newest = upper is None
        self._upper = OFFSET_MAX if upper is None else upper
        self._progress = progress
        self._plan: deque[_Run] = deque()  # what comes behind the next holes, if that is known
        self._saw_whole = False  # a whole batch among bad bytes: no unfinished write

    def run(self, before: Place) -> SegmentReport:
        """Read all of it; `before` is where the segment before ended."""
        self._file = self._files.open(self._path, "read")
        try:
            size = self._files.size(self._file)
            self._report = SegmentReport(self._path, self._base, size)
            self._walk(before, size)
            return self._report
        finally:
            self._files.close(self._file)

    def _walk(self, before: Place, size: int) -> None:
        report = self._report
        place, position, limit = Place(self._base, None, before.time_ms), 0, size
        if size == 0:
            self._hole(0, 0, place, before.crc, None, "the file is empty")
        while position < size:
            position, place, reason = self._good(position, place, limit)
            if not reason and limit == size:
                break
            found = self._search(position, place, size)
            stop, after = (size, None) if found is None else (found.start, found.header)
            limit = found.stop if found is not None and found.is_cut else size
            reason = reason or "what follows is there again further on"
            last_crc = place.crc if position else before.crc
            self._hole(position, stop, place, last_crc, after, reason)
            self._progress(stop - position)
            position = stop
            if after is None:
                break
            place = Place(after.base_offset, after.previous_crc, after.time_ms)
        report.end_offset = place.end
        report.last_crc = place.crc or 0
        report.last_time_ms = place.time_ms

    def _hole(
        self,
        start: int,
        stop: int,
        place: Place,
        last_crc: int | None,
        after: BatchHeader | None,
        reason: str,
    ) -> None:
        end = place.end if after is None else after.base_offset
        follows = None if after is None else after.previous_crc
        time_ms = place.time_ms if after is None else after.time_ms
        hole = Hole(start, stop, place.end, end, last_crc or 0, follows, time_ms, reason)
        if after is None and self._newest and not self._saw_whole:
            self._report.unfinished = hole
        else:
            self._report.holes.append(hole)

    def _good(self, position: int, place: Place, size: int) -> tuple[int, Place, str]:
        """Go on while all is well; give where that ends and why, or no reason."""
        report = self._report
        try:
            for at, header, raw in walk(self._files, self._file, self._path, position, size):
                position = at
                self._check(at, header, raw, place)
                if at == 0:
                    report.first_crc, report.first_previous_crc = header.crc, header.previous_crc
                report.batches += 1
                report.messages += header.records
                if header.kind is Kind.STATE:
                    report.lost_before += is_loss(raw)
                place = Place(header.end_offset, header.crc, max(place.time_ms, header.time_ms))
                position = at + header.length
                self._progress(header.length)
        except BadBatch as bad:
            self._saw_whole = False
            return bad.position, place, bad.reason
        except _Unfit as unfit:
            self._saw_whole = True
            return position, place, str(unfit)
        return position, place, ""

    def _check(self, at: int, header: BatchHeader, raw: bytes, place: Place) -> None:
        if place.crc is not None and header.previous_crc != place.crc:
            raise _Unfit("does not follow the batch before")
        if (header.kind is Kind.CHECKPOINT) != (at == 0):
            raise _Unfit("a segment begins with a checkpoint, and has only that one")
        if header.base_offset != place.end:
            raise _Unfit(f"holds offsets from {header.base_offset}, not from {place.end}")
        if header.end_offset > self._upper:
            raise _Unfit("holds offsets of the next segment")
        try:
            if header.kind is Kind.DATA:
                decode_chunk(Batch(header, raw))
            elif decode_change(raw[HEADER_BYTES:]).topic is None and at == 0:
                raise _Unfit("the checkpoint names no topic")
        except JournalDamage as error:
            raise _Unfit(str(error)) from error

    def _search(self, start: int, place: Place, size: int) -> _Run | None:
        """Find the next batch that can stand behind bad bytes at `start`.

        Candidates form runs, batches chained to each other. A run that goes on to the end is the
        log's own; if there are only others, those are taken that together hold the most.
        """
        while self._plan:
            run = self._plan.popleft()
            if run.start >= start:
                return run
        extent, link = start, -1
        claimed = self._header(start)
        if claimed is not None and place.crc in (None, claimed.previous_crc):
            extent, link = start + claimed.length, claimed.crc
        if extent > size and not self._newest:
            extent = start  # only a write that was cut short may claim more than there is
        runs = self._runs(start, extent, link, place, size)
        if (runs or not self._newest) and start < extent < size and self._header(extent) is None:
            # The claim is false, or what is behind it is damaged, too.
            runs = self._runs(start, start, link, place, size) or runs
        self._plan = _most(runs)
        return self._plan.popleft() if self._plan else None

    def _runs(self, start: int, extent: int, link: int, place: Place, size: int) -> list[_Run]:
        """What lies before `extent` counts only if it is chained to `link`."""
        runs: list[_Run] = []
        budget_bytes = SEARCH_BYTES_MAX
        after = start
        for at in self._magics(start, size):
            header = self._header(at) if at >= after else None
            if header is None or at + header.length > size:
                continue
            if at < extent and header.previous_crc != link:
                continue
            fits = at > 0 and header.kind is not Kind.CHECKPOINT and self._fits(header, place)
            if not fits and ((at - start) & 7 or self._saw_whole or at == start):
                continue
            budget_bytes -= header.length
            if budget_bytes < 0:
                self._saw_whole = True  # as the broker does: refusing is the safe answer
                break
            raw = self._files.read(self._file, header.length, at)
            if not is_intact(raw, 0, header):
                continue
            self._saw_whole = self._saw_whole or not (at - start) & 7
            if fits and self._is_readable(header, raw):
                run = self._follow(at, header, size)
                if run.stop == size or header.previous_crc == link:
                    return [*self._before(run, runs, size), run]
                runs.append(run)
                after = run.stop
        return runs

    def _before(self, last: _Run, runs: list[_Run], size: int) -> Iterator[_Run]:
        """Give what can stand before `last`. A run that goes on with what `last` holds, too, ends
        with the batch that `last` follows: a piece of the file is there twice."""
        for run in runs:
            if run.end > last.first:
                part = self._follow(run.start, run.header, size, last.header.previous_crc)
                run = part._replace(is_cut=True)
            if run.end <= last.first:
                yield run

    def _follow(
        self, start: int, header: BatchHeader, size: int, last_crc: int | None = None
    ) -> _Run:
        """Go on from a batch as long as the chain does, or to the one that has `last_crc`."""
        place = Place(header.base_offset, None, 0)
        stop, count = start, 0
        try:
            for at, found, raw in walk(self._files, self._file, self._path, start, size):
                self._check(at, found, raw, place)
                place = Place(found.end_offset, found.crc, found.time_ms)
                stop, count = at + found.length, count + 1
                if found.crc == last_crc:
                    break
        except (BadBatch, _Unfit):
            pass
        return _Run(start, stop, header, header.base_offset, place.end, place.time_ms, count)

    def _fits(self, header: BatchHeader, place: Place) -> bool:
        return (
            place.end <= header.base_offset <= place.end + LOST_MAX
            and header.end_offset <= self._upper
            and header.time_ms >= place.time_ms
        )

    def _is_readable(self, header: BatchHeader, raw: bytes) -> bool:
        try:
            self._check(-1, header, raw, Place(header.base_offset, None, 0))
        except _Unfit:
            return False
        return True

    def _header(self, position: int) -> BatchHeader | None:
        found = inspect_header(self._files.read(self._file, HEADER_BYTES, position))
        return None if isinstance(found, str) else found

    def _magics(self, position: int, size: int) -> Iterator[int]:
        """Give all places from `position` on where a batch may begin."""
        while position < size:
            window = self._files.read(self._file, WINDOW_BYTES, position)
            at = window.find(MAGIC)
            while at >= 0:
                yield position + at
                at = window.find(MAGIC, at + 1)
            if len(window) < WINDOW_BYTES:
                return
            position += len(window) - len(MAGIC) + 1
