"""Messages whose time is over leave their groups by themselves, though no consumer pulls.

The dispatcher passes over what has expired. Where no client asks, such messages would be
counted as ready until a client does. So each partition knows when its messages expire, and finishes
them then, in every group in which they are not leased; those that are, when their lease is over.

What is known is the time of each message that expires, in a few bytes (`zbus.core.timing.delays`),
by the order of the times, so the log is never searched. What expires before an older message is
finished is an exception of its backlog until then. What all groups are done with is forgotten when
a checkpoint is written. A message goes a moment after its time, when many are due within some
turns. A group that is made or moved later and begins before such a message passes over it as it
always did: when a consumer pulls.
"""

from __future__ import annotations

from typing import Final

from zbus.core.commit.tick import EXPIRIES_PER_TURN_MAX
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.message_state import MessageState
from zbus.core.timing.delays import Delays
from zbus.core.timing.timers import Timers
from zbus.core.topics.topic import Group, Partition, Topic

MOMENT_MS: Final = 100
"""This long after the time of a message: what expires within it leaves, and is written,
together."""

LEASED_MS: Final = 1_000
"""What is leased is looked at again that much later: its lease may end before its time."""

SWEPT_AT_ONCE_MAX: Final = 500
"""Messages of one partition in one turn."""


class Expiry:
    def __init__(self, runs: RunQueue, timers: Timers) -> None:
        self._runs = runs
        self._tick = runs.tick
        self._timer = timers.timer(self._sweep, lambda partition: partition)

    def note(self, partition: Partition, chunk: Chunk) -> None:
        """Messages are written of which some expire."""
        if partition.expiries is None:
            partition.expiries = Delays()
        partition.expiries.set_all(chunk.first, chunk.expires or ())
        self.arm(partition)

    def arm(self, partition: Partition) -> None:
        """See to it that the partition is looked at when the next of its messages expires."""
        next_ms = None if partition.expiries is None else partition.expiries.next_due()
        if next_ms is None:
            return
        due_ms, timer = max(next_ms, self._tick.now_ms) + MOMENT_MS, self._timer
        if partition not in timer or due_ms < timer.due_of(partition):
            timer.set(partition, due_ms)

    def drop(self, topic: Topic) -> None:
        """The topic is gone."""
        for partition in topic.partitions:
            self._timer.discard(partition)

    def _sweep(self, partition: Partition) -> None:
        """Finish what has expired, so much of it in a turn that others get their turn."""
        tick, expiries = self._tick, partition.expiries
        if partition.removed or partition.fenced is not None or expiries is None:
            return  # it is read again, and looked at then
        tick.forgotten += 1
        if tick.forgotten > EXPIRIES_PER_TURN_MAX:
            self._timer.set(partition, tick.now_ms)
            return
        changed: dict[Group, None] = {}
        due = expiries.pop_due(tick.now_ms, SWEPT_AT_ONCE_MAX)
        for offset in due:
            again_ms = 0
            if offset >= partition.visible:
                again_ms = tick.now_ms + 1  # it is on its way to the disk
            elif offset >= partition.first:
                again_ms = _expire(partition, offset, changed, tick.now_ms)
            if again_ms:
                expiries.set(offset, again_ms)
        for group in changed:
            self._runs.finished(group, partition)
        if len(due) == SWEPT_AT_ONCE_MAX:
            self._timer.set(partition, tick.now_ms)
        else:
            self.arm(partition)


def _expire(partition: Partition, offset: int, changed: dict[Group, None], now_ms: int) -> int:
    """Finish a message where it is not leased; when to look again, 0 = it is finished."""
    again_ms = 0
    for group in partition.topic.groups.values():
        backlog = group.backlogs[partition.index]
        life = backlog.life(offset)
        if life is MessageState.LEASED:
            again_ms = now_ms + LEASED_MS
        elif life is not MessageState.DONE:
            backlog.finish(offset, Disposition.EXPIRED)
            changed[group] = None
    return again_ms
