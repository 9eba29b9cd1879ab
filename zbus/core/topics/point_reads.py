"""Looking at stored messages here and there, one after another, from memory or storage.

No consumer reads on from there, so what is read back is not kept with the log: one portion is held,
for as long as the next message is in it. One place is read at a time, however many are asked for.

Tests: `tests/conformance/test_listed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from zbus.core.log import ONE, Found, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, damaged, topic_unknown
from zbus.core.topics.topic import Partition

Place: TypeAlias = "tuple[Partition, int]"
"""Of a message."""

Each: TypeAlias = "Callable[[Partition, Chunk, int], bool]"
"""Called with chunk and row of each message that is there; whether to go on."""

_NEIGHBOURS: Final = Size(bytes_max=64 << 10, count_max=256)
"""Read back at once where the next place is near this one."""

_NEAR: Final = 16
"""Messages. To find a batch takes as long as to unpack some dozens of its messages."""


class PointReads:
    """`done` is called once: with None, or with what stood in the way."""

    __slots__ = ("_at", "_chunks", "_done", "_each", "_going", "_places", "_problem")

    def __init__(
        self, places: Sequence[Place], each: Each, done: Callable[[BrokerError | None], None]
    ) -> None:
        self._places = places
        self._each = each
        self._done = done
        self._at = 0
        self._chunks: tuple[Partition, int, Chunk] | None = None  # read back, of which epoch
        self._problem: BrokerError | None = None
        self._going = False
        self._go_on()

    def _go_on(self) -> None:
        """Look at what is at hand. A call from within is answered by the loop."""
        self._going = True
        while self._problem is None and self._at < len(self._places):
            partition, offset = self._places[self._at]
            if partition.removed:
                self._problem = topic_unknown(partition.topic.name)
            elif partition.fenced is not None:
                self._problem = partition.fenced
            elif not partition.first <= offset < partition.visible:
                self._at += 1  # forgotten since it was chosen
            elif (chunk := self._at_hand(partition, offset)) is not None:
                self._at += 1
                if not self._each(partition, chunk, offset - chunk.first):
                    break
            elif not self._fetch(partition, offset):
                self._going = False
                return
        self._done(self._problem)

    def _at_hand(self, partition: Partition, offset: int) -> Chunk | None:
        if self._chunks is not None:
            home, epoch, chunk = self._chunks
            same = home is partition and epoch == partition.epoch
            if same and chunk.first <= offset < chunk.end:
                return chunk
        return partition.log.find(offset)

    def _fetch(self, partition: Partition, offset: int) -> bool:
        """Have it read back; whether it came at once."""
        epoch, at = partition.epoch, self._at
        home, next_offset = self._places[at + 1] if at + 1 < len(self._places) else (None, 0)
        near = home is partition and 0 < next_offset - offset <= _NEAR
        came = False

        def found(chunk: Found) -> None:
            nonlocal came
            came = True
            if partition.epoch == epoch and not partition.removed:
                if isinstance(chunk, BrokerError):
                    self._problem = chunk
                elif chunk is not None and chunk.first <= offset < chunk.end:
                    self._chunks = partition, epoch, chunk
                elif offset >= partition.first:
                    self._problem = damaged(partition.index, offset)
            if not self._going:
                self._go_on()

        partition.fetch(offset, _NEIGHBOURS if near else ONE, found)
        return came
