"""What the writer knows of a partition's lane: how it ends, and what its segments hold."""

from __future__ import annotations

from collections.abc import Callable

from zbus.core.topics.topic import Partition

Measure = Callable[[], tuple[int, int]]
"""Bytes of a segment and the time it begins with (epoch milliseconds)."""


class Extent:
    """One stored segment. What only its file can tell is found out when it is asked for first."""

    __slots__ = ("_begun_ms", "_bytes", "_measure", "base")

    def __init__(self, base: int, begun_ms: int = 0, measure: Measure | None = None) -> None:
        self.base = base  # the offset it begins with
        self._begun_ms = begun_ms
        self._bytes = 0
        self._measure = measure

    @property
    def begun_ms(self) -> int:
        """No message before this segment is younger."""
        self._know()
        return self._begun_ms

    @property
    def bytes(self) -> int:
        """Of an ended segment."""
        self._know()
        return self._bytes

    def end(self, bytes: int) -> None:
        """The next segment was begun."""
        self._know()
        self._bytes = bytes

    def _know(self) -> None:
        if self._measure is not None:
            self._bytes, self._begun_ms = self._measure()
            self._measure = None


class LaneState:
    """What is stored of one partition. Only the writer and retention use its fields."""

    __slots__ = (
        "behind",
        "checkpoint_bytes",
        "last_crc",
        "replays",
        "segment_bytes",
        "segments",
        "snapshot_at",
        "state_bytes",
    )

    def __init__(self) -> None:
        self.last_crc = 0
        self.segment_bytes = 0  # of the newest; 0 = nothing is stored yet
        self.checkpoint_bytes = 0  # the last one's size, or a snapshot's
        self.snapshot_at = 0  # the byte of the segment after it
        self.replays = 0  # writes since then
        self.segments: list[Extent] = []  # the oldest first
        self.state_bytes = 0  # stored since the last message
        self.behind = False  # a change found no room: the next write is to tell everything

    def forget_before(self, offset: int) -> None:
        """Segments that end at or before `offset` are gone."""
        segments = self.segments
        while len(segments) > 1 and segments[1].base <= offset:
            del segments[0]


def state_of(partition: Partition) -> LaneState:
    """The state of the partition's lane; a new one if nothing is stored yet."""
    state = partition.stored
    if state is None:
        state = partition.stored = LaneState()
    assert type(state) is LaneState
    return state
