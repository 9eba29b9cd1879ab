"""What is stored of a backlog: its exceptions as entries (`zbus.core.cursor.state`).

`changes` gives what became different since the last call, in a form that `apply` takes back.
Recovery is nothing else.

Tests: `tests/core/cursor/test_backlog.py`.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.return_order import ReturnOrder
from zbus.core.cursor.state import NO_ENTRIES, Entries, EntryState, GroupChange
from zbus.core.timing.delays import NOTHING, Columns


def changes(backlog: Backlog, name: str, incarnation: int = 0) -> GroupChange:
    """What became different since the last call."""
    touched, backlog.touched = backlog.touched, {}
    if backlog.reset:
        backlog.reset = False
        return attrs.evolve(snapshot(backlog, name, incarnation), reset=True)
    if not touched:
        return _change(backlog, name, incarnation, NO_ENTRIES, NOTHING)
    offsets: Collection[int] = touched
    delayed, attempts = NOTHING, backlog.attempts
    if backlog.delayed:
        delayed, others = backlog.delayed.select([o for o in touched if o not in attempts])
        offsets = [offset for offset in touched if offset in others or offset in attempts]
    return _change(backlog, name, incarnation, _entries_of(backlog, offsets), delayed)


def snapshot(backlog: Backlog, name: str, incarnation: int = 0) -> GroupChange:
    """All there is, as a change from nothing."""
    delayed = backlog.delayed.columns()
    return _change(backlog, name, incarnation, _all_entries(backlog), delayed)


def _change(
    backlog: Backlog, name: str, number: int, entries: Entries, delayed: Columns
) -> GroupChange:
    change = GroupChange(name, backlog.cursor, entries=entries, delayed=delayed)
    change.skipped, change.unreported, change.dead = (
        backlog.skipped,
        backlog.unreported,
        backlog.dead,
    )
    change.incarnation = number
    return change


def apply(backlog: Backlog, change: GroupChange) -> None:
    """Take over the result of `changes` or `snapshot`."""
    backlog.take_over(change.cursor, change.reset)
    backlog.skipped = change.skipped
    backlog.unreported = change.unreported
    backlog.dead = change.dead
    if change.delayed:
        _apply_delayed(backlog, change.delayed)
    for offset, state, time_ms, attempts, rank in change.entries.rows():
        apply_entry(backlog, offset, state, time_ms, attempts, rank)


def _apply_delayed(backlog: Backlog, delayed: Columns) -> None:
    if backlog.places or backlog.leased or backlog.attempts:
        for offset in delayed.offsets():
            backlog.forget(offset)
            backlog.attempts.pop(offset, None)
    backlog.delayed.load(delayed)
    backlog.ahead.update(delayed.offsets(backlog.cursor))


def apply_entry(
    backlog: Backlog, offset: int, state: int, time_ms: int, attempts: int, rank: int
) -> None:
    backlog.forget(offset)
    if offset >= backlog.cursor:
        backlog.ahead.add(offset)
    if attempts:
        backlog.attempts[offset] = attempts
    else:
        backlog.attempts.pop(offset, None)
    label = 0  # where it stood, of a double-ended queue
    if state == EntryState.LEASED:
        backlog.leased.set(offset, time_ms)
        label = rank
    elif state == EntryState.DELAYED:
        backlog.delayed.set(offset, time_ms)
    elif state == EntryState.READY:
        backlog.ready.insert(offset, rank)
        label = time_ms
    if label > 0:
        backlog.returns = backlog.returns or ReturnOrder()
        backlog.returns.set(offset, label)
        if state == EntryState.READY:
            backlog.returns.come_back(offset)


def _entries_of(backlog: Backlog, offsets: Collection[int]) -> Entries:
    """Where these are. Those of a state are in their order, which counts among them alone."""
    attempts, places, returns = backlog.attempts, backlog.places, backlog.returns
    entries, number = Entries(), None if returns is None else returns.label_of
    dues, others = backlog.leased.dues, offsets
    if dues and (out := [offset for offset in offsets if offset in dues]):
        counts = [attempts.get(offset, 0) for offset in out]
        labels = None if number is None else map(number, out)
        entries.add_all(EntryState.LEASED, out, counts, map(dues.__getitem__, out), labels)
        if len(out) == len(offsets):
            return entries
        others = [offset for offset in offsets if offset not in dues]
    if not (backlog.delayed or places):
        entries.add_all(EntryState.DONE, others)
        return entries
    for offset in others:
        if (place := places.get(offset)) is not None:
            back = 0 if number is None else number(offset)
            entries.add(offset, EntryState.READY, back, attempts.get(offset, 0), place[0])
        elif (due_ms := backlog.delayed.find(offset)) is not None:
            entries.add(offset, EntryState.DELAYED, due_ms, attempts.get(offset, 0))
        else:
            entries.add(offset, EntryState.DONE)
    return entries


def _all_entries(backlog: Backlog) -> Entries:
    """Where all are that are not in `delayed` alone."""
    attempts, places, returns = backlog.attempts, backlog.places, backlog.returns
    dues, delayed = backlog.leased.dues, backlog.delayed
    if not (places or dues or attempts or backlog.ahead):
        return NO_ENTRIES
    entries, count, ready = Entries(), attempts.get, backlog.ready.all_in_order()
    # To look into `delayed` is dear, and what was tried and is nowhere else is there.
    retried = sorted([o for o in attempts if not (o in dues or o in places)])
    known = (o for o in backlog.ahead if not (o in places or o in dues or o in attempts))
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
