"""Ranges of offsets, held against what a group has still to do.

A range may name ten thousand offsets of which three are open: so it is never walked unless that is
the shorter way, and what is done for it depends on what it changes.

Tests: `tests/core/delivery/test_settle.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from zbus.core.cursor.backlog import Backlog
from zbus.core.model.dispositions import Disposition

Ranges: TypeAlias = "Sequence[range]"
"""Offsets; how many is for the caller to bound."""


def within(offsets: range, known: Collection[int]) -> list[int]:
    """Which of the known are in a range, in ascending order."""
    if len(offsets) < len(known):
        return [offset for offset in offsets if offset in known]
    return sorted([offset for offset in known if offset in offsets])


def known_of(ranges: Ranges, known: Collection[int]) -> list[int]:
    """Which of the known are in ranges, in their order. Scattered offsets, each a range, must not
    cost much more than a look each."""
    if not known:
        return []
    found: list[int] = []
    for offsets in ranges:
        if len(offsets) != 1:
            found += within(offsets, known)
        elif offsets.start in known:
            found.append(offsets.start)
    return found


def distinct(ranges: Ranges) -> int:
    """How many offsets there are in ranges, some of which may overlap."""
    count = end = 0
    for offsets in sorted(ranges, key=lambda offsets: offsets.start):
        count += max(0, offsets.stop - max(end, offsets.start))
        end = max(end, offsets.stop)
    return count


def finish_tried(backlog: Backlog, ranges: Ranges) -> int:
    """Finish those that were delivered at some time; how many were not finished."""
    return _finish(backlog, known_of(ranges, backlog.attempts))


def delete_all(backlog: Backlog, offsets: range, forget: bool) -> int:
    """Finish every one, and perhaps forget how all of them were; how many that made different."""
    fates = backlog.fates
    if fates is None or not forget:
        return finish_all(backlog, offsets, Disposition.DELETED)
    known = [fates.forget(offset) for offset in offsets]
    count = finish_all(backlog, offsets, Disposition.DELETED)
    for offset in offsets:
        fates.forget(offset)
    return sum(known) + count


def finish_all(backlog: Backlog, offsets: range, fate: Disposition = Disposition.DONE) -> int:
    """Finish every one; how many were not finished. The cursor jumps over what it has come to, and
    that costs nothing."""
    if len(offsets) == 1 and offsets.start != backlog.cursor:
        return int(backlog.finish(offsets.start, fate))
    exceptions = within(offsets, backlog.places) + within(offsets, backlog.leased)
    count = _finish(backlog, sorted(exceptions + backlog.delayed.within(offsets)), fate)
    cursor = backlog.cursor
    if offsets.stop <= cursor:
        return count
    if offsets.start > cursor:
        ahead = backlog.ahead
        return count + _finish(backlog, [o for o in offsets if o not in ahead], fate)
    passed = within(range(cursor, offsets.stop), backlog.ahead)
    if backlog.fates is not None:
        backlog.fates.note_all(range(cursor, offsets.stop), fate, but=passed)
    backlog.ahead.difference_update(passed)
    backlog.cursor = offsets.stop
    return count + offsets.stop - cursor - len(passed)


def _finish(backlog: Backlog, offsets: list[int], fate: Disposition = Disposition.DONE) -> int:
    return sum([backlog.finish(offset, fate) for offset in offsets])
