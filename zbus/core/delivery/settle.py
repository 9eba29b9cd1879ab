"""Deliveries of a partition, one or many as one change: acknowledged, given back, extended.

What a request costs is what it changes: a range is held against what is open, whichever of the two
is smaller, so that `0-9999` of nothing costs nothing.
"""

from __future__ import annotations

from typing import Final

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.ranges import Ranges, distinct, finish_all, finish_tried, known_of
from zbus.core.delivery.dispatch import Dispatch
from zbus.core.delivery.retries import GIVEN_BACK, lose_one, may_retry, retry
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.topics.topic import Group, Partition

NOT_LEASED: Final = "is not leased: its lease expired, or it was acknowledged or never delivered"


def ack(
    dispatch: Dispatch, ticket: Ticket, group: Group, partition: Partition, ranges: Ranges
) -> int:
    """`Broker.ack`."""
    tick, backlog = dispatch.tick, group.backlogs[partition.index]
    if len(ranges) == 1 and len(ranges[0]) == 1 and ranges[0].start in backlog.attempts:
        count = int(backlog.finish(ranges[0].start))
    else:
        count = _finish(backlog, partition, ranges)
    if count:
        if not backlog.dirty:
            tick.change(partition, group)
        if group.waiting or group.aside is not None:
            dispatch.activate(group)  # the window opened
    # What is settled already may not be durable yet.
    tick.confirm(partition, ticket)
    return count


def _finish(backlog: Backlog, partition: Partition, ranges: Ranges) -> int:
    """Finish what is leased, or was at some time; how many that made different."""
    first, recovered = partition.first, partition.recovered
    count = 0
    if recovered:
        for offsets in ranges:
            begin, stop = offsets.start, offsets.stop
            if begin < recovered and first < stop:
                count += finish_all(backlog, range(max(begin, first), min(stop, recovered)))
        ranges = [range(max(r.start, recovered), r.stop) for r in ranges if recovered < r.stop]
    return count + finish_tried(backlog, ranges)


def nack(
    dispatch: Dispatch,
    ticket: Ticket,
    group: Group,
    partition: Partition,
    ranges: Ranges,
    front: bool = True,
    due_ms: int = 0,
) -> int:
    """`Broker.nack`."""
    backlog = group.backlogs[partition.index]
    later = due_ms > dispatch.tick.now_ms
    leased = _leased(ticket, backlog, ranges)
    retried, limited = False, may_retry(group, backlog, at_once=later)
    # What is put in front last is the first.
    for offset in reversed(leased) if front and not later else leased:
        if limited and retry(dispatch, group, partition.index, offset, GIVEN_BACK, at_once=later):
            retried = True
        elif later:
            backlog.delay(offset, due_ms)
        elif front:
            backlog.put_front(offset)
        else:
            backlog.put_end(offset, partition.end)
    if leased:
        if retried or (later and not 0 < backlog.wake_ms <= due_ms):
            dispatch.schedule(group, partition.index)
        _changed(dispatch, ticket, group, partition)
    return len(leased)


def undo(
    dispatch: Dispatch, group: Group, partition: Partition, offset: int, holder: bytes
) -> None:
    """Give back what this session has leased, as if it had never been delivered: it counts as no
    attempt, and the message is where it was."""
    backlog = group.backlogs[partition.index]
    leased = backlog.leased
    if leased.holders.get(offset) == holder and offset not in leased.settling:
        backlog.undo_lease(offset)
        dispatch.schedule(group, partition.index)
        _changed(dispatch, Silent(), group, partition)


def lose(
    dispatch: Dispatch, group: Group, partition: Partition, offset: int, holder: bytes
) -> None:
    """Give back in front what this session has leased, in its order among all that comes back. It
    may have been seen, so it counts as an attempt."""
    leased = group.backlogs[partition.index].leased
    if leased.holders.get(offset) == holder and offset not in leased.settling:
        lose_one(dispatch, group, partition.index, offset)
        dispatch.schedule(group, partition.index)
        _changed(dispatch, Silent(), group, partition)


def extend(
    dispatch: Dispatch,
    ticket: Ticket,
    group: Group,
    partition: Partition,
    ranges: Ranges,
    deadline_ms: int,
) -> int:
    """`Broker.extend`."""
    backlog = group.backlogs[partition.index]
    leased = _leased(ticket, backlog, ranges)
    for offset in leased:
        backlog.extend(offset, deadline_ms)
    if leased:
        if not 0 < backlog.wake_ms <= deadline_ms:
            dispatch.schedule(group, partition.index)
        _changed(dispatch, ticket, group, partition)
    return len(leased)


def withdraw(dispatch: Dispatch, partition: Partition, offset: int) -> None:
    """The caller no longer waits for the outcome of a message: it is not delivered."""
    if partition.removed or partition.fenced is not None or offset >= partition.end:
        return
    for group in partition.topic.groups.values():
        backlog = group.backlogs[partition.index]
        if offset not in backlog.leased and backlog.finish(offset, Disposition.DELETED):
            dispatch.tick.change(partition, group)
            if group.ordered:
                dispatch.activate(group)  # its key may be free


def _leased(ticket: Ticket, backlog: Backlog, ranges: Ranges) -> list[int]:
    """Those that are, in the given order; if none is, the ticket gets an error."""
    known = backlog.leased
    if len(ranges) == 1 and len(ranges[0]) == 1:
        offset = ranges[0].start
        if offset in known.dues and offset not in known.settling:
            return [offset]
    found = dict.fromkeys(known_of(ranges, known.dues))
    for offset in known.settling and found.keys() & known.settling:
        del found[offset]
    if not found:
        count = distinct(ranges)
        text = f"offset {ranges[0].start if ranges else 0} {NOT_LEASED}"
        if count > 1:
            text = f"none of these {count} offsets is leased"
        ticket.settle(BrokerError(Refusal.NOT_LEASED, text))
    return list(found)


def _changed(dispatch: Dispatch, ticket: Ticket, group: Group, partition: Partition) -> None:
    if not group.backlogs[partition.index].dirty:
        dispatch.tick.change(partition, group)
    if not group.active:
        dispatch.activate(group)
    dispatch.tick.confirm(partition, ticket)
