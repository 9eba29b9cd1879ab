"""Where groups read: the chunk that holds their next message, at hand or asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from zbus.core.cursor.key_order import KeyLocks
from zbus.core.cursor.priority_order import PriorityOrder
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.topics.topic import Group, Partition


class Prefetch:
    """`activate` is called with a group for which something came."""

    def __init__(self, activate: Callable[[Group], None]) -> None:
        self._activate = activate
        self.failed: list[tuple[Group, BrokerError]] = []  # whose next message cannot be read

    def at_hand(self, group: Group, index: int, partition: Partition, offset: int) -> Chunk | None:
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

    def fetch(self, group: Group, index: int, partition: Partition, offset: int) -> Chunk | None:
        """The same, of one that is not at hand: if storage does not answer at once, it comes."""
        back = group.backlogs[index].back_from(offset)
        partition.log.fetch(offset, group, partial(self._fetched, group, index), back)
        return self.at_hand(group, index, partition, offset)

    def order(
        self, group: Group, index: int, partition: Partition, looks: int
    ) -> tuple[KeyLocks | PriorityOrder | None, int]:
        """Begin a batch where messages have an order, with that many looks at messages; and how
        many are left. None: not all keys that are busy are known yet."""
        backlog = group.backlogs[index]
        order = backlog.order
        if order is None:
            by_key = group.options.order == KeyLocks.name
            order = backlog.order = KeyLocks(backlog.attempts) if by_key else PriorityOrder()
        while isinstance(order, KeyLocks) and order.unknown:
            offset = order.unknown[-1]
            if looks <= 0:
                return None, looks
            looks -= 1
            if offset in backlog.attempts:
                chunk = self.at_hand(group, index, partition, offset)
                chunk = chunk or self.fetch(group, index, partition, offset)
                if chunk is None:
                    return None, looks
                order.learn(backlog, chunk.key_of(offset - chunk.first))
            else:
                order.unknown.pop()
        order.batch += 1
        return order, looks

    def _fetched(self, group: Group, index: int, found: Chunk | BrokerError | None) -> None:
        if isinstance(found, BrokerError):
            # Not now: a pull that is being served may have got some messages already.
            self.failed.append((group, found))
            return
        self._activate(group)
        if found is not None:
            group.chunks[index] = found
            if not found.recent:
                group.topic.partitions[index].log.read_on(found)
