"""Messages of a partition that fit, from the newest or the oldest on, looked for without an index.

A search looks at `SCAN_MAX` messages, or `SCAN_BYTES_MAX` of them, and then says where to go on. Of
all searches together one portion is looked at in a turn, so that other clients wait for no more
than that, however many search. What is read back for it is not kept with the log.

From the newest on, the portion before a place is wanted, and storage reads forwards only: so the
reach of a portion grows and shrinks with the size of the messages.

Tests: `tests/core/verbs/test_search.py`, `tests/conformance/test_search.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import attrs

from zbus.core.log import Found, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, damaged, topic_unknown
from zbus.core.model.filters import Match
from zbus.core.model.ticket import Ticket
from zbus.core.timing.timers import Timers
from zbus.core.topics.outcomes import Searched, Slice
from zbus.core.topics.topic import Partition

SCAN_MAX: Final = 10_000
"""Messages that one search looks at."""

SCAN_BYTES_MAX: Final = 8 << 20
"""Of bodies and headers that one search looks at; the message that passes it is the last."""

FOUND_BYTES_MAX: Final = 1 << 20
"""Likewise, of what it finds."""

PORTION: Final = Size(bytes_max=128 << 10, count_max=500)
"""Looked at in a turn; a single message may be larger."""


@attrs.frozen
class Wanted:
    """What is looked for: a message fits if it fits all that is said. `offset`: where to begin, at
    it or, from the newest on, before it; None = at the end of the log or of the time that is said,
    whichever that order begins with."""

    newest: bool = False
    offset: int | None = None
    since_ms: int = 0  # produced at this time or later
    until_ms: int = 1 << 63  # produced before
    match: Match | None = None  # of the tag
    key: bytes | None = None
    header: tuple[bytes, bytes] | None = None  # name in lower case, a part of the value
    text: bytes = b""  # a part of the body
    count: int = 100
    scan: int = SCAN_MAX

    def fits(self, chunk: Chunk, at: int) -> bool:
        if self.match is not None and not self.match(chunk.tag_of(at)):
            return False
        if self.key is not None and chunk.key_of(at) != self.key:
            return False
        if self.header is not None and not _has(chunk.headers[at], *self.header):
            return False
        return self.text in chunk.bodies[at]


def _has(lines: bytes, name: bytes, value: bytes) -> bool:
    """A header of this name has this value, or has it within."""
    begin = name + b": "
    return begin in lines and any(
        line.startswith(begin) and value in line[len(begin) :] for line in lines.split(b"\r\n")
    )


class Searcher:
    """All searches that go on."""

    def __init__(self, timers: Timers) -> None:
        self._timer = timers.timer(Searcher._look)
        self._next: deque[_Search] = deque()

    def search(self, ticket: Ticket, partition: Partition, wanted: Wanted) -> None:
        """Look for messages; settles with Searched."""
        _Search(self, ticket, partition, wanted)

    def later(self, search: _Search) -> None:
        """It looks at its next portion in a turn of its own."""
        self._next.append(search)
        if self not in self._timer:
            self._timer.set(self, 0)

    def _look(self) -> None:
        search = self._next.popleft()
        if self._next:
            self._timer.set(self, 0)
        search.look()


class _Search:
    def __init__(
        self, searcher: Searcher, ticket: Ticket, partition: Partition, wanted: Wanted
    ) -> None:
        self._searcher = searcher
        self._ticket = ticket
        self._partition = partition
        self._wanted = wanted
        self._at = 0  # the next to look at; from the newest on, the one after it
        self._reach = PORTION.count_max  # messages of the next portion, from the newest on
        self._scanned = 0
        self._bytes_left = SCAN_BYTES_MAX
        self._found_left = FOUND_BYTES_MAX
        self._found: list[Slice] = []
        if wanted.offset is not None:
            self._begin(wanted.offset)
        elif wanted.newest and wanted.until_ms < 1 << 63:
            partition.log.find_time(wanted.until_ms, self._begin)
        elif not wanted.newest and wanted.since_ms:
            partition.log.find_time(wanted.since_ms, self._begin)
        else:
            self._begin(partition.visible if wanted.newest else partition.first)

    def _begin(self, offset: int | BrokerError) -> None:
        if isinstance(offset, BrokerError):
            self._ticket.settle(offset)
        else:
            self._at = offset
            self._searcher.later(self)

    def look(self) -> None:
        """Look at a portion."""
        partition, newest = self._partition, self._wanted.newest
        if partition.removed or partition.fenced is not None:
            self._ticket.settle(partition.fenced or topic_unknown(partition.topic.name))
            return
        self._at = max(partition.first, min(self._at, partition.visible))
        if self._at == (partition.first if newest else partition.visible):
            self._end(None)
            return
        offset = self._at - 1 if newest else self._at
        chunk = partition.log.find(offset)
        if chunk is not None:
            self._scan(chunk)
            return
        count, epoch = PORTION.count_max, partition.epoch
        if newest:
            count = min(self._reach, self._at - partition.first)
            offset = self._at - count

        def read(found: Found) -> None:
            if isinstance(found, BrokerError):
                self._ticket.settle(found)
            elif partition.epoch != epoch or offset < partition.first or partition.removed:
                self._searcher.later(self)  # it is another by now, or forgotten
            elif found is None or found.first > offset:
                self._ticket.settle(damaged(partition.index, offset))
            elif newest and found.end < self._at:  # they are larger than those before
                self._reach = max(1, count // 4)
                self._bytes_left -= PORTION.bytes_max
                self._searcher.later(self)
            else:
                self._scan(found)

        partition.fetch(offset, Size(PORTION.bytes_max, count), read)

    def _scan(self, chunk: Chunk) -> None:
        """Look at what a chunk has of the portion."""
        wanted, first, left = self._wanted, chunk.first, self._bytes_left
        stop = min(len(chunk), self._partition.visible - first)
        at, count = self._at - first, min(PORTION.count_max, wanted.scan - self._scanned)
        rows: Iterable[int] = range(at, min(stop, at + count))
        if wanted.newest:
            rows = range(at - 1, max(-1, at - 1 - count), -1)
        for row in rows:
            time_ms = chunk.time_of(row)
            if time_ms < wanted.since_ms if wanted.newest else time_ms >= wanted.until_ms:
                self._end(None)
                return
            self._at = first + row if wanted.newest else first + row + 1
            self._scanned += 1
            self._bytes_left -= len(chunk.bodies[row]) + len(chunk.headers[row])
            if wanted.since_ms <= time_ms < wanted.until_ms and wanted.fits(chunk, row):
                self._take(chunk, row)
            full = len(self._found) == wanted.count or self._found_left <= 0
            if full or self._bytes_left <= 0 or self._scanned == wanted.scan:
                self._end(self._at)
                return
            if left - self._bytes_left > PORTION.bytes_max:
                break
        self._reach = min(PORTION.count_max, 2 * self._reach)
        self._searcher.later(self)

    def _take(self, chunk: Chunk, row: int) -> None:
        # By itself: the chunk may be emptied, and is larger than what is wanted of it.
        self._found.append(Slice(self._partition.index, chunk.part(row, row + 1), 0, 1))
        self._found_left -= len(chunk.bodies[row]) + len(chunk.headers[row])

    def _end(self, offset: int | None) -> None:
        partition = self._partition
        if offset == (partition.first if self._wanted.newest else partition.visible):
            offset = None
        self._ticket.settle(Searched(partition, self._found, self._scanned, offset))
