"""The log of a partition as the broker sees it: chunks at hand, and how to get the others.

What was just written stays at hand as it was staged. What is read back from storage is a place of
its own in the same budget, so that live readers and replays do not push each other out of memory:
the oldest recent chunk goes for a new recent one, and what was read back goes for what is read
back. Groups that replay the same stretch share it, and a sequential reader finds the next
stretch on its way already.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeAlias

from zbus.core.model.chunk import MESSAGE_BYTES, Chunk
from zbus.core.model.errors import BrokerError, damaged, offset_outside, offset_unknown

Found: TypeAlias = "Chunk | BrokerError | None"
"""None: nothing is stored from there on."""


class Size(NamedTuple):
    """Of what is read back at once."""

    bytes_max: int
    count_max: int


class Home(Protocol):
    """What a log has to know of its partition."""

    index: int
    first: int
    visible: int
    fenced: BrokerError | None
    epoch: int
    log: Log

    def readers_at(self) -> list[int]:
        """Where it is being read."""

    def fetch(self, offset: int, portion: Size, done: Callable[[Found], None]) -> None:
        """Read what is stored from an offset on; it may come late."""


PORTION = Size(bytes_max=128 << 10, count_max=1_000)
"""Read back at once. It is taken apart on the broker's thread in one go, and that is what a replay
may add to the wait of others. The next portion is asked for meanwhile."""

PORTION_BACK = Size(bytes_max=1, count_max=16)
"""Of what was put back or delayed: what is stored next to it is hardly wanted with it,
unless that was put back, too."""

PORTION_MIN = Size(bytes_max=16 << 10, count_max=128)
_SHARE = 16
"""A portion may take one part in this many of the room that is left: the more readers there are,
each somewhere else, the less each has at hand, before they take it from each other."""

GROWS_TO = Size(bytes_max=64 << 10, count_max=256)
"""A turn with few messages adds them to the chunk before, so that none has the lists of a chunk to
itself."""

ONE = Size(bytes_max=1, count_max=1)

_first = attrgetter("first")

Fetched = Callable[[Chunk | BrokerError | None], None]
"""Called with the chunk that holds what was wanted: memory may have let it go before the reader has
its turn, but it can be read in this one. Or with the reason why it cannot be read; None = it is to
be looked for again."""


_Waiting = dict[Hashable, tuple[int, Fetched]]
"""By reader: for which offset, and how to tell."""


class Memory:
    """What all logs of a broker have at hand, and how much that may be in bytes."""

    __slots__ = (
        "_recent",
        "_replayed",
        "gone",
        "recent_bytes",
        "recent_max",
        "replayed_bytes",
        "replayed_max",
    )

    def __init__(self, recent_bytes_max: int, replayed_bytes_max: int) -> None:
        self.recent_max = recent_bytes_max
        self.replayed_max = replayed_bytes_max
        self.recent_bytes = 0
        self.replayed_bytes = 0
        self._recent: deque[tuple[Log, Chunk]] = deque()
        self._replayed: OrderedDict[Chunk, Log] = OrderedDict()
        self.gone: list[Chunk] = []  # let go of in this turn

    @property
    def bytes_used(self) -> int:
        return self.recent_bytes + self.replayed_bytes

    @property
    def crowded(self) -> bool:
        """There is no room for reading ahead."""
        return self.replayed_bytes > self.replayed_max - self.replayed_max // 4

    def portion(self, log: Log) -> Size:
        """What is to be read back of this log at once now."""
        if self.crowded:
            log.drop_passed()
        if not self.crowded:
            return PORTION
        share_bytes = max(0, self.replayed_max - self.replayed_bytes) // _SHARE
        count = min(max(share_bytes // MESSAGE_BYTES, PORTION_MIN.count_max), PORTION.count_max)
        return Size(min(max(share_bytes, PORTION_MIN.bytes_max), PORTION.bytes_max), count)

    def give_way(self) -> None:
        """Memory is short: a quarter goes."""
        self._shrink_recent(self.recent_bytes - self.recent_bytes // 4)
        self._shrink_replayed(self.replayed_bytes - self.replayed_bytes // 4)

    def give_all(self, below_bytes: int) -> None:
        """All goes, if it is less than that."""
        if self.bytes_used < below_bytes:
            self._shrink_recent(0)
            self._shrink_replayed(0)

    def keep_recent(self, log: Log, chunk: Chunk) -> None:
        self._recent.append((log, chunk))
        self.grow(chunk.held_bytes)

    def grow(self, size_bytes: int) -> None:
        self.recent_bytes += size_bytes
        if self.recent_bytes > self.recent_max:
            self._shrink_recent(self.recent_max)

    def keep_replayed(self, log: Log, chunk: Chunk) -> None:
        self._replayed[chunk] = log
        self.replayed_bytes += chunk.held_bytes
        self._shrink_replayed(self.replayed_max)

    def make_room(self, log: Log) -> None:
        """Before something is read back: what all readers have passed goes first."""
        log.drop_passed()
        if self.crowded and self._replayed:
            # It may be of a log that no consumer reads any more.
            next(iter(self._replayed.values())).drop_passed()

    def drop(self, log: Log, chunk: Chunk) -> None:
        """A chunk that was read back is not needed any more."""
        del self._replayed[chunk]
        self.replayed_bytes -= chunk.held_bytes
        log.let_go(chunk)

    def sweep(self) -> None:
        """End of a turn: all rows of dropped chunks that were delivered have been read. A reader
        that remembers where it was may still hold the chunk, and finds it empty."""
        gone, self.gone = self.gone, []
        for chunk in gone:
            chunk.clear()

    def _shrink_recent(self, bytes_max: int) -> None:
        while self.recent_bytes > bytes_max and len(self._recent) > 1:
            log, chunk = self._recent.popleft()
            self.recent_bytes -= chunk.held_bytes
            log.let_go(chunk)

    def _shrink_replayed(self, bytes_max: int) -> None:
        while self.replayed_bytes > bytes_max and len(self._replayed) > 1:
            chunk, log = next(iter(self._replayed.items()))
            self.drop(log, chunk)


class Log:
    """`chunks` are at hand: disjoint, by offset."""

    __slots__ = ("_memory", "_partition", "_reads", "chunks")

    def __init__(self, partition: Home, memory: Memory) -> None:
        self._partition = partition
        self._memory = memory
        self.chunks: list[Chunk] = []
        # By offset, what is being read back: how many messages at most, and who waits for it.
        self._reads: dict[int, tuple[int, _Waiting]] = {}

    def find(self, offset: int) -> Chunk | None:
        """The chunk that holds an offset, if it is at hand."""
        chunks = self.chunks
        if not chunks:
            return None
        chunk = chunks[-1]
        if offset < chunk.first:
            at = bisect_right(chunks, offset, key=_first) - 1
            if at < 0:
                return None
            chunk = chunks[at]
        return chunk if offset < chunk.first + len(chunk.bodies) else None

    def append(self, chunk: Chunk) -> None:
        """Keep what was just written, and takes `stored_bytes` in storage."""
        chunk.held_bytes = size = len(chunk.bodies) * MESSAGE_BYTES + chunk.stored_bytes
        chunks, memory = self.chunks, self._memory
        if chunks and (last := chunks[-1]).recent and last.end == chunk.first:
            fits = last.held_bytes + size <= GROWS_TO.bytes_max
            if fits and len(last.bodies) + len(chunk.bodies) <= GROWS_TO.count_max:
                last.extend(chunk)
                last.held_bytes += size
                memory.grow(size)
                return
        chunk.recent = True
        chunks.append(chunk)
        memory.keep_recent(self, chunk)

    def let_go(self, chunk: Chunk) -> None:
        """The memory has dropped a chunk."""
        at = bisect_right(self.chunks, chunk.first, key=_first) - 1
        assert self.chunks[at] is chunk
        del self.chunks[at]
        self._memory.gone.append(chunk)

    def drop_passed(self) -> None:
        """Let go of what was read back and all readers have passed."""
        replayed = [chunk for chunk in self.chunks if not chunk.recent]
        if replayed:
            places = self._partition.readers_at()
            for chunk in replayed:
                if chunk.end <= min(places, default=chunk.end):
                    self._memory.drop(self, chunk)

    # -- reading back ---------------------------------------------------------------------

    def fetch(self, offset: int, reader: Hashable, done: Fetched, back: int = 0) -> None:
        """Have it read back; the reader looks again when `done` is called, perhaps at once. A
        reader waits for one offset at a time. `back`: that many messages from it on were put back,
        and what follows them is not wanted."""
        for begin, (count_max, waiting) in self._reads.items():
            if begin <= offset < begin + count_max:
                waiting[reader] = (offset, done)
                return
        portion = PORTION_BACK if back == 1 else self._memory.portion(self)
        if back > 1:
            portion = Size(portion.bytes_max, min(portion.count_max, back))
        self._read(offset, portion, {reader: (offset, done)}, alone=back > 0)

    def awaits(self, reader: Hashable) -> bool:
        """Whether the reader waits for something to be read."""
        return any(reader in waiting for _, waiting in self._reads.values())

    def read_on(self, chunk: Chunk) -> None:
        """A reader has come to a chunk that was read back, and will want the next: ask for it now.
        So at most one chunk is ahead of a reader."""
        end = chunk.end
        if chunk.followed or end >= self._partition.visible or self._memory.crowded:
            return
        if self.find(end) is None and end not in self._reads:
            chunk.followed = True
            self._read(end, self._memory.portion(self), {})

    def _read(self, offset: int, portion: Size, waiting: _Waiting, alone: bool = False) -> None:
        partition = self._partition
        self._reads[offset] = (portion.count_max, waiting)

        def done(found: Chunk | BrokerError | None) -> None:
            del self._reads[offset]
            if partition.log is not self:  # it was read again meanwhile: look there
                for _, give in waiting.values():
                    give(None)
                return
            problem = found if isinstance(found, BrokerError) else None
            if isinstance(found, Chunk):
                found.followed = alone
                self._keep(found)
            if problem is None and offset >= partition.first and not _begins(found, offset):
                # To look for it again, and again, would not help.
                problem = damaged(partition.index, offset)
            # Found for all before one is told: it may read on, and push it out for the others.
            found_for = [(give, wanted, self.find(wanted)) for wanted, give in waiting.values()]
            for give, wanted, chunk in found_for:
                give(problem if problem and wanted == offset else chunk)

        partition.fetch(offset, portion, done)

    def _keep(self, chunk: Chunk) -> None:
        """Keep what was read back, as far as it is not at hand already."""
        self._memory.make_room(self)
        chunks = self.chunks
        at = bisect_right(chunks, chunk.first, key=_first)
        start = max(0, chunks[at - 1].end - chunk.first) if at else 0
        stop = len(chunk.bodies)
        if at < len(chunks):
            stop = min(stop, chunks[at].first - chunk.first)
        if start >= stop:
            return
        if stop - start < len(chunk.bodies):
            part = chunk.part(start, stop)
            part.followed = chunk.followed
            chunk = part
        chunk.held_bytes = chunk.size_bytes()
        chunks.insert(at, chunk)
        self._memory.keep_replayed(self, chunk)

    # -- single places --------------------------------------------------------------------

    def get(self, offset: int, done: Callable[[tuple[Chunk, int] | BrokerError], None]) -> None:
        """The message at an offset: its chunk, and its row there."""
        partition = self._partition
        if partition.fenced is not None:
            done(partition.fenced)
            return
        if offset < partition.first:
            done(offset_outside(partition.index, partition.first, partition.visible))
            return
        if offset >= partition.visible:
            done(offset_unknown(offset))
            return
        chunk = self.find(offset)
        if chunk is not None:
            done((chunk, offset - chunk.first))
            return

        epoch = partition.epoch

        def got(found: Chunk | BrokerError | None) -> None:
            if partition.epoch != epoch:  # it is read again, or was: look there
                partition.log.get(offset, done)
            elif isinstance(found, BrokerError):
                done(found)
            elif found is not None and found.first <= offset < found.end:
                done((found, offset - found.first))
            elif offset < partition.first:
                done(offset_outside(partition.index, partition.first, partition.visible))
            else:
                done(offset_unknown(offset))

        partition.fetch(offset, ONE, got)

    def find_time(self, time_ms: int, done: Callable[[int | BrokerError], None]) -> None:
        """The offset of the first message produced at or after a time, the end of the log if there
        is none. Produced times never fall along a log."""
        _TimeSearch(self, self._partition, time_ms, done)

    def check(self) -> None:
        """Assert the invariants."""
        ends = [0]
        for chunk in self.chunks:
            assert chunk.bodies, "an empty chunk is at hand"
            assert chunk.first >= ends[-1], "chunks overlap"
            ends.append(chunk.end)
            chunk.check()


class _TimeSearch:
    """A binary search that goes on when its reads come."""

    def __init__(
        self,
        log: Log,
        partition: Home,
        time_ms: int,
        done: Callable[[int | BrokerError], None],
    ) -> None:
        self._log = log
        self._partition = partition
        self._time_ms = time_ms
        self._done = done
        self._low = partition.first  # everything before it is older
        self._high = partition.visible  # it, and everything after it, is not
        self._step()

    def _step(self) -> None:
        if self._low >= self._high:
            self._done(self._low)
            return
        self._middle = (self._low + self._high) // 2
        self._log.get(self._middle, self._found)

    def _found(self, found: tuple[Chunk, int] | BrokerError) -> None:
        if isinstance(found, BrokerError):
            if self._middle >= self._partition.first:
                self._done(found)
                return
            self._low = self._partition.first  # forgotten meanwhile
        elif found[0].time_of(found[1]) < self._time_ms:
            self._low = self._middle + 1
        else:
            self._high = self._middle
        self._step()


def _begins(found: Chunk | BrokerError | None, offset: int) -> bool:
    return isinstance(found, Chunk) and found.first <= offset < found.end
