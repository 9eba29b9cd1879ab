"""Putting what is due later so that its groups know of it at once.

Mostly a group learns when a message is due as its cursor comes to it. Then messages that nobody has
asked for yet are handed out in the order of the log, also if they are due in another, and count as
ready before they are. What is put here waits beside the log from the beginning, in every group that
is there: it is handed out in the order in which it becomes due, and counts as what it is. It costs
each of the groups what a delayed message costs (`zbus.core.delays`). Message and place are one
write.
"""

from __future__ import annotations

from zbus.core.chunk import Chunk
from zbus.core.dispatch import Dispatch
from zbus.core.puts import Puts
from zbus.core.ticket import Ticket
from zbus.core.topic import Partition


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
        tick.change(partition, group)
        dispatch.schedule(group, index)
    for offset in later:
        dispatch.following.delay(topic.followed, index, offset, due[offset - staged.first])
