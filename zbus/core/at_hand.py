"""The chunk in memory that holds a group's next message, if there is one."""

from __future__ import annotations

from zbus.core.chunk import Chunk
from zbus.core.topic import Group, Partition


def at_hand(group: Group, index: int, partition: Partition, offset: int) -> Chunk | None:
    """The chunk that holds an offset. A group mostly goes on where it was."""
    chunk = group.chunks[index]
    if 0 <= offset - chunk.first < len(chunk.bodies):
        return chunk
    log = partition.log
    found = log.find(offset)
    if found is not None:
        group.chunks[index] = found
        if not found.recent:
            log.read_on(found)
    return found
