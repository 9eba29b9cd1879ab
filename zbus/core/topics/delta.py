"""What a partition has to tell the journal: the delta of a tick, or a snapshot of all there is.
`zbus.core.topics.recovered` puts them together again.

Tests: `tests/core/test_recovery.py`.
"""

from __future__ import annotations

import attrs

from zbus.core.cursor import journal
from zbus.core.cursor.state import GroupChange, StateChange
from zbus.core.dedup.entries import NO_IDS
from zbus.core.timing.delays import NOTHING
from zbus.core.topics.open_completions import OpenCompletions
from zbus.core.topics.topic import Partition


def snapshot(partition: Partition, now_ms: int = 0) -> StateChange:
    """Everything a checkpoint has to hold."""
    if partition.expiries is not None:  # a message that every group is done with needs none
        partition.expiries.fall_off(max(partition.first, partition.finished() or 0))
    partition.originals.expire(now_ms, partition.topic.options.dedupe_ms)
    topic, index, known = partition.topic, partition.index, partition.completions
    groups = []
    for group in topic.groups.values():
        backlog = group.backlogs[index]
        change = journal.snapshot(backlog, group.name, group.incarnation)
        if backlog.fates is not None:
            fates = backlog.fates.snapshot(now_ms, topic.options.settled_ms)
            change = attrs.evolve(change, fates=fates)
        origin = None if index else group.origin
        groups.append(attrs.evolve(change, options=group.options, origin=origin))
    groups += [
        journal.snapshot(other.backlogs[index], other.name, other.incarnation)
        for other in (topic.departing if index else ())
    ]
    return StateChange(
        topic.options,
        tuple(groups),
        max(partition.first, _purged_to(partition)),
        partition.originals.snapshot(),
        NO_IDS if partition.ids is None else partition.ids.snapshot(),
        NOTHING if partition.expiries is None else partition.expiries.columns(),
        incarnation=topic.incarnation,
        number=0 if index else topic.number,
        emptied=() if index else topic.emptied,
        purges=tuple(partition.purges.items()),
        completions=() if known is None else tuple(known.open.values()),
    )


def _purged_to(partition: Partition) -> int:
    """What is to be stored of it: partition 0 decides, and stores it first."""
    undecided = partition.index > 0 and partition.topic.emptying
    return 0 if undecided else partition.purged_to


def _has_news(completions: OpenCompletions) -> bool:
    return bool(completions.fresh or completions.closed)


def take_changes(partition: Partition, now_ms: int = 0) -> StateChange | None:
    """What this tick changed, and nothing left to tell; None = nothing."""
    if not (
        partition.changed
        or partition.removed_groups
        or partition.topic_changed
        or _purged_to(partition) > partition.first
        or (partition.completions is not None and _has_news(partition.completions))
    ):
        return None
    index, known = partition.index, partition.topic
    decides = (
        index == 0 and known.number > 0 and (partition.removed_groups or partition.topic_changed)
    )
    changes = [GroupChange(name, removed=True) for name in partition.removed_groups]
    for group in partition.changed:
        backlog = group.backlogs[index]
        backlog.dirty = False
        change = journal.changes(backlog, group.name, group.incarnation)
        if backlog.fates is not None:
            endings_of = backlog.fates.snapshot if change.reset else backlog.fates.take
            change = attrs.evolve(change, fates=endings_of(now_ms, known.options.settled_ms))
        if group in partition.options_changed:
            origin = None if index else group.origin
            change = attrs.evolve(change, options=group.options, origin=origin)
        changes.append(change)
    # If a decision is lost, what was before it counts, and as it was then.
    if known.departing and index:
        for other in known.departing:
            backlog = other.backlogs[index]
            if backlog.dirty:
                backlog.dirty = False
                changes.append(journal.changes(backlog, other.name, other.incarnation))
    partition.changed = []
    if partition.removed_groups or partition.options_changed:
        partition.removed_groups = []
        partition.options_changed = {}
    topic = known.options if partition.topic_changed else None
    first = _purged_to(partition) if _purged_to(partition) > partition.first else 0
    purges = tuple(partition.purges.items()) if partition.topic_changed else ()
    partition.topic_changed = False
    completions, completed = (
        ((), ()) if partition.completions is None else partition.completions.take()
    )
    return StateChange(
        topic,
        tuple(changes),
        first,
        number=known.number if decides else 0,
        emptied=known.emptied if decides else (),
        purges=purges,
        completions=completions,
        completed=completed,
    )
