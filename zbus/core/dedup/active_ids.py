"""Which ids are taken in a topic with `dedupe_live`: those of messages that are not finished.

Which message has an id is said here; whether that one is finished, `zbus.core.topics.ids_in_use`
finds out. As in `zbus.core.dedup.window`, an entry is made from nothing but the stored message:
recovery makes the same entries from the same bytes. Of several messages with one id the newest
counts.

An entry takes about 150 bytes of memory, and 24 of a checkpoint.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs

from zbus.core.dedup.window import NAME_BYTES, id_name
from zbus.core.model.chunk import Chunk


@attrs.define
class IdColumns:
    """All entries, as they are stored."""

    names: bytes = b""  # NAME_BYTES each
    offsets: array[int] = attrs.Factory(partial(array, "Q"))

    def __len__(self) -> int:
        return len(self.offsets)

    def rows(self) -> Iterator[tuple[bytes, int]]:
        """Name and offset of each."""
        names = self.names
        for at, offset in enumerate(self.offsets):
            yield names[at * NAME_BYTES : (at + 1) * NAME_BYTES], offset

    def truncated(self, end: int) -> IdColumns:
        """Those of offsets before this one."""
        if max(self.offsets, default=-1) < end:
            return self
        rows = [(name, offset) for name, offset in self.rows() if offset < end]
        names = b"".join([name for name, _ in rows])
        return IdColumns(names, array("Q", [offset for _, offset in rows]))


NO_IDS: Final = IdColumns()
"""Stays empty."""


class ActiveIds:
    """The entries of one partition."""

    __slots__ = ("_known", "_queue", "_staged")

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

    def sweep(self, gone: Callable[[int], bool], looks: int) -> None:
        """Look at that many of the oldest entries, and forget those of which this is true."""
        known, queue = self._known, self._queue
        for _ in range(min(looks, len(queue))):
            name = queue.popleft()
            offset = known.get(name)
            if offset is None:
                continue
            if gone(offset):
                del known[name]
            else:
                queue.append(name)

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
