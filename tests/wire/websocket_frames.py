"""A client's frames, bit by bit, so that every bit of them can be wrong."""

from __future__ import annotations

import struct

KEY = b"\x11\x80\xfe\x33"


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    key: bytes = KEY,
    length_bytes: int | None = None,
    length: int | None = None,
) -> bytes:
    """A frame. `key` b"" does not mask it, `length_bytes` (0, 2, 8) is how its length is written,
    `length` is one that it has not."""
    size = len(payload) if length is None else length
    if length_bytes is None:
        length_bytes = 0 if size < 126 else 2 if size < 65_536 else 8
    short = {0: size, 2: 126, 8: 127}[length_bytes]
    head = bytes((0x80 * fin | rsv << 4 | opcode, 0x80 * bool(key) | short))
    if length_bytes:
        head += struct.pack("!H" if length_bytes == 2 else "!Q", size)
    if key:
        payload = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    return head + key + payload


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(8, code.to_bytes(2) + reason)
