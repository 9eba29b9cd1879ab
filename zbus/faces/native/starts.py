"""`from`: where a new group begins, where one is moved to, and where a follower starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from zbus.core.seeking import Start
from zbus.wire.numbers import parse_number

FORMS = (
    "earliest, latest, an offset (or one for each partition, 3,5), or a time such as"
    " time:1800000000000 or 2027-01-15T08:00:00Z"
)
EARLIEST, LATEST = Start(offset=0), Start(latest=True)
_WORDS = {b"earliest": EARLIEST, b"latest": LATEST}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_BYTES_MAX = 35  # 2027-01-15T08:00:00.000000+00:00, and some
_OFFSET_MAX = (1 << 63) - 2
PARTITIONS_MAX = 1 << 16


def read_start(value: bytes) -> Start | None:
    """What `from` says; None if it is none of its forms."""
    if (known := _WORDS.get(value)) is not None:
        return known
    if value.startswith(b"time:"):
        time_ms = parse_number(value[5:])
        return None if time_ms is None else Start(time_ms=time_ms)
    if value[4:5] == b"-":
        return _read_date(value)
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


def _read_date(value: bytes) -> Start | None:
    """ISO 8601. Without a zone it is UTC: the broker's own zone is nobody's business."""
    if len(value) > _TIME_BYTES_MAX or not value.isascii():
        return None
    try:
        time = datetime.fromisoformat(value.decode())
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return Start(time_ms=max(0, (time - _EPOCH) // timedelta(milliseconds=1)))
    except (ValueError, OverflowError):
        return None
