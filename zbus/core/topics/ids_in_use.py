"""Whether an id is taken, in a topic with `dedupe_live`.

A put with a taken id is a duplicate. As soon as the message is finished in every group its id is
free, and the next message may have it. No client is told when that is: an entry
(`zbus.core.dedup.active_ids`) is held against the backlogs when its id is put again or asked for.
So to finish a message costs nothing more.

Entries of what is finished go little by little: each put looks at two of the oldest. That keeps
about twice as many as there are messages to come, and what became of a message can be found by its
id for as long as its groups remember it (`zbus.core.model.dispositions`).

Tests: `tests/core/dedup/test_active_ids.py`.
"""

from __future__ import annotations

import sys
from typing import Final

from zbus.core.model.message_state import MessageState
from zbus.core.topics.topic import Partition

LIVE_IDS_MAX: Final = 1_000_000
"""Entries of one partition; a message that would be one more is refused."""

LOOKS_PER_PUT: Final = 2
"""At old entries, for each new one."""

LOOKS_FOR_ROOM_MAX: Final = 1_000
"""The same, when there are as many as there may be."""

TAKEN: Final = sys.maxsize
"""The standing of what is not finished: later than any end."""


def standing(partition: Partition, now_ms: int, offset: int) -> int:
    """TAKEN: the message is not finished in every group. Else when it was, epoch milliseconds, as
    long as a group remembers that; 0 = no group does, or it is not stored any more. Where there are
    no groups, what is stored is not finished."""
    if offset < partition.first:
        return 0
    topic, index = partition.topic, partition.index
    groups = [group for group in topic.groups.values() if not group.options.unclaimed]
    if not groups:
        return TAKEN
    ended_ms = 0
    for group in groups:
        backlog = group.backlogs[index]
        if backlog.life(offset) is not MessageState.DONE:
            return TAKEN
        if backlog.fates is not None:
            ending = backlog.fates.find(offset, now_ms, topic.options.settled_ms)
            ended_ms = ended_ms if ending is None else max(ended_ms, ending.time_ms)
    return ended_ms


def find(partition: Partition, name: bytes, now_ms: int) -> tuple[int, int]:
    """The standing of the newest message of that name, and its offset."""
    offset = None if partition.ids is None else partition.ids.find(name)
    return (0, 0) if offset is None else (standing(partition, now_ms, offset), offset)


def look(partition: Partition, now_ms: int, looks: int) -> None:
    """Look at that many entries, and forget those that no group or log knows any more."""
    if partition.ids is not None:
        partition.ids.sweep(lambda offset: not standing(partition, now_ms, offset), looks)


def make_room(partition: Partition, now_ms: int, count: int) -> bool:
    """Before that many new entries; whether there is room for them."""
    ids = partition.ids
    assert ids is not None
    look(partition, now_ms, LOOKS_PER_PUT * count)
    if len(ids) + count > LIVE_IDS_MAX:
        look(partition, now_ms, LOOKS_FOR_ROOM_MAX)
    return len(ids) + count <= LIVE_IDS_MAX
