"""A topic gets more partitions while it is used, and its keys keep their order.

The number of partitions says which one a key belongs to, so most keys move when it grows. What is
put from then on goes to the new place at once, while older messages of the key may wait in the old
one. So a growth draws a *line*: the end of each partition at that moment. Of a partition a group is
given nothing behind the line before it has finished what may be older and of the same key.

Where that is follows from the modulo: a key that is in partition `j` of `new` ones now was in one
of the `old` with the same remainder by their greatest common divisor. Where the number was doubled
that is one partition, and those that were there do not wait at all.

A group has *crossed* a line when it has finished all that is before it. That is not stored: the
cursors tell, so that a group that is new, or reads once more, keeps the order too. What has a place
of its own in time is not waited for: what is delayed, and what was given back to the end.

Tests: `tests/core/topics/test_growth.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import gcd
from typing import Final

import attrs

from zbus.core.cursor.backlog import NO_RANK, Backlog
from zbus.core.cursor.state import TopicOptions
from zbus.core.topics.topic import NO_CHUNK, Group, Partition, Topic

LINES_MAX: Final = 16
"""Lines that some message is still before. Each costs a look at the cursors of every group."""


def with_line(topic: Topic, options: TopicOptions) -> TopicOptions:
    """The options as they are stored. Lines are dropped that nothing is before any more, and all if
    order is not asked for; but the first one stays, as zeros: it says how many partitions there
    were at first."""
    lines, ordered = topic.options.grown or (), options.grown is not None
    if options.partitions > len(topic.partitions):
        lines = (*lines, tuple([partition.end for partition in topic.partitions]))
    elif ordered:
        return attrs.evolve(options, grown=lines)
    firsts = [partition.first for partition in topic.partitions]
    used = [line for line in lines if ordered and any(map(int.__lt__, firsts, line))]
    if lines and used[:1] != [lines[0]]:
        used.insert(0, (0,) * len(lines[0]))
    return attrs.evolve(options, grown=tuple(used))


def cut_lines(options: TopicOptions, ends: Mapping[int, int]) -> TopicOptions:
    """A crash has taken messages that were before a line: what comes in their place is behind it.
    `ends` are by partition."""
    if options.grown == ():
        return options
    lines = [
        [min(at, ends.get(i, at)) for i, at in enumerate(line)] for line in options.grown or ()
    ]
    return attrs.evolve(options, grown=tuple(map(tuple, lines)))


def grow(topic: Topic, count: int) -> None:
    """Give the topic new partitions, which are empty. Every group begins at their first offset."""
    for index in range(len(topic.partitions), count):
        topic.partitions.append(Partition(topic, index))
        for group in topic.groups.values():
            group.backlogs.append(Backlog())
            group.chunks.append(NO_CHUNK)
        for departed in topic.departing:
            departed.backlogs.append(Backlog())


def limits(group: Group) -> list[int]:
    """By partition, the offset that the cursor may not pass yet, `NO_RANK` if there is none; empty
    if all lines are crossed."""
    lines, count = (group.topic.options.grown or ())[group.crossed :], len(group.backlogs)
    while lines and all([_is_done(group, index, at) for index, at in enumerate(lines[0])]):
        group.crossed += 1
        lines = lines[1:]
    if not lines:
        return []
    found = [NO_RANK] * count
    for line, new in zip(lines, [*map(len, lines[1:]), count], strict=True):
        # What waits at an earlier line may hold back what is older still.
        done = [found[i] == NO_RANK and _is_done(group, i, at) for i, at in enumerate(line)]
        step = gcd(len(line), new)
        for index in range(new):
            before = range(index % step, len(line), step)
            if found[index] == NO_RANK and not all([done[i] for i in before if i != index]):
                found[index] = line[index] if index < len(line) else 0
    return found


def _is_done(group: Group, index: int, line: int) -> bool:
    """No message of the partition that is before the line has to be finished first."""
    backlog = group.backlogs[index]
    if backlog.reached() < line:
        return False
    if backlog.floor() >= line:
        return True
    places, leased, attempts = backlog.places, backlog.leased, backlog.attempts
    for offset in chain(places, leased.dues):
        if offset < line:
            place = places.get(offset) or leased.places.get(offset)
            # A key is in order until its message is finished, wherever that was put back.
            tried = group.ordered and attempts.get(offset, 0) > (offset in leased.dues)
            if tried or place is None or place[0] < line:
                return False
    return not (group.ordered and any(o < line and o in backlog.delayed for o in attempts))
