"""Durations, sizes and times as people write them: `5s`, `7d`, `10 MiB`, `2027-01-15T08:00:00Z`.

There is one grammar for each, for parameters of requests, options and the command line alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DIGITS_MAX = 30
_BLANK = " \t"

MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
"""Milliseconds of each unit of time."""

BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
"""Bytes of each unit of size."""

DURATIONS = "milliseconds, or a number with a unit such as 500ms, 30s, 5m, 2h or 7d"
SIZES = "bytes, or a number with a unit such as 64KiB, 10MiB or 1GiB"
TIMES = "epoch milliseconds or ISO 8601 such as 2027-01-15T08:00:00Z"
"""What is expected, for the sentences of refusals."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_LENGTH_MAX = 35  # 2027-01-15T08:00:00.000000+00:00, and some
_TIME_DIGITS_MAX = 19
_TIME_MS_MAX = (1 << 63) - 1
_SECONDS_BELOW = 100_000_000_000
"""A smaller number is 1973 at most if it is milliseconds: it was meant as seconds."""


def parse_ms(text: str) -> int | None:
    """Milliseconds; a number without a unit is that already. None = it is no duration."""
    return _parse(text, MS)


def parse_bytes(text: str) -> int | None:
    """Bytes; a number without a unit is that already. None = it is no size."""
    return _parse(text, BYTES)


def parse_time_ms(text: str) -> int:
    """Epoch milliseconds of a time, which is that number or ISO 8601; without a zone it is UTC, as
    the zone of the broker's machine means nothing to its clients. Raises ValueError, which says
    what was expected, as in `deliver_at <text of the error>`."""
    text = text.strip(_BLANK)
    time_ms = _parse_date(text)
    if text.isascii() and text.isdecimal() and len(text) <= _TIME_DIGITS_MAX:
        time_ms = int(text)
        if 0 < time_ms < _SECONDS_BELOW:
            raise ValueError(f"is {TIMES}; {text!r} looks like seconds")
    if time_ms is None or time_ms > _TIME_MS_MAX:
        raise ValueError(f"is {TIMES}, not {text[:40]!r}")
    return time_ms


def _parse_date(text: str) -> int | None:
    if text[4:5] != "-" or len(text) > _TIME_LENGTH_MAX or not text.isascii():
        return None
    if text[16:] and text[-6:-5] == " ":  # the plus of a zone, in a query where it is a space
        text = f"{text[:-6]}+{text[-5:]}"
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return max(0, (time - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        return None


def _parse(text: str, units: dict[str, int]) -> int | None:
    text = text.strip(_BLANK)
    unit = text.lstrip("0123456789.")
    number = text[: len(text) - len(unit)]
    factor = units.get(unit.strip(_BLANK)) if unit else 1
    whole, point, part = number.partition(".")
    if factor is None or not whole or len(number) > DIGITS_MAX or "." in part:
        return None
    if not point:
        return int(whole) * factor
    # A part of a unit is a whole number of the smallest one: `1.5h`, but not `1.5ms`.
    if not part or not unit:
        return None
    smaller, rest = divmod(int(part) * factor, int("1" + "0" * len(part)))
    return None if rest else int(whole) * factor + smaller
