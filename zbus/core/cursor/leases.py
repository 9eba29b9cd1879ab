"""The leases of a backlog that are open: until when, who holds them, and which are being settled.

Who holds a lease is known in memory alone, and so is the limit of attempts that the message has of
its own. A restart forgets both, and leases end by time.

An offset that is *settling* was dead-lettered by its group, and a task that takes more than one
turn decides where it goes. Until then it stays leased, so that no other client gets it:
its lease does not end, is not extended and is not given back. An acknowledgement finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from sys import maxsize
from typing import Final

from zbus.core.timing.deadlines import Deadlines

SETTLE_MS: Final = 1_000
"""A settling task that gave up is tried again after this time."""

_NONE: Final[set[int]] = set()
"""Stays empty: of most backlogs nothing is settling."""


class OpenLeases(Deadlines):
    __slots__ = ("holders", "limits", "places", "settling", "unreported")

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[int, bytes] = {}  # offset -> the session's id
        self.limits: dict[int, int] = {}  # offset -> its own limit of attempts, if it has one
        # Offset -> where it was when it was delivered, if that was not its own place.
        self.places: dict[int, tuple[int, int]] = {}
        self.settling = _NONE
        # Offset -> the part of the broker that has it, before any client has seen it: a delivery
        # that is being written (`zbus.core.delivery.durable`), or a redrive.
        self.unreported: dict[int, object] | None = None

    def discard(self, offset: int) -> bool:
        if self.dues.pop(offset, None) is None:
            return False
        if self.holders:
            self.holders.pop(offset, None)
        if self.limits:
            self.limits.pop(offset, None)
        if self.places:
            self.places.pop(offset, None)
        if self.settling:
            self.settling.discard(offset)
        if self.unreported:
            self.unreported.pop(offset, None)
        return True

    def lengthen(self, offsets: Iterable[int], ms: int) -> list[int]:
        """These end that much later, as far as they are leased; which those are."""
        dues, found = self.dues, []
        before: set[int] = set()
        for offset in offsets:
            due_ms = dues.get(offset)
            if due_ms is not None and offset not in self.settling:
                before.add(due_ms)
                self.set(offset, due_ms + ms)
                found.append(offset)
        for due_ms in before:
            self._lives(due_ms)  # what was leased last is at the end of its queue
        return found

    def ended(self, now_ms: int, count_max: int = maxsize) -> list[int]:
        """Those whose time is over, at most that many, in order. They stay here until it is said
        what becomes of them; of those that are settling, or that no client has seen yet, another
        client says it."""
        due = self.pop_due(now_ms, count_max)
        for offset in due:
            self.set(offset, now_ms + SETTLE_MS)
        if not (self.settling or self.unreported):
            return due
        others = self.settling.union(self.unreported or ())
        return [offset for offset in due if offset not in others]

    def settle_later(self, offset: int) -> None:
        """A task of the broker works on this offset, which is leased."""
        assert offset in self.dues
        if self.settling is _NONE:
            self.settling = set()
        self.settling.add(offset)

    def settle_no_more(self, offset: int) -> None:
        """The task is over: it is leased as any other, until its time is over."""
        if self.settling:
            self.settling.discard(offset)

    def keep(self, offsets: Iterable[int], holder: object) -> None:
        """These, which are leased, are held by a part of the broker itself."""
        self.unreported = self.unreported or {}
        self.unreported.update(dict.fromkeys(offsets, holder))

    def held_by(self, holder: bytes, count_max: int = maxsize) -> list[int]:
        """What a session holds, at most that many, in the order in which it was delivered."""
        settling = self.settling
        found = (o for o, other in self.holders.items() if other == holder and o not in settling)
        return list(islice(found, count_max))

    def check(self) -> None:
        super().check()
        assert not _NONE
        assert self.holders.keys() <= self.dues.keys(), "an offset has a holder and no lease"
        assert self.limits.keys() <= self.dues.keys(), "a limit of what is not leased"
        assert (self.unreported or {}).keys() <= self.dues.keys(), "untold is what is leased"
        assert self.settling <= self.dues.keys(), "what is settling is leased"
