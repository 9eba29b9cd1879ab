"""What is stored of a partition: how its lane ends, and what its segments hold.

Tests: `tests/core/upkeep/test_retention_segments.py`.
"""

from __future__ import annotations

from zbus.storage.segments import Segments, StoredSegment


class StoredLog:
    """Only `zbus.core.persistence` uses its fields."""

    __slots__ = (
        "behind",
        "checkpoint_bytes",
        "last_crc",
        "message_bytes",
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
        self.message_bytes = 0  # of messages, since the broker's start
        self.segments: Segments[StoredSegment] = Segments()
        self.state_bytes = 0  # stored since the last message
        self.behind = False  # a change found no room: the next write is to tell everything
