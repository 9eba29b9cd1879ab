"""What became of messages in a group, kept for a while after they are finished.

A backlog forgets a message with the step that finishes it: that is why a log read in order costs
nothing. A topic with `settled_ms` has its groups remember how each ended, when, and at which
attempt, for questions of operators (`zbus.core.diagnosis.why`). It is a help for people and no
part of delivery: what is past its time, or too much, goes, and nothing depends on it.

What a turn finished has the time of the turn that writes it down, as messages have the time of the
turn that stores them: so no time is asked for where messages are finished.
"""

from __future__ import annotations

import enum
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

import attrs

COUNT_MAX: Final = 100_000
"""Messages of one group and partition; past it the oldest go before their time."""

_EXPIRES_MIN: Final = 16
"""Looked at for their time whenever something is written down, and twice as many as that is: so
what is remembered shrinks, and no turn has to forget all of it."""


class Disposition(enum.IntEnum):
    """How a message ended in a group. Stored: never renumber."""

    DONE = 1  # acknowledged, or handed to a group that acknowledges on delivery
    DEAD = 2  # given up after too many attempts
    DELETED = 3  # by a request
    EXPIRED = 4  # its time to live was over before it could be delivered
    FILTERED = 5  # the group's filter passed over it


class Ending(NamedTuple):
    """What became of one message."""

    fate: Disposition
    time_ms: int
    attempts: int  # times it had been delivered under a lease


@attrs.define
class Endings:
    """What became of messages in columns, as it is stored."""

    offsets: array[int] = attrs.Factory(partial(array, "Q"))
    times: array[int] = attrs.Factory(partial(array, "Q"))  # milliseconds
    attempts: array[int] = attrs.Factory(partial(array, "I"))
    fates: bytearray = attrs.Factory(bytearray)

    def __len__(self) -> int:
        return len(self.fates)

    def add(self, offset: int, time_ms: int, attempts: int, fate: int) -> None:
        """Add one."""
        self.offsets.append(offset)
        self.times.append(time_ms)
        self.attempts.append(attempts)
        self.fates.append(fate)

    def rows(self) -> Iterable[tuple[int, int, int, int]]:
        """Offset, time, attempts and fate of each, without an object."""
        return zip(self.offsets, self.times, self.attempts, self.fates, strict=True)


NO_ENDINGS: Final = Endings()
"""Stays empty."""

FORGOTTEN: Final = 255
"""In place of a fate: what was said of the message counts no more. Stored, but in no checkpoint."""

_Row = tuple[int, int, int]  # time, attempts, fate


class Dispositions:
    """What a group remembers of one partition, the oldest first."""

    __slots__ = ("_fresh", "_known")

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Row] = OrderedDict()
        self._fresh: dict[int, tuple[int, int]] = {}  # attempts and fate; not written down yet

    def note(self, offset: int, fate: Disposition, attempts: int) -> None:
        """A message is finished."""
        self._fresh[offset] = attempts, fate

    def note_all(self, offsets: range, fate: Disposition, but: Collection[int] = ()) -> None:
        """All in a range are that were not before; none was delivered under a lease."""
        ended, others = (0, fate), set(but)
        self._fresh.update({offset: ended for offset in offsets if offset not in others})

    def forget(self, offset: int) -> bool:
        """Forget how a message ended; whether that was known."""
        fresh = self._fresh.pop(offset, None)
        if offset in self._known:
            self._fresh[offset] = 0, FORGOTTEN
            return fresh is None or fresh[1] != FORGOTTEN
        return fresh is not None

    def find(self, offset: int, now_ms: int, kept_ms: int) -> Ending | None:
        """What became of a message, if that is not forgotten."""
        if (fresh := self._fresh.get(offset)) is not None:
            return (
                None if fresh[1] == FORGOTTEN else Ending(Disposition(fresh[1]), now_ms, fresh[0])
            )
        row = self._known.get(offset)
        if row is None or row[0] + kept_ms <= now_ms:
            return None
        return Ending(Disposition(row[2]), row[0], row[1])

    def take(self, now_ms: int, kept_ms: int) -> Endings:
        """What is new since the last call; it is as old as this turn."""
        fresh, self._fresh = self._fresh, {}
        if not fresh:
            return NO_ENDINGS
        endings = Endings()
        for offset, (attempts, fate) in fresh.items():
            endings.add(offset, now_ms, attempts, fate)
        self.apply(endings)
        self._expire(now_ms - kept_ms, 2 * len(fresh) + _EXPIRES_MIN)
        return endings

    def snapshot(self, now_ms: int, kept_ms: int) -> Endings:
        """All there is."""
        self.take(now_ms, kept_ms)
        self._expire(now_ms - kept_ms, len(self._known))
        endings = Endings()
        for offset, (time_ms, attempts, fate) in self._known.items():
            endings.add(offset, time_ms, attempts, fate)
        return endings or NO_ENDINGS

    def apply(self, endings: Endings) -> None:
        """Take over the result of `take` or `snapshot`."""
        known = self._known
        for offset, time_ms, attempts, fate in endings.rows():
            if fate == FORGOTTEN:
                known.pop(offset, None)
            else:
                known[offset] = time_ms, attempts, fate
                known.move_to_end(offset)
        while len(known) > COUNT_MAX:
            known.popitem(last=False)

    def lowest(self, before_ms: int) -> int | None:
        """The lowest offset of what ended after that; all that ended before is forgotten."""
        self._expire(before_ms, len(self._known))
        return min((*self._known, *self._fresh), default=None)

    def oldest_ms(self) -> int | None:
        """When the first of all ended."""
        return next((row[0] for row in self._known.values()), None)

    def _expire(self, before_ms: int, count_max: int) -> None:
        known = self._known
        for _ in range(count_max):
            if not known or next(iter(known.values()))[0] > before_ms:
                return
            known.popitem(last=False)
