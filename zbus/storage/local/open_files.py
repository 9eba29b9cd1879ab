"""Which lanes have their newest segment open for writing: the most recently written ones.

There may be more lanes than descriptors, so a lane opens its segment when it writes and the least
used one gives way. What a closed file still has to have synced is synced by its path.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from zbus.storage.local.files import Files, OpenMode
from zbus.storage.port import JournalFull

OPEN_SEGMENTS_MAX: Final = 1_000
IDLE_MS: Final = 30_000


class Holder(Protocol):
    """A lane that writes, of those that may have an open segment."""

    used_ms: int

    def let_go(self) -> bool:
        """Close it; False if the descriptor is only free after a sync."""

    def __hash__(self) -> int: ...


class OpenFiles:
    """See above."""

    def __init__(self, files: Files, segments_max: int) -> None:
        self._files = files
        self._segments_max = segments_max
        self._lanes: OrderedDict[Holder, None] = OrderedDict()  # the longest unused first
        self.used: Callable[[Holder], None] = self._lanes.move_to_end

    def open(self, path: Path, mode: OpenMode) -> int:
        """Open a segment, if need be at the price of others. Raises JournalFull or OSError."""
        while len(self._lanes) >= self._segments_max:
            self._close_one()
        try:
            return self._files.open(path, mode)
        except JournalFull:  # it may be the descriptors
            while self._lanes and not self._close_one():
                pass
            return self._files.open(path, mode)

    def hold(self, lane: Holder) -> None:
        """The lane has an open file from now on."""
        self._lanes[lane] = None

    def drop(self, lane: Holder) -> None:
        """The lane has none any more."""
        self._lanes.pop(lane, None)

    def close_idle(self, now_ms: int) -> None:
        """Close what was not written to for a while."""
        while self._lanes and next(iter(self._lanes)).used_ms <= now_ms - IDLE_MS:
            self._close_one()

    def _close_one(self) -> bool:
        """Close the least used; False if its descriptor is only free after a sync."""
        lane, _ = self._lanes.popitem(last=False)
        return lane.let_go()
