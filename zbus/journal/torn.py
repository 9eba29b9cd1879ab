"""Telling what a crash leaves of a write from bytes that were whole once and are not any more.

A log grows by appends, and a crash leaves of an append one of two things:

* its beginning: a process was killed, or the size of the file was not on disk yet;
* sectors of it that were never written, which read as zeros: a power cut keeps any of them.

So a bad batch that is there in full, with no sector of zeros in it, is not a crash's doing, whoever
was told of it. It is damage, and what it says of itself can be believed but for what was damaged.

What cannot be told apart: damage of a batch that has a whole sector of zeros in it (a body may),
damage that leaves nothing of a header, and a disk that tears within a sector or shows what a file
that is gone had there. In all of these the answer is that a crash may have done it.

    | magic | ... | count | base offset | ... | previous | length | crc | payload        | next ...
    a sector:     ->|............................................|<- all zeros: never written
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

from zbus.journal.batch import COUNT_MAX, HEADER_BYTES, MAGIC

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all; larger ones are made of these."""

_HEADER: Final = struct.Struct("<4s4xIQ8xIII")
_LENGTH: Final = struct.Struct("<I")
_COUNT_AT: Final = 8
_LENGTH_AT: Final = 32
_CRC_AT: Final = 36


class Claim(NamedTuple):
    """What the header of a bad batch says."""

    length: int  # of the whole batch
    records: int
    crc: int


def claim_of(head: bytes, previous_crc: int | None, base_offset: int) -> Claim | None:
    """What the header says that should follow a batch of this crc32 and begin with this offset;
    None if it cannot be recognised. One of the marks by which a header is may be damaged."""
    if len(head) < HEADER_BYTES:
        return None
    magic, records, base, previous, length, crc = _HEADER.unpack_from(head)
    marks = (magic == MAGIC) + (base == base_offset) + (previous_crc in (None, previous))
    return Claim(HEADER_BYTES + length, records, crc) if marks >= 2 else None


def crash_may_leave(raw: bytes, position: int, left: int, claim: Claim | None, led: bool) -> bool:
    """Tell whether a crash may have left the bad batch at byte `position` of a file.

    `raw` begins there and has all that is claimed, as far as there is so much: `left` bytes are.
    `led`: a whole batch comes after it, and is chained to it where it lies within the claim.
    """
    if claim is None:
        return True
    if claim.length > left:
        # A write that was cut short, or it is the length that is wrong.
        return not led and not _is_whole_with(raw[:left], claim.crc)
    stop = position + claim.length
    start = position
    while start < stop:
        after = min(start // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES, stop)
        if not any(raw[start - position : after - position]):
            return True
        start = after
    return False


def records_of(raw: bytes, claim: Claim) -> int:
    """How many records the bad batch had. If nothing but one byte of the count explains the
    checksum, that is mended."""
    if len(raw) < claim.length:
        return min(claim.records, COUNT_MAX)
    found = _crc_of(raw, claim.length)
    for place in range(_COUNT_AT, _COUNT_AT + 4):
        # A checksum is linear: what eight bits do to it, each alone, tells what any byte does.
        effects = []
        for bit in range(8):
            other = bytearray(raw)
            other[place] ^= 1 << bit
            effects.append(_crc_of(other, claim.length) ^ found)
        for change in range(1, 256):
            effect = found
            for bit in range(8):
                effect ^= effects[bit] if change >> bit & 1 else 0
            if effect == claim.crc:
                return min(claim.records ^ change << 8 * (place - _COUNT_AT), COUNT_MAX)
    return min(claim.records, COUNT_MAX)


def _is_whole_with(raw: bytes, crc: int) -> bool:
    """Whether these bytes are a batch of which nothing but the length is wrong."""
    head = raw[:_LENGTH_AT] + _LENGTH.pack(len(raw) - HEADER_BYTES)
    return crc32(raw[HEADER_BYTES:], crc32(head)) == crc


def _crc_of(raw: bytes | bytearray, length: int) -> int:
    return crc32(memoryview(raw)[HEADER_BYTES:length], crc32(raw[:_CRC_AT]))
