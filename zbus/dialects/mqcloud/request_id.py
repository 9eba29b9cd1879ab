"""`requestId`: which batch of which queue, as the client got it and gives it back.

It is the base64 (URL alphabet, padded) of
`brokerName,queueId,offset,nextOffset,lockTime[,forceAck]` (specification, section 4). It is plain
text and anybody can make one, so nothing in it is believed: it only chooses among what the broker
itself knows of that queue.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64encode
from typing import Final, NamedTuple

from zbus.dialects.mqcloud.locks import Lock
from zbus.wire.numbers import parse_number

BROKER: Final = "zbus"
"""`brokerName`: there is one."""

_LENGTH_MAX: Final = 1_024
_NUMBER_MAX: Final = (1 << 63) - 1
_QUEUE_MAX: Final = (1 << 31) - 1
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


class RequestId(NamedTuple):
    broker: str
    queue: int
    offset: int
    next_offset: int
    lock_ms: int
    forced: bool = False

    @property
    def text(self) -> str:
        """As clients get it: six fields."""
        return urlsafe_b64encode(str(self).encode()).decode()

    def __str__(self) -> str:
        forced = "true" if self.forced else "false"
        numbers = f"{self.queue},{self.offset},{self.next_offset},{self.lock_ms}"
        return f"{self.broker},{numbers},{forced}"

    @property
    def problem(self) -> str:
        """Why there can be no such batch; "" = there can be."""
        if self.offset < 0:
            return f"ack illegal, offset {self.offset} is negative"
        if self.next_offset < self.offset and not self.forced:
            return f"ack illegal, nextOffset {self.next_offset} is before offset {self.offset}"
        return ""


def request_id_of(queue: int, lock: Lock) -> str:
    """What a client gets with a batch of this queue."""
    return RequestId(BROKER, queue, lock.begin, lock.next, lock.at_ms, lock.forced).text


def read_request_id(value: bytes) -> RequestId | None:
    """What it says, in five fields or six; None if it is none."""
    if len(value) > _LENGTH_MAX:
        return None
    padding = b"=" * (-len(value) % 4)
    try:
        raw = binascii.a2b_base64(value.translate(_FROM_URL) + padding, strict_mode=True)
        raw.decode()
    except ValueError:
        return None
    fields = raw.split(b",")
    if not 5 <= len(fields) <= 6:
        return None
    queue = _number(fields[1], _QUEUE_MAX)
    offset, next_offset, lock_ms = [_number(field, _NUMBER_MAX) for field in fields[2:5]]
    if queue is None or offset is None or next_offset is None or lock_ms is None:
        return None
    forced = len(fields) == 6 and fields[5].lower() == b"true"
    return RequestId(fields[0].decode(), queue, offset, next_offset, lock_ms, forced)


def _number(digits: bytes, largest: int) -> int | None:
    if not digits.startswith(b"-"):
        return parse_number(digits, largest)
    number = parse_number(digits[1:], largest)
    return None if number is None else -number
