"""What a group has delayed, leased or ready, message by message, for people to look at.

The order is that of time, then partition, then offset; what is ready has no time. Who wants more
asks again for what comes after the last one. A request looks at `LOOKS_MAX` messages at most, and
chooses them in steps, so that ten million delayed ones are no long turn for others.

What a group has not come to yet is delayed, too, if it says so itself. To find it the log has to be
read, so that is done for the next `LOOKS_MAX` messages, and told of how many it was not done.

Tests: `tests/conformance/test_listed.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator
from heapq import merge, nsmallest
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import attrs

from zbus.core.cursor.backlog import Backlog
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.model.filters import Match
from zbus.core.model.message_state import MessageState
from zbus.core.timing.delays import PAGE, Delays
from zbus.core.topics.point_reads import Place, PointReads
from zbus.core.topics.topic import Group, Partition

LOOKS_MAX: Final = 1_000
"""Messages that are looked at for one request, and as many again that may be delayed."""

STATES: Final = {
    life.value: life for life in (MessageState.DELAYED, MessageState.LEASED, MessageState.READY)
}

_PAGES_PER_STEP: Final = 200
"""Pages of delayed messages; to look into one takes about a microsecond."""

_LEASES_PER_STEP: Final = 2_000
"""Leases; to look at one takes about half a microsecond."""

Key: TypeAlias = "tuple[int, int, int]"
"""Where in a listing: time, partition, offset."""

FIRST: Final[Key] = (-1, -1, -1)


class Row(NamedTuple):
    """One message of a listing."""

    partition: int
    offset: int
    state: MessageState
    until_ms: int  # due, or when its lease ends; 0 = it is ready
    attempts: int  # times delivered
    holder: bytes  # the session that has it leased; empty if that is not known
    chunk: Chunk
    at: int


@attrs.frozen
class Wanted:
    """What is asked for."""

    state: MessageState
    count: int
    after: Key = FIRST
    key: bytes | None = None
    match: Match | None = None  # of the tag


class Listing:
    """`each` is called with each row, to be read at once, and returns whether there is
    room for more; then `done` is called, perhaps later, with None or with what is in the way."""

    __slots__ = (
        "_candidates",
        "_done",
        "_each",
        "_group",
        "_now_ms",
        "count",
        "last",
        "more",
        "unseen",
        "wanted",
    )

    def __init__(
        self,
        group: Group,
        wanted: Wanted,
        now_ms: int,
        each: Callable[[Row], bool],
        done: Callable[[BrokerError | None], None],
    ) -> None:
        self._group = group
        self._now_ms = now_ms
        self._each = each
        self._done = done
        self._candidates: list[Key] = []
        self.wanted = wanted
        self.count = 0
        self.last = wanted.after  # the last that was looked at
        self.more = False  # there may be some after it
        self.unseen = 0  # messages that may be delayed, and no one has looked

    def steps(self) -> Iterator[int]:
        """Choose what is to be looked at; each step returns its work, in microseconds."""
        match self.wanted.state:
            case MessageState.DELAYED:
                self._candidates = yield from self._delayed()
                self._look_ahead()
            case MessageState.LEASED:
                found = yield from self._leased()
                self._list(found)
            case _:
                self._list(list(islice(self._ready(), LOOKS_MAX + 1)))
        yield 10 + len(self._candidates)

    # -- choosing -------------------------------------------------------------------------

    def _partitions(self) -> list[tuple[Partition, Backlog]]:
        return list(zip(self._group.topic.partitions, self._group.backlogs, strict=True))

    def _delayed(self) -> Generator[int, None, list[Key]]:
        time_ms, partition, offset = self.wanted.after
        found: list[Key] = []
        for index, backlog in enumerate(self._group.backlogs):
            # Of the same time come those of later partitions, and not those of earlier ones.
            after = -1 if index > partition else offset if index == partition else 1 << 63
            places = yield from earliest(backlog.delayed, time_ms, after, LOOKS_MAX + 1)
            found += [(due_ms, index, offset) for due_ms, offset in places]
        return nsmallest(LOOKS_MAX + 1, found)

    def _leased(self) -> Generator[int, None, list[Key]]:
        after = self.wanted.after
        found: list[Key] = []
        for index, backlog in enumerate(self._group.backlogs):
            dues = backlog.leased.dues
            offsets = list(dues)
            for start in range(0, len(offsets), _LEASES_PER_STEP):
                step = [o for o in offsets[start : start + _LEASES_PER_STEP] if o in dues]
                keys = [(dues[offset], index, offset) for offset in step]
                found += [key for key in keys if key > after]
                if len(found) > 4 * LOOKS_MAX:
                    found = nsmallest(LOOKS_MAX + 1, found)
                if start:
                    yield _LEASES_PER_STEP >> 1
        return nsmallest(LOOKS_MAX + 1, found)

    def _ready(self) -> Iterator[Key]:
        _, partition, offset = self.wanted.after
        for one, backlog in self._partitions():
            index = one.index
            first = 0 if index > partition else offset + 1
            if index < partition:
                continue
            back = nsmallest(LOOKS_MAX + 1, [o for o in backlog.places if o >= first])
            ahead = range(max(backlog.cursor, first), one.visible)
            coming = (o for o in ahead if o not in backlog.ahead)
            yield from ((0, index, o) for o in merge(back, coming))

    # -- looking --------------------------------------------------------------------------

    def _look_ahead(self) -> None:
        """Find what is delayed past the cursors."""
        places: list[Place] = []
        for partition, backlog in self._partitions():
            left = range(backlog.cursor, partition.visible)
            room = LOOKS_MAX - len(places)
            chosen = [o for o in left[:room] if o not in backlog.ahead]
            places += [(partition, offset) for offset in chosen]
            self.unseen += max(0, len(left) - room)
        known = self._candidates

        def look(partition: Partition, chunk: Chunk, at: int) -> bool:
            if chunk.due is not None and chunk.due[at] > self._now_ms:
                key = (chunk.due[at], partition.index, chunk.first + at)
                if key > self.wanted.after:
                    known.append(key)
            return True

        def looked(problem: BrokerError | None) -> None:
            if problem is not None:
                self._done(problem)
                return
            # Nothing is listed that comes after what was not chosen.
            cut = len(known) > LOOKS_MAX and known[LOOKS_MAX]
            found = sorted([key for key in known if not cut or key <= cut])
            self._list(found)

        PointReads(places, look, looked)

    def _list(self, keys: list[Key]) -> None:
        self.more = len(keys) > LOOKS_MAX
        self._candidates = keys[:LOOKS_MAX]
        partitions = self._group.topic.partitions
        stopped = False

        def row(partition: Partition, chunk: Chunk, at: int) -> bool:
            nonlocal stopped
            stopped = not self._row(partition, chunk, at)
            return not stopped

        def listed(problem: BrokerError | None) -> None:
            if self._candidates and not stopped:
                self.last = self._candidates[-1]
            self._done(problem)

        PointReads([(partitions[index], o) for _, index, o in self._candidates], row, listed)

    def _life(self, backlog: Backlog, chunk: Chunk, at: int) -> tuple[MessageState, int]:
        """Where a message is, as far as a listing goes, and until when."""
        offset, now_ms = chunk.first + at, self._now_ms
        life = backlog.life(offset)
        if life is MessageState.LEASED:
            return life, backlog.leased.due_of(offset)
        if offset in backlog.delayed:
            return MessageState.DELAYED, backlog.delayed.due_of(offset)
        if life is not MessageState.READY:
            return life, 0
        if offset not in backlog.places:  # the group has not come to it
            if chunk.due is not None and chunk.due[at] > now_ms:
                return MessageState.DELAYED, chunk.due[at]
            if self._group.match is not None and not self._group.match(chunk.tag_of(at)):
                return MessageState.DELETED, 0
        expired = chunk.expires is not None and 0 < chunk.expires[at] <= now_ms
        return MessageState.DELETED if expired else life, 0

    def _row(self, partition: Partition, chunk: Chunk, at: int) -> bool:
        """Tell of a message, if it is wanted and still what it was when it was chosen."""
        wanted, index, offset = self.wanted, partition.index, chunk.first + at
        backlog = self._group.backlogs[index]
        life, until_ms = self._life(backlog, chunk, at)
        key = (until_ms, index, offset)
        fits = life is wanted.state and key > wanted.after
        if fits and wanted.key is not None:
            fits = chunk.keys is not None and chunk.keys[at] == wanted.key
        if fits and wanted.match is not None:
            fits = wanted.match(chunk.tag_of(at))
        if not fits:
            return True
        self.count += 1
        self.last = key
        attempts = backlog.attempts.get(offset, 0)
        holder = holder_of(backlog, offset)
        room = self._each(Row(index, offset, life, until_ms, attempts, holder, chunk, at))
        if room and self.count < wanted.count:
            return True
        self.more = self.more or key != self._candidates[-1]
        return False


def holder_of(backlog: Backlog, offset: int) -> bytes:
    """The session that has a message leased; empty if that is not known."""
    return backlog.leased.holders.get(offset, b"")


def earliest(
    delays: Delays, time_ms: int, after: int, count: int
) -> Generator[int, None, list[tuple[int, int]]]:
    """The first of what is due after a time, or at that time and comes after an offset: due times
    and offsets. In steps, for it looks at every page."""
    found: list[tuple[int, int]] = []
    for step, number in enumerate(delays.numbers(), 1):
        keys = delays.keys_of(number)
        first = number * PAGE
        if first > after:
            start = bisect_left(keys, max(0, time_ms) * PAGE)
        elif first + PAGE <= after:
            start = bisect_left(keys, (time_ms + 1) * PAGE)
        else:
            start = bisect_right(keys, max(0, time_ms) * PAGE + after - first)
        found += [(key // PAGE, first + key % PAGE) for key in keys[start : start + count]]
        if len(found) > 4 * count:
            found = nsmallest(count, found)
        if not step % _PAGES_PER_STEP:
            yield _PAGES_PER_STEP
    return nsmallest(count, found)
