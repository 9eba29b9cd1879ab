"""Ids in the shapes of RocketMQ: 32 upper-case hex digits, which stand for 16 bytes.

    msgId        IPv4 (4), process (2), partition (2), month (2), ms of the month (4), counter (2)
    offsetMsgId  IPv4 (4), port (4), partition (2), offset (6)

The original has the hash of a class loader where the partition and the month are: to others both
are just bytes. So a message is found by either id without an index: an offsetMsgId says where it
is, a msgId in which partition and when it was stored. Which of the two it is shows in bytes 4 and
5: no port has them, and no process is 0.
"""

from __future__ import annotations

import ipaddress
import struct
from datetime import UTC, datetime
from typing import Final, NamedTuple
from zlib import crc32

_MESSAGE: Final = struct.Struct(">4sHHHIH")
_OFFSET: Final = struct.Struct(">4sIHHI")  # the offset in two parts
_ID_LENGTH: Final = 32
_OFFSET_MAX: Final = (1 << 48) - 1
_FIRST_YEAR: Final = 2000
_ANYWHERE: Final = b"\x7f\x00\x00\x01"


class Stored(NamedTuple):
    """What a msgId says of its message."""

    partition: int
    time_ms: int


class Placed(NamedTuple):
    """What an offsetMsgId says of its message."""

    partition: int
    offset: int


class Ids:
    """Makes them. `address` is the broker's, host:port; `run` is another one at each start."""

    def __init__(self, address: str, run: bytes) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._host = ipaddress.IPv4Address(host).packed
        except ValueError:
            self._host = _ANYWHERE
        self._port = int(port) if port.isdecimal() and len(port) <= 5 else 0
        self._process = crc32(run) % 65_535 + 1
        self._counter = 0
        self._month = 0
        self._month_ms = self._month_end_ms = 0

    def message_id(self, partition: int, now_ms: int) -> bytes:
        """Of a message that is stored now in that partition."""
        if not self._month_ms <= now_ms < self._month_end_ms:
            moment = datetime.fromtimestamp(now_ms / 1000, UTC)
            self._month = (moment.year - _FIRST_YEAR) * 12 + moment.month - 1
            self._month_ms = _begin_ms(self._month)
            self._month_end_ms = _begin_ms(self._month + 1)
        self._counter = counter = self._counter + 1 & 0xFFFF
        ms = now_ms - self._month_ms
        parts = (self._host, self._process, partition, self._month, ms, counter)
        return _MESSAGE.pack(*parts).hex().upper().encode()

    def offset_id(self, partition: int, offset: int) -> str:
        """Of the message at a place."""
        offset &= _OFFSET_MAX
        parts = (self._host, self._port, partition, offset >> 32, offset & 0xFFFFFFFF)
        return _OFFSET.pack(*parts).hex().upper()


def meant_by(id: bytes) -> Stored | Placed | None:
    """Where the message of an id is to be looked for; None if it is neither of the two."""
    if len(id) != _ID_LENGTH:
        return None
    try:
        raw = bytes.fromhex(id.decode("ascii"))
    except ValueError:
        return None
    if len(raw) != _OFFSET.size:
        return None
    if not any(raw[4:6]):
        _, _, partition, high, low = _OFFSET.unpack(raw)
        return Placed(partition, high << 32 | low)
    _, _, partition, month, ms, _ = _MESSAGE.unpack(raw)
    if month >= (9999 - _FIRST_YEAR) * 12:
        return None
    return Stored(partition, _begin_ms(month) + ms)


def _begin_ms(month: int) -> int:
    year, index = divmod(month, 12)
    return int(datetime(_FIRST_YEAR + year, index + 1, 1, tzinfo=UTC).timestamp() * 1000)


def java_hash(text: str) -> int:
    """Java's `String.hashCode` (specification, section 2), from -2^31 to 2^31 - 1."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def queue_of(order_id: str, queues: int) -> int:
    """The queue of an orderId: the remainder as Java has it, without its sign."""
    return abs(java_hash(order_id)) % queues
