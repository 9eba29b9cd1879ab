"""What is stored of keys and ids: entries that name a message by 128 bits.

Tests: `tests/core/dedup/test_active_ids.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import attrs

NAME_BYTES: Final = 16


class Original(NamedTuple):
    """What was stored under a name."""

    name: bytes
    offset: int  # of the first message
    records: int  # from there on
    time_ms: int  # when it was stored
    digest: int  # of what was stored under a key, 64 bits; 0 for an id


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
