"""The payload of a DATA batch: a `Chunk` as bytes, column by column.

    ID TAG KEY BODY ONCE   u32[count] lengths | the bytes one after another
    HEADERS                the same, or, with the flag DICTIONARY:
                           u32 distinct values | u32[count] which of them each record has
                           | u32[distinct] lengths | their bytes one after another
    DUE EXPIRES            i64[count] epoch milliseconds
    ATTEMPTS               u32[count]

Each of these parts is padded with zeros to a multiple of 8 bytes. The columns come in the order of
their bits, and a column in which every value is empty (or zero) is absent. The dictionary is used
whenever some records have equal headers, so that these are stored once and read back as one object.

A batch is of version 3 only if it has ATTEMPTS, so that a program that does not know this column
says so and does not take the batch for damage. All others are as they always were.

A batch of version 1 has neither ONCE nor DICTIONARY. There an idempotency key is the first line of
the headers; here it is taken out of them, so that no other client has to know of that version.

Lengths from a disk are as hostile as those from a peer: all are checked before they are used.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

from zbus.core.model.chunk import Chunk
from zbus.storage.errors import JournalDamage


class Column(enum.IntFlag):
    """The bits of a DATA batch's flags. Stored: never renumber."""

    ID = 1
    TAG = 2
    KEY = 4
    HEADERS = 8
    BODY = 16
    DUE = 32
    EXPIRES = 64
    ONCE = 128
    DICTIONARY = 256  # no column of its own: how HEADERS is stored
    ATTEMPTS = 512


COLUMNS: Final = {1: 127, 2: 511, 3: 1023}
"""The bits that there may be, by version."""

PADDING: Final = tuple(bytes(-length & 7) for length in range(8))
"""By length & 7: what fills up to a multiple of 8 bytes."""

KEY_LINE: Final = b"idempotency-key: "
"""In version 1, begins the headers of a message that was put with a key."""

# As numbers: on the way of every message an IntFlag is too slow.
_ID, _TAG, _KEY, _HEADERS, _BODY, _DUE, _EXPIRES, _ONCE, _DICTIONARY, ATTEMPTS = map(int, Column)
_RARE = _TAG | _KEY | _DUE | _EXPIRES | _ONCE | ATTEMPTS  # what a plain chunk does not have
_U32 = struct.Struct("<I")
_ONE_LENGTH = struct.Struct("<I4x").pack
_ONE_TIME = struct.Struct("<q").pack


@lru_cache(maxsize=1 << 12)
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I4x" if count & 1 else f"<{count}I")


@lru_cache(maxsize=1 << 12)
def _times(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}q")


def encode_columns(chunk: Chunk) -> tuple[int, list[bytes]]:
    """Give the flags, and the payload in parts."""
    bodies = chunk.bodies
    count = len(bodies)
    if count == 1:
        return _encode_row(chunk)
    lengths = _numbers(count).pack
    flags = 0
    parts: list[bytes] = []
    if any(chunk.ids):
        flags = _ID
        _encode_text(parts, chunk.ids, lengths)
    if chunk.tags is not None and any(chunk.tags):
        flags |= _TAG
        _encode_text(parts, chunk.tags, lengths)
    if chunk.keys is not None and any(chunk.keys):
        flags |= _KEY
        _encode_text(parts, chunk.keys, lengths)
    flags |= _encode_headers(parts, chunk.headers, lengths)
    joined = b"".join(bodies)
    if joined:
        flags |= _BODY
        parts += (lengths(*map(len, bodies)), joined, PADDING[len(joined) & 7])
    if chunk.due is not None and any(chunk.due):
        flags |= _DUE
        parts.append(_times(count).pack(*chunk.due))
    if chunk.expires is not None and any(chunk.expires):
        flags |= _EXPIRES
        parts.append(_times(count).pack(*chunk.expires))
    if chunk.once is not None and any(chunk.once):
        flags |= _ONCE
        _encode_text(parts, chunk.once, lengths)
    if chunk.attempts is not None and any(chunk.attempts):
        flags |= ATTEMPTS
        parts.append(lengths(*chunk.attempts))
    return flags, parts


def _encode_text(parts: list[bytes], values: list[bytes], lengths: Callable[..., bytes]) -> None:
    joined = b"".join(values)
    parts += (lengths(*map(len, values)), joined, PADDING[len(joined) & 7])


def _encode_headers(parts: list[bytes], values: list[bytes], lengths: Callable[..., bytes]) -> int:
    """Add the column; give its flags."""
    count, first = len(values), values[0]
    if first is values[-1] and values.count(first) == count:
        if not first:
            return 0
        length = len(first)
        parts += (_ONE_LENGTH(1), bytes(4 * count + 7 & ~7))
        parts += (_ONE_LENGTH(length), first, PADDING[length & 7])
        return _HEADERS | _DICTIONARY
    distinct = dict.fromkeys(values)
    different = len(distinct)
    if different == count:
        _encode_text(parts, values, lengths)
        return _HEADERS
    if different == 1 and not first:
        return 0
    number = dict(zip(distinct, range(different), strict=True))
    parts += (_ONE_LENGTH(different), lengths(*map(number.__getitem__, values)))
    _encode_text(parts, list(distinct), _numbers(different).pack)
    return _HEADERS | _DICTIONARY


def _encode_row(chunk: Chunk) -> tuple[int, list[bytes]]:
    """Do what `encode_columns` does, for the commonest batch of a broker that is not busy."""
    flags = 0
    parts: list[bytes] = []
    if value := chunk.ids[0]:
        flags = _ID
        parts += _one_text(value)
    if chunk.tags is not None and (value := chunk.tags[0]):
        flags |= _TAG
        parts += _one_text(value)
    if chunk.keys is not None and (value := chunk.keys[0]):
        flags |= _KEY
        parts += _one_text(value)
    if value := chunk.headers[0]:
        flags |= _HEADERS
        parts += _one_text(value)
    if value := chunk.bodies[0]:
        flags |= _BODY
        parts += _one_text(value)
    if chunk.due is not None and (time_ms := chunk.due[0]):
        flags |= _DUE
        parts.append(_ONE_TIME(time_ms))
    if chunk.expires is not None and (time_ms := chunk.expires[0]):
        flags |= _EXPIRES
        parts.append(_ONE_TIME(time_ms))
    if chunk.once is not None and (value := chunk.once[0]):
        flags |= _ONCE
        parts += _one_text(value)
    if chunk.attempts is not None and (count := chunk.attempts[0]):
        flags |= ATTEMPTS
        parts.append(_ONE_LENGTH(count))
    return flags, parts


def _one_text(value: bytes) -> tuple[bytes, bytes, bytes]:
    length = len(value)
    return _ONE_LENGTH(length), value, PADDING[length & 7]


class ColumnReader:
    """Goes through the columns of the batch `raw`, of which the first is at byte `at`.

    Gives the rows from number `first` to before `last`, of `count`. The batch begins at a multiple
    of 8 bytes, and so does each column.
    """

    __slots__ = ("_at", "_count", "_first", "_last", "_raw")

    def __init__(self, raw: bytes, at: int, count: int, first: int, last: int) -> None:
        self._raw = raw
        self._at = at
        self._count = count
        self._first = first
        self._last = last

    def fill(self, chunk: Chunk, version: int, flags: int) -> None:
        """Put the rows into an empty chunk."""
        wanted = self._last - self._first
        if flags & _DICTIONARY and not flags & _HEADERS:
            raise JournalDamage("a dictionary of a column that is absent")
        chunk.ids = self._text() if flags & _ID else [b""] * wanted
        if flags & _TAG:
            chunk.tags = self._text()
        if flags & _KEY:
            chunk.keys = self._text()
        if flags & _DICTIONARY:
            chunk.headers = self._dictionary()
        else:
            chunk.headers = self._text() if flags & _HEADERS else [b""] * wanted
        chunk.bodies = self._text() if flags & _BODY else [b""] * wanted
        if flags & _DUE:
            chunk.due = self._times()
        if flags & _EXPIRES:
            chunk.expires = self._times()
        if flags & _ONCE:
            chunk.once = self._text()
        if flags & ATTEMPTS:
            chunk.attempts = self._counts()
        if self._at != len(self._raw):
            raise JournalDamage("columns do not fill their batch")
        chunk.plain = not flags & _RARE
        if version == 1 and flags & _HEADERS:
            _take_keys(chunk)
            one: dict[bytes, bytes] = {}
            chunk.headers = list(map(one.setdefault, chunk.headers, chunk.headers))

    def _text(self) -> list[bytes]:
        raw, at, count, first, last = self._raw, self._at, self._count, self._first, self._last
        start = self._behind(at, 4 * count)
        if count == 1:
            stop: int = start + _U32.unpack_from(raw, at)[0]
            values = [raw[start:stop]] if first < last else []
        else:
            lengths = _numbers(count).unpack_from(raw, at)
            begin = start + sum(lengths[:first]) if first else start
            stops = list(accumulate(lengths[first:last], initial=begin))
            stop = stops[-1] + sum(lengths[last:])
            values = [raw[a:b] for a, b in pairwise(stops)]
        self._at = self._behind(stop, 0)
        return values

    def _dictionary(self) -> list[bytes]:
        raw, at, wanted = self._raw, self._at, self._last - self._first
        which_at = self._behind(at, 4)
        lengths_at = self._behind(which_at, 4 * self._count)
        different: int = _U32.unpack_from(raw, at)[0]
        start = self._behind(lengths_at, 4 * different)
        if different == 1 and raw[which_at:lengths_at] == bytes(lengths_at - which_at):
            stop: int = start + _U32.unpack_from(raw, lengths_at)[0]
            self._at = self._behind(stop, 0)
            return [raw[start:stop]] * wanted
        lengths = _numbers(different).unpack_from(raw, lengths_at)
        stops = list(accumulate(lengths, initial=start))
        self._at = self._behind(stops[-1], 0)
        which = struct.unpack_from(f"<{wanted}I", raw, which_at + 4 * self._first)
        used = set(which)
        if used and max(used) >= different:
            raise JournalDamage(f"column at byte {at}: {max(used)} is none of {different} values")
        values = {number: raw[stops[number] : stops[number + 1]] for number in used}
        return list(map(values.__getitem__, which))

    def _times(self) -> list[int]:
        at, wanted = self._at, self._last - self._first
        self._at = self._behind(at, 8 * self._count)
        return list(struct.unpack_from(f"<{wanted}q", self._raw, at + 8 * self._first))

    def _counts(self) -> list[int]:
        at, wanted = self._at, self._last - self._first
        self._at = self._behind(at, 4 * self._count)
        return list(struct.unpack_from(f"<{wanted}I", self._raw, at + 4 * self._first))

    def _behind(self, at: int, size: int) -> int:
        """The position after a part of that size, which must be within the batch."""
        after = at + size + 7 & ~7
        if after > len(self._raw):
            raise JournalDamage(f"column at byte {self._at} is longer than its batch")
        return after


def _take_keys(chunk: Chunk) -> None:
    """Take the idempotency keys out of the headers of version 1."""
    if any([lines.startswith(KEY_LINE) for lines in chunk.headers]):
        start = len(KEY_LINE)
        taken = [
            lines[start:].partition(b"\r\n") if lines.startswith(KEY_LINE) else (b"", b"", lines)
            for lines in chunk.headers
        ]
        chunk.plain = False
        chunk.once = [key for key, _, _ in taken]
        chunk.headers = [lines for _, _, lines in taken]
