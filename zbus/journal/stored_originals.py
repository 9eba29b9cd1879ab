"""How a checkpoint holds what was stored lately (`zbus.core.originals`), in vectors."""

from __future__ import annotations

import struct

from zbus.core.originals import NAME_BYTES, Original
from zbus.journal.errors import JournalDamage

_BYTES = NAME_BYTES + 8 + 8 + 8 + 4  # of each, without padding


def encode_originals(originals: tuple[Original, ...]) -> list[bytes]:
    """Give the vectors, of at least one."""
    count = len(originals)
    names, offsets, counts, times, digests = zip(*originals, strict=True)
    return [
        b"".join(names),
        struct.pack(f"<{count}Q", *offsets),
        struct.pack(f"<{count}Q", *times),
        struct.pack(f"<{count}Q", *digests),
        struct.pack(f"<{count}I", *counts),
        bytes(-4 * count & 7),
    ]


def decode_originals(payload: memoryview, at: int, count: int) -> tuple[tuple[Original, ...], int]:
    """Give the originals and the position after it."""
    after = at + (count * _BYTES + 7 & ~7)
    if after > len(payload):
        raise JournalDamage(f"state: {count} originals are more than the payload holds")
    offsets_at = at + NAME_BYTES * count
    names = bytes(payload[at:offsets_at])
    originals = map(
        Original,
        [names[name_at : name_at + NAME_BYTES] for name_at in range(0, len(names), NAME_BYTES)],
        struct.unpack_from(f"<{count}Q", payload, offsets_at),
        struct.unpack_from(f"<{count}I", payload, offsets_at + 24 * count),
        struct.unpack_from(f"<{count}Q", payload, offsets_at + 8 * count),
        struct.unpack_from(f"<{count}Q", payload, offsets_at + 16 * count),
    )
    return tuple(originals), after
