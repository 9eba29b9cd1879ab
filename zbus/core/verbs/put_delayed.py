"""Putting what is due later so that its groups know of it at once.

Mostly a group learns when a message is due as its cursor comes to it. Then messages that no client
has asked for yet are delivered in the order of the log, also if they are due in another, and count
as ready before they are. What is put here waits beside the log from the beginning, in every group
that is there: it is delivered in the order in which it becomes due, and counts as what it is. It
costs each of the groups what a delayed message costs (`zbus.core.timing.delays`). Message and place
are one write.
"""

from __future__ import annotations

from typing import Final

from zbus.core.delivery.dispatch import Dispatch
from zbus.core.model.chunk import Chunk
from zbus.core.model.ticket import Ticket
from zbus.core.topics.topic import Group, Partition
from zbus.core.verbs.puts import Puts

AHEAD_MAX: Final = 1_000
"""Messages that wait beyond what is ready and that no client asks for. With more, the cursor goes
past some of what is ready, which then costs as much; so a few that are stuck do not hold
millions."""


def put(dispatch: Dispatch, puts: Puts, partition: Partition, chunk: Chunk, ticket: Ticket) -> None:
    """What `Puts.put_once` does, and see above."""
    first, tick = partition.end, dispatch.tick
    puts.put_once(partition, chunk, ticket)
    staged = partition.staged
    if staged is None or staged.due is None:
        return
    due, index, topic = staged.due, partition.index, partition.topic
    later = [o for o in range(first, partition.end) if due[o - staged.first] > tick.now_ms]
    for group in topic.groups.values() if later else ():
        backlog = group.backlogs[index]
        for offset in later:
            backlog.delay(offset, due[offset - staged.first])
        if len(backlog.ahead) > AHEAD_MAX:
            _catch_up(group, partition, tick.now_ms, 2 * len(later))
        tick.change(partition, group)
        dispatch.schedule(group, index)
    for offset in later:
        dispatch.following.delay(topic.followed, index, offset, due[offset - staged.first])


def _catch_up(group: Group, partition: Partition, now_ms: int, count_max: int) -> None:
    """Move the cursor past messages that are ready. They keep their places."""
    backlog = group.backlogs[partition.index]
    for _ in range(count_max):
        offset = backlog.reached()
        chunk = partition.log.find(offset)
        if chunk is None or offset >= partition.visible:
            return
        due_ms = 0 if chunk.due is None else chunk.due[offset - chunk.first]
        if due_ms > now_ms:
            backlog.delay(offset, due_ms)
        else:
            backlog.put_back(offset)
