"""Who has which batch: the queues' locks, by group.

The messages of a batch are leased in the core, where they are safe from other readers, and from
being forgotten. What is here beside that is the dialect's: when the queue was locked, by which
address, and what an acknowledgement of it settles. A restart forgets it, and keeps the leases: then
an acknowledgement settles what is leased of what it names.

A queue is unlocked when its batch is acknowledged or given up, or its time is over: the next
client takes it then. Until that happens, a late acknowledgement counts.
"""

from __future__ import annotations

from typing import Final

from zbus.core.api import Group, LeasedOffsets, Progress

_LOCK_BYTES: Final = 400
_OFFSET_BYTES: Final = 200
_NEVER_MS: Final = 1 << 62


class Lock:
    """A batch that a client holds, or a place that it has to confirm (`forced`)."""

    __slots__ = (
        "_holder",
        "_leased",
        "at_ms",
        "begin",
        "ends_ms",
        "forced",
        "next",
        "offsets",
        "pending",
    )

    def __init__(self, at_ms: int, ends_ms: int) -> None:
        self.at_ms = at_ms
        self.ends_ms = ends_ms
        self.begin = self.next = 0
        self.offsets: dict[int, int] = {}  # and how often each has been delivered
        self._leased: LeasedOffsets | None = None
        self._holder = b""
        self.forced = False
        self.pending = True  # its messages are being read

    def begin_at(self, now_ms: int, ends_ms: int, progress: Progress, holder: bytes) -> None:
        """Its messages were read, which may have taken a while: the client has them from now on."""
        self.at_ms, self.ends_ms = now_ms, ends_ms
        self.pending = False
        self._leased, self._holder = progress.leased, holder

    def open(self, progress: Progress) -> list[int]:
        """What no other client was handed since, by whatever dialect: not settled, and not
        forgotten by a reset. Whether its time is over does not matter."""
        leased, attempts, holder = progress.leased, progress.attempts, self._holder
        if leased is not self._leased:
            return []
        return [
            offset
            for offset, count in self.offsets.items()
            if attempts.get(offset) == count
            and leased.holders.get(offset, holder) == holder
            and offset not in leased.settling
        ]

    @property
    def late_ms(self) -> int:
        """Who is late by as long again as he had is not waited for."""
        return 2 * self.ends_ms - self.at_ms

    def held(self, now_ms: int) -> bool:
        """No other client may have it."""
        return self.pending or now_ms < self.ends_ms


class Queue:
    """What is known of one queue for one group."""

    __slots__ = ("_late_ms", "_ranges_of", "client", "last_ms", "lock", "ranges")

    def __init__(self) -> None:
        self.lock: Lock | None = None
        self.ranges: dict[int, Lock] = {}  # of pop mode, by where they begin; the oldest first
        self._ranges_of: dict[int, Lock] = {}  # by offset
        self._late_ms = _NEVER_MS  # before then no range is too late
        self.last_ms = 0  # it was asked for then
        self.client = ""  # the address that did

    def add_range(self, lock: Lock, now_ms: int) -> None:
        """One more of pop mode. What it has is no other's any more: the others' time was over, or
        the group was reset."""
        if now_ms > self._late_ms:
            for other in [one for one in self.ranges.values() if now_ms > one.late_ms]:
                self.unlock(other)
            self._late_ms = min([one.late_ms for one in self.ranges.values()], default=_NEVER_MS)
        for offset in lock.offsets:
            former = self._ranges_of.get(offset)
            if former is not None:
                del former.offsets[offset]
                if not former.offsets:
                    self.unlock(former)
            self._ranges_of[offset] = lock
        if (former := self.ranges.get(lock.begin)) is not None:
            self.unlock(former)
        self.ranges[lock.begin] = lock
        self._late_ms = min(self._late_ms, lock.late_ms)

    def unlock(self, lock: Lock) -> None:
        """It is settled, or given up."""
        if self.lock is lock:
            self.lock = None
        elif self.ranges.pop(lock.begin, None) is not None:
            for offset in lock.offsets:
                del self._ranges_of[offset]

    def locked_ms(self) -> int:
        """When the oldest of its batches was handed over; 0 = there is none."""
        oldest = self.lock, next(iter(self.ranges.values()), None)
        return min([one.at_ms for one in oldest if one is not None], default=0)

    def locks(self) -> list[Lock]:
        return [*(() if self.lock is None else (self.lock,)), *self.ranges.values()]


class Locks:
    def __init__(self) -> None:
        self._groups: dict[Group, list[Queue]] = {}

    def of(self, group: Group) -> list[Queue]:
        """A group's queues."""
        queues = self._groups.setdefault(group, [])
        queues += [Queue() for _ in group.topic.partitions[len(queues) :]]  # there may be more
        return queues

    def forget_gone(self) -> None:
        """What is known of groups that are no more."""
        for group in filter(is_gone, list(self._groups)):
            del self._groups[group]

    def held_bytes(self) -> int:
        queues = [queue for found in self._groups.values() for queue in found]
        locks = [lock for queue in queues for lock in queue.locks()]
        return sum(_LOCK_BYTES + _OFFSET_BYTES * len(lock.offsets) for lock in locks)


def is_gone(group: Group) -> bool:
    """It was removed, or its topic."""
    return group.gone or group.topic.partitions[0].removed
