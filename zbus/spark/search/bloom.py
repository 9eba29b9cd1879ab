"""Bloom filters of Parquet files: whether a row group can have a value, from 32 bytes of it.

Arrow writes them and does not read them. A filter is as Parquet's specification has it: blocks of
eight words of 32 bits; the upper half of a value's XXH64 says which block, the lower one which bit
in each word. What is not understood is never a reason to pass a row group over.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

_BLOCK: Final = struct.Struct("<8I")
_SALT: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
# Thrift's compact form: field 1 is a number, then three unions with one empty member each, which
# say split blocks, XXH64, not compressed.
_NUMBER: Final = 0x15
_UNIONS: Final = bytes.fromhex("1c1c0000") * 3 + b"\0"
_HEADER_BYTES_MAX: Final = 1 + 5 + len(_UNIONS)


class Readable(Protocol):
    """A file."""

    def seek(self, position: int) -> object: ...
    def read(self, size: int) -> bytes: ...


def may_have(file: Readable, offset: int | None, value: bytes) -> bool:
    """False: the row group whose filter is at that offset has no such value."""
    if not offset:
        return True
    file.seek(offset)
    header = _header(file.read(_HEADER_BYTES_MAX))
    if header is None:
        return True
    start, size = header
    found = hash64(value)
    block = (found >> 32) * (size // _BLOCK.size) >> 32
    file.seek(offset + start + block * _BLOCK.size)
    data = file.read(_BLOCK.size)
    if len(data) < _BLOCK.size:
        return True
    low = found & 0xFFFFFFFF
    return all(
        word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(_BLOCK.unpack(data), _SALT, strict=True)
    )


def _header(raw: bytes) -> tuple[int, int] | None:
    """How long it is, and how many bytes are behind it."""
    if not raw or raw[0] != _NUMBER:
        return None
    number = shift = 0
    for at, byte in enumerate(raw[1:6], 1):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            size = number >> 1  # zigzag
            whole = raw[at + 1 :].startswith(_UNIONS) and size and not size % _BLOCK.size
            return (at + 1 + len(_UNIONS), size) if whole else None
    return None


# -- XXH64 with seed 0 ----------------------------------------------------------------------------

_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_64: Final = 0xFFFFFFFFFFFFFFFF


def hash64(data: bytes) -> int:
    """XXH64."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(_P1 + _P2) & _64, _P2, 0, -_P1 & _64]
        while at + 32 <= size:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _64
    else:
        found = _P5
    found = (found + size) & _64
    while at + 8 <= size:
        found ^= _round(0, *struct.unpack_from("<Q", data, at))
        found = (_rotated(found, 27) * _P1 + _P4) & _64
        at += 8
    if at + 4 <= size:
        found ^= struct.unpack_from("<I", data, at)[0] * _P1 & _64
        found = (_rotated(found, 23) * _P2 + _P3) & _64
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ byte * _P5 & _64, 11) * _P1 & _64
    found = (found ^ found >> 33) * _P2 & _64
    found = (found ^ found >> 29) * _P3 & _64
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _64, 31) * _P1 & _64


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _64
