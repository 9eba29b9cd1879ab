"""What there may be millions of in a state, as vectors: see `zbus.journal.checkpoint`.

Each gives or takes bytes of which all parts begin at a multiple of 8. A reader gives the position
after what it read, and checks every count before it makes anything of that size.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Literal, TypeAlias

from zbus.core.delays import Columns
from zbus.core.fates import FORGOTTEN, Endings, Fate
from zbus.core.live_ids import IdColumns
from zbus.core.originals import NAME_BYTES, Original
from zbus.core.state import Entries, EntryState
from zbus.journal.errors import JournalDamage

PADDING = tuple(bytes(-length & 7) for length in range(8))  # by length & 7
_ENTRY_BYTES = 8 + 8 + 8 + 4 + 1  # without padding
_ORIGINAL_BYTES = NAME_BYTES + 8 + 8 + 8 + 4  # likewise

_SWAPPED = sys.byteorder == "big"  # vectors are little-endian

Bytes: TypeAlias = "bytes | bytearray | memoryview | array[int]"


def vector_of(numbers: array[int]) -> array[int]:
    """What holds their bytes, without a copy where that is possible."""
    if _SWAPPED:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


def encode_entries(entries: Entries) -> list[Bytes]:
    count = len(entries)
    return [
        vector_of(entries.offsets),
        vector_of(entries.times),
        vector_of(entries.ranks),
        vector_of(entries.attempts),
        PADDING[4 * count & 7],
        entries.states,
        PADDING[count & 7],
    ]


def encode_endings(fates: Endings) -> list[Bytes]:
    vectors = [vector_of(fates.offsets), vector_of(fates.times), vector_of(fates.attempts)]
    return [*vectors, PADDING[4 * len(fates) & 7], fates.fates, PADDING[len(fates) & 7]]


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
        PADDING[4 * count & 7],
    ]


def _numbers(vector: memoryview, kind: Literal["Q", "q", "I"] = "Q") -> array[int]:
    numbers: array[int] = array(kind)
    numbers.frombytes(vector)
    if _SWAPPED:
        numbers.byteswap()
    return numbers


def decode_entries(payload: memoryview, at: int, count: int) -> tuple[Entries, int]:
    """Give one group's entries and the position after them."""
    if count * _ENTRY_BYTES > len(payload) - at:  # before any arithmetic that makes vectors of it
        raise JournalDamage(f"state: {count} entries are more than the payload holds")
    times_at, ranks_at, attempts_at = at + 8 * count, at + 16 * count, at + 24 * count
    states_at = attempts_at + (4 * count + 7 & ~7)
    after = states_at + (count + 7 & ~7)
    if after > len(payload):
        raise JournalDamage(f"state: {count} entries are more than the payload holds")
    states = bytearray(payload[states_at : states_at + count])
    if max(states) >= len(EntryState):
        raise JournalDamage(f"state: {max(states)} is not the state of an entry")
    entries = Entries(
        _numbers(payload[at:times_at]),
        _numbers(payload[times_at:ranks_at]),
        _numbers(payload[ranks_at:attempts_at], "q"),
        _numbers(payload[attempts_at : attempts_at + 4 * count], "I"),
        states,
    )
    return entries, after


def decode_delayed(payload: memoryview, at: int, count: int, pages: int) -> tuple[Columns, int]:
    """Give what one group has delayed, or what expires, and the position after it."""
    counts_at = at + 8 * pages
    keys_at = counts_at + 8 * pages
    after = keys_at + 8 * count
    if after > len(payload):
        raise JournalDamage(f"state: {count} delayed are more than the payload holds")
    ends = ((at, counts_at), (counts_at, keys_at), (keys_at, after))
    columns = Columns(*[_numbers(payload[start:stop]) for start, stop in ends])
    if (problem := columns.problem()) is not None:
        raise JournalDamage(f"state: {problem}")
    return columns, after


def decode_endings(payload: memoryview, at: int, count: int) -> tuple[Endings, int]:
    """Give what became of messages of one group and the position after it."""
    times_at, attempts_at = at + 8 * count, at + 16 * count
    fates_at = attempts_at + (4 * count + 7 & ~7)
    after = fates_at + (count + 7 & ~7)
    if after > len(payload):
        raise JournalDamage(f"state: {count} fates are more than the payload holds")
    fates = bytearray(payload[fates_at : fates_at + count])
    known = fates.translate(None, bytes((FORGOTTEN,)))
    if known and not min(Fate) <= min(known) <= max(known) <= max(Fate):
        raise JournalDamage("state: a message ended in a way that there is not")
    endings = Endings(
        _numbers(payload[at:times_at]),
        _numbers(payload[times_at:attempts_at]),
        _numbers(payload[attempts_at : attempts_at + 4 * count], "I"),
        fates,
    )
    return endings, after


def decode_originals(payload: memoryview, at: int, count: int) -> tuple[tuple[Original, ...], int]:
    """Give the originals and the position after it."""
    after = at + (count * _ORIGINAL_BYTES + 7 & ~7)
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


def decode_ids(payload: memoryview, at: int, count: int) -> tuple[IdColumns, int]:
    """Give the ids that are taken and the position after them."""
    offsets_at = at + NAME_BYTES * count
    after = offsets_at + 8 * count
    if after > len(payload):
        raise JournalDamage(f"state: {count} ids are more than the payload holds")
    return IdColumns(bytes(payload[at:offsets_at]), _numbers(payload[offsets_at:after])), after
