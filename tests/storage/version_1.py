"""How batches of version 1 were written. Frozen: only for tests that read them.

There an idempotency key was the first line of the headers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

from zbus.core.model.message import Message


def encode_messages(
    base_offset: int, messages: Sequence[Message], time_ms: int, previous_crc: int
) -> bytes:
    """Make a DATA batch."""
    count, flags, payload = len(messages), 0, b""
    for bit, values in (
        (1, [message.id for message in messages]),
        (2, [message.tag for message in messages]),
        (4, [message.key for message in messages]),
        (8, [_headers(message) for message in messages]),
        (16, [message.body for message in messages]),
    ):
        if any(values):
            flags |= bit
            payload += _padded(struct.pack(f"<{count}I", *map(len, values)))
            payload += _padded(b"".join(values))
    for bit, times in (
        (32, [message.due_ms for message in messages]),
        (64, [message.expires_ms for message in messages]),
    ):
        if any(times):
            flags |= bit
            payload += struct.pack(f"<{count}q", *times)
    return seal(1, flags, count, base_offset, time_ms, previous_crc, payload)


def seal(
    kind: int,
    flags: int,
    count: int,
    base_offset: int,
    time_ms: int,
    previous_crc: int,
    payload: bytes,
) -> bytes:
    """Make a batch of any kind."""
    payload = _padded(payload)
    head = struct.pack(
        "<4sBBHIQQII",
        b"zbus",
        1,
        kind,
        flags,
        count,
        base_offset,
        time_ms,
        previous_crc,
        len(payload),
    )
    return head + struct.pack("<I", crc32(head + payload)) + payload


def _headers(message: Message) -> bytes:
    return (b"idempotency-key: %b\r\n" % message.once if message.once else b"") + message.headers


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) & 7)
