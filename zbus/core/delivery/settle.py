"""Deliveries of a partition, one or many as one change: acknowledged, given back, extended.

What a request costs is what it changes: a range is held against what is open, whichever of the two
is smaller, so that `0-9999` of nothing costs nothing.
"""

from __future__ import annotations

from typing import Final

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.ranges import Ranges, distinct, finish_all, finish_tried, known_of
from zbus.core.delivery.retries import GIVEN_BACK, lose_one, may_retry, retry
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.topics.topic import Group, Partition

NOT_LEASED: Final = "is not leased: its lease expired, or it was acknowledged or never delivered"


def ack(runs: RunQueue, ticket: Ticket, group: Group, partition: Partition, ranges: Ranges) -> int:
    """`Broker.ack`."""
    tick, backlog = runs.tick, group.backlogs[partition.index]
    if len(ranges) == 1 and len(ranges[0]) == 1 and ranges[0].start in backlog.attempts:
        count = int(backlog.finish(ranges[0].start))
    else:
        count = _finish(backlog, partition, ranges)
    if count:
        if not backlog.dirty:
            tick.change(partition, group)
        if group.waiting or group.aside is not None:
            runs.activate(group)  # the window opened
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
    runs: RunQueue,
    ticket: Ticket,
    group: Group,
    partition: Partition,
    ranges: Ranges,
    front: bool = True,
    due_ms: int = 0,
) -> int:
    """`Broker.nack`."""
    backlog = group.backlogs[partition.index]
    later = due_ms > runs.tick.now_ms
    leased = _leased(ticket, backlog, ranges)
    retried, limited = False, may_retry(group, backlog, at_once=later)
    # What is put in front last is the first.
    for offset in reversed(leased) if front and not later else leased:
        if limited and retry(runs, group, partition.index, offset, GIVEN_BACK, at_once=later):
            retried = True
        elif later:
            backlog.delay(offset, due_ms)
        elif front:
            backlog.put_front(offset)
        else:
            backlog.put_end(offset, partition.end)
    if leased:
        if retried:
            runs.schedule(group, partition.index)
        elif later:
            runs.schedule_at(group, partition.index, due_ms)
        runs.changed(group, partition)
        runs.tick.confirm(partition, ticket)
    return len(leased)


def undo(runs: RunQueue, group: Group, partition: Partition, offset: int, holder: bytes) -> None:
    """Give back what this session has leased, as if it had never been delivered: it counts as no
    attempt, and the message is where it was."""
    backlog = group.backlogs[partition.index]
    leased = backlog.leased
    if leased.holders.get(offset) == holder and offset not in leased.settling:
        backlog.undo_lease(offset)
        runs.moved(group, partition)
        runs.tick.confirm(partition, Silent())


def lose(runs: RunQueue, group: Group, partition: Partition, offset: int, holder: bytes) -> None:
    """Give back in front what this session has leased, in its order among all that comes back. It
    may have been seen, so it counts as an attempt."""
    leased = group.backlogs[partition.index].leased
    if leased.holders.get(offset) == holder and offset not in leased.settling:
        lose_one(runs, group, partition.index, offset)
        runs.moved(group, partition)
        runs.tick.confirm(partition, Silent())


def extend(
    runs: RunQueue,
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
        runs.schedule_at(group, partition.index, deadline_ms)
        runs.changed(group, partition)
        runs.tick.confirm(partition, ticket)
    return len(leased)


def withdraw(runs: RunQueue, partition: Partition, offset: int) -> None:
    """The caller no longer waits for the outcome of a message: it is not delivered."""
    if partition.removed or partition.fenced is not None or offset >= partition.end:
        return
    for group in partition.topic.groups.values():
        backlog = group.backlogs[partition.index]
        if offset not in backlog.leased and backlog.finish(offset, Disposition.DELETED):
            runs.finished(group, partition)


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
