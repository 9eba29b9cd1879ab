"""What was read back from storage, beside the recent messages: a group that replays a log takes
nothing of their room, and groups that replay the same stretch share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from zbus.core.message import Message
from zbus.core.recorder import Size
from zbus.core.topic import MESSAGE_BYTES, Partition, size_of

PORTION = Size(bytes_max=128 << 10, count_max=1_000)
"""Read back at once. Its messages are made on the broker's thread in one go, a millisecond or two:
that is what a replay may add to the wait of others. The next portion is asked for meanwhile."""

PORTION_MIN = Size(bytes_max=16 << 10, count_max=128)
PORTION_BACK = Size(bytes_max=1, count_max=16)
"""Where messages were put back or delayed: what is stored next to one is hardly wanted with it."""

_SHARE = 16
"""A portion may take one part in so many of the room that is left: the more readers there are, each
somewhere else, the less each has at hand, before they take it from each other."""


class Portion:
    """Neighbouring messages of one partition."""

    __slots__ = ("end", "first", "messages", "partition", "size_bytes")

    def __init__(self, partition: Partition, first: int, messages: Sequence[Message]) -> None:
        self.partition = partition
        self.first = first
        self.end = first + len(messages)
        self.messages = messages
        self.size_bytes = size_of(messages)


class History:
    """All portions, at most `bytes_max` of them but always the last. What all readers have passed
    goes first, then what came first."""

    __slots__ = ("_portions", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._portions: OrderedDict[Portion, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._portions)

    @property
    def crowded(self) -> bool:
        """There is no room for what nobody waits for yet."""
        return self.bytes_used > self.bytes_max - self.bytes_max // 4

    def portion(self, partition: Partition) -> Size:
        """What is to be read back of it at once now."""
        if self.crowded:
            self._drop_passed(partition)
        if not self.crowded:
            return PORTION
        share_bytes = max(0, self.bytes_max - self.bytes_used) // _SHARE
        count = min(max(share_bytes // MESSAGE_BYTES, PORTION_MIN.count_max), PORTION.count_max)
        return Size(min(max(share_bytes, PORTION_MIN.bytes_max), PORTION.bytes_max), count)

    def admit(self, partition: Partition, first: int, messages: Sequence[Message]) -> None:
        """Keep `messages`, whose offsets count up from `first`."""
        self._drop_passed(partition)
        if self.crowded and self._portions:
            # It may be of a partition that nobody reads any more.
            self._drop_passed(next(iter(self._portions)).partition)
        portion = Portion(partition, first, messages)
        at_hand = partition.cache
        for offset, message in enumerate(messages, first):
            at_hand.setdefault(offset, message)  # a recent one keeps its own time
        self._portions[portion] = None
        partition.read_back.append(portion)
        self.bytes_used += portion.size_bytes
        self._shrink(self.bytes_max)

    def give_way(self) -> None:
        """Memory is short: a quarter goes."""
        self._shrink(self.bytes_used - self.bytes_used // 4)

    def _shrink(self, bytes_max: int) -> None:
        while self.bytes_used > bytes_max and len(self._portions) > 1:
            self._drop(next(iter(self._portions)))

    def _drop_passed(self, partition: Partition) -> None:
        if partition.read_back:
            places = partition.readers_at()
            for portion in [p for p in partition.read_back if p.end <= min(places, default=p.end)]:
                self._drop(portion)

    def _drop(self, portion: Portion) -> None:
        del self._portions[portion]
        self.bytes_used -= portion.size_bytes
        partition = portion.partition
        partition.read_back.remove(portion)
        at_hand = partition.cache
        for offset, message in enumerate(portion.messages, portion.first):
            if at_hand.get(offset) is message:
                del at_hand[offset]
