"""The vectors of a `StateChange`: what there may be millions of, as
`zbus.storage.format.checkpoint` draws it. Each kind is written and read here, one function beside
the other.

A reader passes the payload, where to begin and how many there are, and gets them and the
position after them. That the payload holds that many, and that each is what it may be, is checked.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Literal, TypeAlias

from zbus.core.cursor.state import Entries, EntryState
from zbus.core.dedup.entries import NAME_BYTES, IdColumns, Original
from zbus.core.model.dispositions import FORGOTTEN, Disposition, Endings
from zbus.core.timing.delays import Columns
from zbus.storage.errors import JournalDamage

PADDING = tuple(bytes(-length & 7) for length in range(8))
"""By length & 7: the padding behind that many bytes, so that the next part starts at a multiple of
8."""

Part: TypeAlias = "bytes | bytearray | memoryview | array[int]"
"""Of a payload."""

_ENTRY_BYTES = 8 + 8 + 8 + 4 + 1  # in the vectors, without padding
_ORIGINAL_BYTES = NAME_BYTES + 8 + 8 + 8 + 4  # without padding
_SWAPPED = sys.byteorder == "big"  # vectors are little-endian


def encode_entries(entries: Entries) -> list[Part]:
    count = len(entries)
    return [
        _vector(entries.offsets),
        _vector(entries.times),
        _vector(entries.ranks),
        _vector(entries.attempts),
        PADDING[4 * count & 7],
        entries.states,
        PADDING[count & 7],
    ]


def decode_entries(payload: memoryview, at: int, count: int) -> tuple[Entries, int]:
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


def encode_delayed(delayed: Columns) -> list[Part]:
    return [_vector(part) for part in (delayed.pages, delayed.counts, delayed.keys)]


def decode_delayed(payload: memoryview, at: int, pages: int, count: int) -> tuple[Columns, int]:
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


def encode_endings(fates: Endings) -> list[Part]:
    vectors = [_vector(fates.offsets), _vector(fates.times), _vector(fates.attempts)]
    return [*vectors, PADDING[4 * len(fates) & 7], fates.fates, PADDING[len(fates) & 7]]


def decode_endings(payload: memoryview, at: int, count: int) -> tuple[Endings, int]:
    times_at, attempts_at = at + 8 * count, at + 16 * count
    fates_at = attempts_at + (4 * count + 7 & ~7)
    after = fates_at + (count + 7 & ~7)
    if after > len(payload):
        raise JournalDamage(f"state: {count} fates are more than the payload holds")
    fates = bytearray(payload[fates_at : fates_at + count])
    known = fates.translate(None, bytes((FORGOTTEN,)))
    if known and not min(Disposition) <= min(known) <= max(known) <= max(Disposition):
        raise JournalDamage("state: a message ended in a way that there is not")
    endings = Endings(
        _numbers(payload[at:times_at]),
        _numbers(payload[times_at:attempts_at]),
        _numbers(payload[attempts_at : attempts_at + 4 * count], "I"),
        fates,
    )
    return endings, after


def encode_originals(originals: tuple[Original, ...]) -> list[bytes]:
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


def decode_originals(payload: memoryview, at: int, count: int) -> tuple[tuple[Original, ...], int]:
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


def encode_ids(ids: IdColumns) -> list[Part]:
    return [ids.names, _vector(ids.offsets)]


def decode_ids(payload: memoryview, at: int, count: int) -> tuple[IdColumns, int]:
    offsets_at = at + NAME_BYTES * count
    after = offsets_at + 8 * count
    if after > len(payload):
        raise JournalDamage(f"state: {count} ids are more than the payload holds")
    return IdColumns(bytes(payload[at:offsets_at]), _numbers(payload[offsets_at:after])), after


def _vector(numbers: array[int]) -> array[int]:
    """What holds their bytes, without a copy where that is possible."""
    if _SWAPPED:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


def _numbers(vector: memoryview, kind: Literal["Q", "q", "I"] = "Q") -> array[int]:
    numbers: array[int] = array(kind)
    numbers.frombytes(vector)
    if _SWAPPED:
        numbers.byteswap()
    return numbers
