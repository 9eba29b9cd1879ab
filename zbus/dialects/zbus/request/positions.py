"""`from`: where a new group begins, where one is moved to, and where a subscriber starts."""

from __future__ import annotations

from zbus.core.api import Start
from zbus.units import parse_time_ms
from zbus.wire.numbers import parse_number

FORMS = (
    "earliest, latest, an offset (or one for each partition, 3,5), or a time such as"
    " time:1800000000000 or 2027-01-15T08:00:00Z"
)
EARLIEST, LATEST = Start(offset=0), Start(latest=True)
_WORDS = {b"earliest": EARLIEST, b"latest": LATEST}
_OFFSET_MAX = (1 << 63) - 2
PARTITIONS_MAX = 1 << 16


def read_start(value: bytes) -> Start | None:
    """What `from` says; None if it is none of its forms. Raises ValueError for a bad time."""
    if (known := _WORDS.get(value)) is not None:
        return known
    if value.startswith(b"time:"):
        return Start(time_ms=parse_time_ms(value[5:].decode("utf-8", "replace")))
    if value[4:5] == b"-":
        return Start(time_ms=parse_time_ms(value.decode("utf-8", "replace")))
    if b"," in value:
        return read_offsets(value)
    offset = parse_number(value, _OFFSET_MAX)
    return None if offset is None else Start(offset=offset)


def read_offsets(value: bytes) -> Start | None:
    """One for each partition, with commas between; one that is left out is 0."""
    if value.count(b",") >= PARTITIONS_MAX:
        return None
    offsets = []
    for part in value.split(b","):
        offset = parse_number(part, _OFFSET_MAX) if part else 0
        if offset is None:
            return None
        offsets.append(offset)
    return Start(offset=tuple(offsets))
