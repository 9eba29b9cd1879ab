"""Deliveries of a partition, one or many as one change: acknowledged, given back, extended."""

from __future__ import annotations

from collections.abc import Sequence

from zbus.core.dispatch import Dispatch
from zbus.core.errors import BrokerError, Refusal
from zbus.core.ticket import Ticket
from zbus.core.topic import Group, Partition

Ranges = Sequence[range]
"""Offsets; how many is for whoever asks to bound."""


def ack(
    dispatch: Dispatch, ticket: Ticket, group: Group, partition: Partition, ranges: Ranges
) -> None:
    """`Broker.ack`."""
    backlog = group.backlogs[partition.index]
    first, recovered = partition.first, partition.recovered
    for offsets in ranges:
        for offset in offsets:
            if offset in backlog.attempts or first <= offset < recovered:
                backlog.finish(offset)
    dispatch.tick.change(partition, group)
    if group.waiting:
        dispatch.activate(group)  # the window opened
    dispatch.tick.confirm(partition, ticket)


def nack(
    dispatch: Dispatch,
    ticket: Ticket,
    group: Group,
    partition: Partition,
    ranges: Ranges,
    front: bool,
    due_ms: int,
) -> int:
    """`Broker.nack`."""
    backlog = group.backlogs[partition.index]
    later = due_ms > dispatch.tick.now_ms
    leased = _leased(ticket, group, partition, ranges)
    # What is put in front last is the first.
    for offset in reversed(leased) if front and not later else leased:
        if later:
            backlog.delay(offset, due_ms)
        elif front:
            backlog.put_front(offset)
        else:
            backlog.put_end(offset, partition.end)
    if leased:
        _changed(dispatch, ticket, group, partition)
    return len(leased)


def extend(
    dispatch: Dispatch,
    ticket: Ticket,
    group: Group,
    partition: Partition,
    ranges: Ranges,
    deadline_ms: int,
) -> int:
    """`Broker.extend`."""
    leased = _leased(ticket, group, partition, ranges)
    for offset in leased:
        group.backlogs[partition.index].extend(offset, deadline_ms)
    if leased:
        _changed(dispatch, ticket, group, partition)
    return len(leased)


def _leased(ticket: Ticket, group: Group, partition: Partition, ranges: Ranges) -> list[int]:
    """Those that are; if none is, the ticket is told."""
    backlog = group.backlogs[partition.index]
    wanted = dict.fromkeys(offset for offsets in ranges for offset in offsets)
    leased = [offset for offset in wanted if offset in backlog.leased]
    if not leased:
        text = f"offset {next(iter(wanted), 0)} is not leased"
        if len(wanted) > 1:
            text = f"none of these {len(wanted)} offsets is leased"
        ticket.settle(BrokerError(Refusal.OFFSET_UNKNOWN, text))
    return leased


def _changed(dispatch: Dispatch, ticket: Ticket, group: Group, partition: Partition) -> None:
    dispatch.schedule(group, partition.index)
    dispatch.tick.change(partition, group)
    dispatch.activate(group)
    dispatch.tick.confirm(partition, ticket)
