"""Which ids are in use in a topic with `dedupe_live`: those of messages that are not finished.

A put with an id in use is a duplicate. As soon as the message is finished in every group its id is
free, and the next message may have it. No client is told when that is: an entry is held against the
backlogs when its id is put again or asked for. So to finish a message costs nothing more.

As in `zbus.core.dedup.window`, an entry is made from nothing but the stored message: recovery makes
the same entries from the same bytes. Of several messages with one id the newest counts.

Entries of what is finished go little by little: each put looks at two of the oldest. That keeps
about twice as many as there are messages to come, and what became of a message can be found by its
id for as long as its groups remember it (`zbus.core.model.dispositions`).

An entry takes about 150 bytes of memory, and 24 of a checkpoint.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from zbus.core.dedup.entries import NO_IDS, IdColumns
from zbus.core.dedup.window import id_name
from zbus.core.model.chunk import Chunk

LIVE_IDS_MAX: Final = 1_000_000
"""Entries of one partition; a message that would be one more is refused."""

LOOKS_PER_PUT: Final = 2
"""At old entries, for each new one."""

LOOKS_FOR_ROOM_MAX: Final = 1_000
"""The same, when there are as many as there may be."""

TAKEN: Final = sys.maxsize
"""The standing of what is not finished: later than any end."""

Standing: TypeAlias = "Callable[[int, int], int]"
"""Of the message at an offset, now: TAKEN if it is not finished in every group. Else when it was,
epoch milliseconds, as long as a group remembers that; 0 = no group does, or it is not stored any
more."""


class ActiveIds:
    """The entries of one partition."""

    __slots__ = ("_known", "_queue", "_staged", "standing")

    standing: Standing  # set by the partition that has it

    def __init__(self, columns: IdColumns = NO_IDS) -> None:
        self._known: dict[bytes, int] = dict(columns.rows())  # name -> offset
        # In the order in which they are looked at. A name may be in it twice, or be gone.
        self._queue: deque[bytes] = deque(self._known)
        self._staged: dict[bytes, int] = {}  # put in this turn

    def __len__(self) -> int:
        return len(self._known) + len(self._staged)

    def find(self, name: bytes) -> int | None:
        """The offset of the newest message with this name, finished or not."""
        offset = self._staged.get(name)
        return self._known.get(name) if offset is None else offset

    def look_up(self, name: bytes, now_ms: int) -> tuple[int, int]:
        """The standing of the newest message with this name, and its offset."""
        offset = self.find(name)
        return (0, 0) if offset is None else (self.standing(offset, now_ms), offset)

    def make_room(self, now_ms: int, count: int) -> bool:
        """Before that many new entries; whether there is room for them."""
        self.sweep(now_ms, LOOKS_PER_PUT * count)
        if len(self) + count > LIVE_IDS_MAX:
            self.sweep(now_ms, LOOKS_FOR_ROOM_MAX)
        return len(self) + count <= LIVE_IDS_MAX

    def stage(self, name: bytes, offset: int) -> None:
        """A message was put there, and `note` tells when it is written."""
        self._staged[name] = offset

    def note(self, chunk: Chunk) -> None:
        """Remember messages that are written: those with an id of their own, and without a key."""
        self._staged = {}
        for name, offset in _names(chunk):
            if name not in self._known:
                self._queue.append(name)
            self._known[name] = offset

    def take_back(self, chunk: Chunk) -> None:
        """These found no room, and were never there."""
        for name, _ in _names(chunk):
            if self._known.get(name, -1) >= chunk.first:
                del self._known[name]

    def sweep(self, now_ms: int, looks: int) -> None:
        """Look at that many of the oldest entries, and forget those that no group or log knows."""
        known, queue = self._known, self._queue
        for _ in range(min(looks, len(queue))):
            name = queue.popleft()
            offset = known.get(name)
            if offset is None:
                continue
            if self.standing(offset, now_ms):
                queue.append(name)
            else:
                del known[name]

    def snapshot(self) -> IdColumns:
        """All entries."""
        return IdColumns(b"".join(self._known), array("Q", self._known.values()))

    def check(self) -> None:
        """Assert the invariants."""
        assert self._known.keys() <= set(self._queue), "an entry is never looked at"


def _names(chunk: Chunk) -> Iterator[tuple[bytes, int]]:
    once = chunk.once
    for at, id in enumerate(chunk.ids):
        if id and (once is None or not once[at]):
            yield id_name(id), chunk.first + at
