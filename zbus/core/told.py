"""The exceptions of a backlog as entries: what it tells a journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zbus.core.deadlines import Deadlines
from zbus.core.delays import Delays
from zbus.core.overdue import Place
from zbus.core.state import Entries, EntryState


def some_entries(
    offsets: Collection[int],
    attempts: Mapping[int, int],
    places: Mapping[int, Place],
    leased: Deadlines[int],
    delayed: Delays,
) -> Entries:
    """Where these are, in their order."""
    entries = Entries()
    for offset in offsets:
        count = attempts.get(offset, 0)
        if offset in leased:
            entries.add(offset, EntryState.LEASED, leased.due_of(offset), count)
        elif offset in delayed:
            entries.add(offset, EntryState.DELAYED, delayed.due_of(offset), count)
        elif offset in places:
            entries.add(offset, EntryState.READY, 0, count, places[offset][0])
        else:
            entries.add(offset, EntryState.DONE)
    return entries


def all_entries(
    ahead: Collection[int],
    attempts: Mapping[int, int],
    ready: Collection[int],
    places: Mapping[int, Place],
    leased: Deadlines[int],
    delayed: Delays,
) -> Entries:
    """Where all are that are not in `delayed` alone. `ready` is `places`, in order."""
    entries, count = Entries(), attempts.get
    # To look into `delayed` is dear, and what was tried and is nowhere else is there.
    retried = sorted([o for o in attempts if not (o in places or o in leased)])
    known = (o for o in ahead if not (o in places or o in leased or o in attempts))
    done = sorted([offset for offset in known if offset not in delayed])
    counts, ranks = [count(offset, 0) for offset in ready], [places[offset][0] for offset in ready]
    entries.add_all(EntryState.READY, ready, counts, ranks=ranks)
    counts = [count(offset, 0) for offset in leased]
    entries.add_all(EntryState.LEASED, list(leased), counts, map(leased.due_of, leased))
    counts = [attempts[offset] for offset in retried]
    entries.add_all(EntryState.DELAYED, retried, counts, map(delayed.due_of, retried))
    entries.add_all(EntryState.DONE, done)
    return entries
