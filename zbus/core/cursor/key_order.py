"""Order per key: among those who read with one group, messages of a key go to one at a time.

A key is *busy* in a partition while a message of it is delivered and not finished: leased, or
given back and on its way to be delivered again. Until then no other message of the key is handed
out, except in the same batch, in order. What comes up meanwhile is *parked*: it is taken out of the
cursor's way, so that messages of other keys flow on. The lowest of what waits goes first, so a
message that was given back comes before those that came after it, however long it waits itself.

For storage a parked message is READY, in the place that it came from: nothing else is written of
it. A restart, a seek or a copy know nothing of parking. What a group has delivered they do know
(`Backlog.attempts`), but not its keys: after a restart these are `unknown`, and nothing of the
partition is delivered before they were read.

The backlog tells which offsets changed, and they are looked at when the next message is asked for.
So it does not matter here what ended a lease: where an offset is now, the backlog knows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable
from typing import Final, Protocol, TypeAlias

from zbus.core.model.chunk import Chunk

PARKED_MAX: Final = 10_000
"""Messages parked in a partition. With more, its cursor waits until some key is free."""


Offsets: TypeAlias = "tuple[int, ...] | list[int]"
"""In ascending order. A tuple has one at most: most keys need no list."""


class Parked(Protocol):
    """What is READY behind the cursor of a backlog."""

    def unpark(self, offset: int) -> None:
        """It may be delivered, if it was parked."""


class Parks(Protocol):
    """What is to be known of a backlog."""

    @property
    def ready(self) -> Parked: ...

    @property
    def attempts(self) -> Container[int]:
        """What was delivered and is not finished."""

    @property
    def leased(self) -> Container[int]:
        """What of that is delivered now."""

    @property
    def places(self) -> Container[int]:
        """What is READY behind the cursor."""

    def park(self, offset: int) -> None:
        """Do not hand it out, though it is READY."""


class KeyQueue:
    """What is known of one busy key. Nearly all have one message leased and none that waits, and
    there may be a million: both are small, and in ascending order."""

    __slots__ = ("batch", "key", "leased", "waiting")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.leased: Offsets = ()
        self.batch = 0  # that in which they were delivered
        self.waiting: Offsets = ()  # parked, given back, or the next

    def admits(self, offset: int, batch: int) -> bool:
        """The message may be delivered in this batch."""
        waiting = self.waiting
        return (not self.leased or self.batch == batch) and (not waiting or offset <= waiting[0])


def _with(offsets: Offsets, offset: int) -> Offsets:
    """This one is among them."""
    if not offsets:
        return (offset,)
    if isinstance(offsets, tuple):
        offsets = list(offsets)
    insort(offsets, offset)
    return offsets


def _without(offsets: Offsets, offset: int) -> Offsets:
    """This one, which is among them, is no more."""
    if isinstance(offsets, tuple):
        return ()
    del offsets[bisect_left(offsets, offset)]
    return offsets


def _has(offsets: Offsets, offset: int) -> bool:
    at = bisect_left(offsets, offset)
    return at < len(offsets) and offsets[at] == offset


class KeyLocks:
    """The busy keys of a group in one partition, and the messages that wait for each."""

    __slots__ = ("_changed", "_line_of", "_lines", "batch", "unknown")

    name: Final = "key"

    def __init__(self, handed_out: Iterable[int]) -> None:
        """Of what is delivered already, the keys are to be told: `learn`."""
        self.unknown = sorted(handed_out, reverse=True)
        self.batch = 0  # the number of the one that is being made
        self._lines: dict[bytes, KeyQueue] = {}  # by key
        self._line_of: dict[int, KeyQueue] = {}  # by offset: all that is leased or waits there
        self._changed: dict[int, None] = {}

    # -- what the backlog tells -----------------------------------------------------------

    def touch(self, offset: int) -> None:
        """Something became of it."""
        if offset in self._line_of:
            self._changed[offset] = None

    def touch_all(self) -> None:
        """Something may have become of everything."""
        self._changed = dict.fromkeys(self._line_of)

    # -- what dispatch asks ---------------------------------------------------------------

    def settle(self, backlog: Parks) -> None:
        """Take over what changed: keys become free, and what waits for them moves on."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        for offset in changed:
            if offset in backlog.leased:
                continue
            line = self._line_of[offset]
            if _has(line.leased, offset):
                line.leased = _without(line.leased, offset)
                if offset in backlog.attempts:
                    line.waiting = _with(line.waiting, offset)
                else:
                    del self._line_of[offset]
            elif offset not in backlog.attempts and offset not in backlog.places:
                line.waiting = _without(line.waiting, offset)
                del self._line_of[offset]
            if line.leased:
                continue
            if line.waiting:
                backlog.ready.unpark(line.waiting[0])
            else:
                self._lines.pop(line.key, None)

    def learn(self, backlog: Parks, key: bytes) -> None:
        """The last of the unknown has this key."""
        offset = self.unknown.pop()
        if not key or offset not in backlog.attempts:
            return
        line = self._line(key)
        self._line_of[offset] = line
        if offset in backlog.leased:
            line.leased = _with(line.leased, offset)
        else:
            line.waiting = _with(line.waiting, offset)

    def next(self, backlog: Parks) -> int | None:
        """What goes next of all that is parked: nothing, while its key is busy."""
        return None

    def admits(self, backlog: Parks, offset: int, chunk: Chunk, at: int) -> bool:
        """The message is delivered in the batch that is being made; else it is parked."""
        key = chunk.key_of(at)
        if not key:
            return True
        line, waiting = self._line(key), offset in self._line_of
        self._line_of[offset] = line
        if not line.admits(offset, self.batch):
            backlog.park(offset)
            if not waiting:
                line.waiting = _with(line.waiting, offset)
            return False
        line.batch = self.batch
        line.leased = _with(line.leased, offset)
        if waiting:
            line.waiting = _without(line.waiting, offset)
        if line.waiting:
            backlog.ready.unpark(line.waiting[0])  # it may come along
        return True

    def admits_alone(self, backlog: Parks, offset: int, chunk: Chunk, at: int) -> bool:
        """The same for a batch of one that the cursor is at, where nothing is parked; but nothing
        is changed if it has to wait."""
        self.settle(backlog)
        if self.unknown or chunk.key_of(at) in self._lines:
            return False
        self.batch += 1
        return self.admits(backlog, offset, chunk, at)

    def waits_for(self, backlog: Parks, offset: int, key: bytes) -> int | None:
        """The message of its key that has to be finished before it; None if there is none."""
        self.settle(backlog)
        line = self._lines.get(key)
        if line is None or _has(line.leased, offset):
            return None
        if line.leased:
            return line.leased[0]
        return line.waiting[0] if line.waiting[0] < offset else None

    def _line(self, key: bytes) -> KeyQueue:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = KeyQueue(key)
        return line

    def check(self, backlog: Parks, parked: set[int], settling: Container[int]) -> None:
        """Assert the invariants. A redriven message waits, leased to no client."""
        followed: set[int] = set()
        for key, line in self._lines.items():
            assert key == line.key
            assert line.leased or line.waiting, "a free key is kept"
            for offsets in (line.leased, line.waiting):
                assert list(offsets) == sorted(set(offsets))
            assert set(line.leased).isdisjoint(line.waiting)
            assert all(offset in backlog.leased for offset in line.leased)
            assert not any(o in backlog.leased and o not in settling for o in line.waiting)
            assert line.leased or line.waiting[0] not in parked, "nothing will wake the key"
            followed |= {*line.leased, *line.waiting}
        assert followed == set(self._line_of)
        assert parked <= followed
