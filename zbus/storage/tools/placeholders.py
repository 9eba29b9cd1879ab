"""What stands in a log where something was lost: as many messages that say so, and a mark.

    DATA    for each lost offset an empty message with the header line of `LOST_LINE`
    STATE   what the groups may have to do again
    STATE   {"lost": {"first": ..., "end": ...}}: ends the filling, and closes the chain

The batch behind names the crc32 of a batch that is lost. The last four bytes of the mark, which are
padding, are chosen so that the mark has that crc32: so nothing behind it has to be written again,
and every batch that was good stays byte for byte what it was. (The chain guards against accidents,
not against forgers: everybody can do this.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

import msgspec

from zbus.core.cursor.state import StateChange
from zbus.core.model.chunk import Chunk
from zbus.storage.format.batch import HEADER_BYTES, Batch, Kind, encode_chunk, encode_state
from zbus.storage.format.checkpoint import encode_change

LOST_LINE: Final = b"content-lost: damage\r\n"
"""The header line of a message that stands for one that damage took."""

_PORTION: Final = 1 << 14
_MARK: Final = b'{"lost":'
_LENGTH: Final = struct.Struct("<I")
_CRC_BYTES: Final = 4


class _Lost(msgspec.Struct):
    first: int
    end: int


class _Marked(msgspec.Struct):
    lost: _Lost


def lost_messages(
    first_offset: int, end_offset: int, time_ms: int, previous_crc: int
) -> Iterator[Batch]:
    """Give DATA batches, one lost message for each offset."""
    for start in range(first_offset, end_offset, _PORTION):
        stop = min(start + _PORTION, end_offset)
        chunk = Chunk(start, time_ms)
        chunk.ids = [b"lost-%d" % at for at in range(start, stop)]
        chunk.headers = [LOST_LINE] * (stop - start)
        chunk.bodies = [b""] * (stop - start)
        batch = encode_chunk(chunk, previous_crc)
        yield batch
        previous_crc = batch.header.crc


def state(
    kind: Kind, change: StateChange, end_offset: int, time_ms: int, previous_crc: int
) -> Batch:
    """Give a STATE or CHECKPOINT batch."""
    return encode_state(kind, end_offset, time_ms, encode_change(change), previous_crc)


def mark(first_offset: int, end_offset: int, time_ms: int, previous_crc: int, crc: int) -> bytes:
    """Give the STATE batch that says what was lost, and that has the crc32 `crc`."""
    text = b'{"lost":{"first":%d,"end":%d}' % (first_offset, end_offset)
    text += b" " * (-(len(text) + 1) & 7) + b"}"  # so that four bytes of padding follow
    payload = _LENGTH.pack(len(text)) + text
    raw = encode_state(Kind.STATE, end_offset, time_ms, payload, previous_crc).raw
    head, body = raw[: HEADER_BYTES - _CRC_BYTES], raw[HEADER_BYTES:-_CRC_BYTES]
    tail = _tail_for(crc32(body, crc32(head)), crc)
    return b"".join((head, _LENGTH.pack(crc), body, tail))


def is_loss(batch: bytes) -> int:
    """Give how many messages the STATE batch says were lost; 0 if it is no mark."""
    at = HEADER_BYTES + _LENGTH.size
    if not batch.startswith(_MARK, at):
        return 0
    stop = at + _LENGTH.unpack_from(batch, HEADER_BYTES)[0]
    try:
        lost = msgspec.json.decode(batch[at:stop], type=_Marked).lost
    except msgspec.MsgspecError:
        return 0
    return max(lost.end - lost.first, 0)


def _tail_for(before: int, wanted: int) -> bytes:
    """Give the four bytes that lead from one crc32 to another."""
    register = wanted ^ 0xFFFFFFFF
    for _ in range(_CRC_BYTES):  # backwards through the table's steps
        number = _BY_TOP_BYTE[register >> 24]
        register = (register ^ _TABLE[number]) << 8 & 0xFFFFFFFF | number
    return _LENGTH.pack(register ^ before ^ 0xFFFFFFFF)


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
    return value


_TABLE: Final = tuple(map(_table_entry, range(256)))
_BY_TOP_BYTE: Final = {entry >> 24: number for number, entry in enumerate(_TABLE)}
