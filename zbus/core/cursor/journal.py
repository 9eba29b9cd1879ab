"""The exceptions of a backlog, and what is stored of them.

`changes` delivers what became different since the last call, in a form (`zbus.core.cursor.state`)
that `apply` takes back. Recovery is nothing else.

Tests: `tests/core/cursor/test_backlog.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from zbus.core.cursor.due_queue import Overdue, Place
from zbus.core.cursor.key_order import KeyLocks
from zbus.core.cursor.leases import OpenLeases
from zbus.core.cursor.ready_queue import ReadyQueue
from zbus.core.cursor.return_order import ReturnOrder
from zbus.core.cursor.state import NO_ENTRIES, Entries, EntryState, GroupChange
from zbus.core.model.dispositions import Disposition, Dispositions
from zbus.core.model.lateness import Lateness
from zbus.core.timing.deadlines import Deadlines
from zbus.core.timing.delays import NOTHING, Columns, Delays


class CursorState(ReadyQueue):
    """Exceptions of a backlog as entries; `zbus.core.cursor.backlog` defines each."""

    __slots__ = (
        "_lowest",
        "_reset",
        "_touched",
        "ahead",
        "attempts",
        "cursor",
        "dead",
        "delayed",
        "dirty",
        "fates",
        "keyed",
        "leased",
        "overdue",
        "returns",
        "skipped",
        "tally",
        "unreported",
        "wake_ms",
    )

    def __init__(self, cursor: int = 0) -> None:
        super().__init__()
        self.cursor = cursor
        self.delayed = Delays()
        self.overdue = Overdue()  # what of `delayed` is due, and not ready yet
        self.leased = OpenLeases()
        self.returns: ReturnOrder | None = None  # of a group whose lost leases go to the front
        self.ahead: set[int] = set()
        self.attempts: dict[int, int] = {}  # offset -> times delivered; exceptions only
        self._touched: dict[int, None] = {}  # what `changes` has to tell of; last changed, last
        self._reset = False
        self._lowest = -1  # nothing unfinished was below it when it was looked for; -1 = not known
        self.skipped = 0  # messages that the log forgot before they were finished
        self.unreported = 0  # those of them that no delivery reported yet
        self.fates: Dispositions | None = None  # what became of messages, if that is kept
        self.dead = 0  # messages that were given up, ever
        self.tally = Lateness()
        self.keyed: KeyLocks | None = None  # of a group with order per key
        self.dirty = False  # the owner's mark: already in this tick's list of changed backlogs
        self.wake_ms = 0  # the owner's mark: when it will call `wake`; 0 = never

    def _note_end(self, offset: int, fate: Disposition) -> None:
        """A message is finished, where it is kept how they end."""
        assert self.fates is not None
        self.fates.note(offset, fate, self.attempts.get(offset, 0))
        if fate is Disposition.DEAD or fate is Disposition.EXPIRED:
            self.tally.ended += 1

    def changes(self, name: str, incarnation: int = 0) -> GroupChange:
        """What became different since the last call."""
        touched, self._touched = self._touched, {}
        if self._reset:
            self._reset = False
            return attrs.evolve(self.snapshot(name, incarnation), reset=True)
        entries = NO_ENTRIES
        delayed = NOTHING
        if touched:
            offsets: Collection[int] = touched
            attempts = self.attempts
            if self.delayed:
                delayed, others = self.delayed.select([o for o in touched if o not in attempts])
                offsets = [offset for offset in touched if offset in others or offset in attempts]
            entries = some_entries(
                offsets, attempts, self.places, self.leased, self.delayed, self.returns
            )
        return self._change(name, incarnation, entries, delayed)

    def snapshot(self, name: str, incarnation: int = 0) -> GroupChange:
        """All there is, as a change from nothing."""
        ahead, attempts, places, leased = self.ahead, self.attempts, self.places, self.leased
        entries, delayed = NO_ENTRIES, self.delayed
        if places or leased or attempts or ahead:
            ready = self._all_in_order()
            entries = all_entries(ahead, attempts, ready, places, leased, delayed, self.returns)
        return self._change(name, incarnation, entries, delayed.columns())

    def _change(self, name: str, number: int, entries: Entries, delayed: Columns) -> GroupChange:
        change = GroupChange(name, self.cursor, entries=entries, delayed=delayed)
        change.skipped, change.unreported, change.dead = self.skipped, self.unreported, self.dead
        change.incarnation = number
        return change

    def apply(self, change: GroupChange) -> None:
        """Take over the result of `changes` or `snapshot`."""
        if change.reset:
            self._clear()
        self.cursor = change.cursor
        self._lowest = -1
        self.skipped = change.skipped
        self.unreported = change.unreported
        self.dead = change.dead
        if self.ahead:
            self.ahead = {offset for offset in self.ahead if offset >= self.cursor}
        if change.delayed:
            self._apply_delayed(change.delayed)
        for offset, state, time_ms, attempts, rank in change.entries.rows():
            self._apply_entry(offset, state, time_ms, attempts, rank)

    def _apply_delayed(self, delayed: Columns) -> None:
        if self.places or self.leased or self.attempts:
            for offset in delayed.offsets():
                self._forget(offset)
                self.attempts.pop(offset, None)
        self.delayed.load(delayed)
        self.ahead.update(delayed.offsets(self.cursor))

    def _apply_entry(self, offset: int, state: int, time_ms: int, attempts: int, rank: int) -> None:
        self._forget(offset)
        if offset >= self.cursor:
            self.ahead.add(offset)
        if attempts:
            self.attempts[offset] = attempts
        else:
            self.attempts.pop(offset, None)
        if state == EntryState.LEASED:
            self.leased.set(offset, time_ms)
            if rank > 0:
                self.returns = self.returns or ReturnOrder()
                self.returns.set(offset, rank)
        elif state == EntryState.DELAYED:
            self.delayed.set(offset, time_ms)
        elif state == EntryState.READY:
            self._insert(offset, rank)
            if time_ms > 0:
                self.returns = self.returns or ReturnOrder()
                self.returns.set(offset, time_ms)
                self.returns.come_back(offset)

    def _forget(self, offset: int) -> bool:
        """Take an offset out of every exception but `ahead`; True if it was in one."""
        if self.returns is not None:
            self.returns.forget(offset)
        return self._leave(offset) or self.leased.discard(offset) or self.delayed.discard(offset)

    def _touch_keyed(self) -> None:
        if self.keyed is not None:
            self.keyed.touch_all()

    def _clear(self) -> None:
        for part in (self._ready, self.places, self.attempts, self._touched):
            part.clear()
        self.returns = None
        self.leased = OpenLeases()  # a holder of the former one sees by this that its lease is over
        self.delayed.clear()
        self.overdue.clear()
        self.ahead.clear()
        if self.fates is not None:
            self.fates = Dispositions()  # what is read again is another story
        self._lowest = -1
        self._touch_keyed()


def some_entries(
    offsets: Collection[int],
    attempts: Mapping[int, int],
    places: Mapping[int, Place],
    leased: Deadlines,
    delayed: Delays,
    returns: ReturnOrder | None = None,
) -> Entries:
    """Where these are. Those of a state are in their order, which counts among them alone."""
    entries, number = Entries(), None if returns is None else returns.label_of
    dues, others = leased.dues, offsets
    if dues and (out := [offset for offset in offsets if offset in dues]):
        counts = [attempts.get(offset, 0) for offset in out]
        labels = None if number is None else map(number, out)
        entries.add_all(EntryState.LEASED, out, counts, map(dues.__getitem__, out), labels)
        if len(out) == len(offsets):
            return entries
        others = [offset for offset in offsets if offset not in dues]
    if not (delayed or places):
        entries.add_all(EntryState.DONE, others)
        return entries
    for offset in others:
        if (place := places.get(offset)) is not None:
            back = 0 if number is None else number(offset)
            entries.add(offset, EntryState.READY, back, attempts.get(offset, 0), place[0])
        elif (due_ms := delayed.find(offset)) is not None:
            entries.add(offset, EntryState.DELAYED, due_ms, attempts.get(offset, 0))
        else:
            entries.add(offset, EntryState.DONE)
    return entries


def all_entries(
    ahead: Collection[int],
    attempts: Mapping[int, int],
    ready: Collection[int],
    places: Mapping[int, Place],
    leased: Deadlines,
    delayed: Delays,
    returns: ReturnOrder | None = None,
) -> Entries:
    """Where all are that are not in `delayed` alone. `ready` is `places`, in order."""
    entries, count = Entries(), attempts.get
    # To look into `delayed` is dear, and what was tried and is nowhere else is there.
    dues = leased.dues
    retried = sorted([o for o in attempts if not (o in dues or o in places)])
    known = (o for o in ahead if not (o in places or o in dues or o in attempts))
    done = sorted([offset for offset in known if offset not in delayed])
    counts, ranks = [count(offset, 0) for offset in ready], [places[offset][0] for offset in ready]
    back = None if returns is None else map(returns.label_of, ready)
    entries.add_all(EntryState.READY, ready, counts, back, ranks)
    counts = [count(offset, 0) for offset in dues]
    out = None if returns is None else map(returns.label_of, dues)
    entries.add_all(EntryState.LEASED, dues, counts, dues.values(), out)
    counts = [attempts[offset] for offset in retried]
    entries.add_all(EntryState.DELAYED, retried, counts, map(delayed.due_of, retried))
    entries.add_all(EntryState.DONE, done)
    return entries
