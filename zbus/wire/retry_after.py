"""How long a reply asks to wait: `Retry-After`, seconds or a date (RFC 9110, section 10.2.3)."""

from __future__ import annotations

from datetime import UTC

from zbus.wire.numbers import parse_number

WAIT_S_MAX = 1 << 40
_DATE_BYTES_MAX = 64


def parse_retry_after(value: bytes, now_s: float) -> float | None:
    """Seconds from now on, 0 if the date is past; None for what is neither. `now_s` is epoch time,
    best that of the server that sent it: its `Date`."""
    seconds = parse_number(value, WAIT_S_MAX)
    if seconds is not None:
        return float(seconds)
    moment_s = parse_http_date(value)
    return None if moment_s is None else min(max(0.0, moment_s - now_s), float(WAIT_S_MAX))


def parse_http_date(value: bytes) -> float | None:
    """Epoch seconds of a date as HTTP writes it, the obsolete forms included."""
    if not 0 < len(value) <= _DATE_BYTES_MAX or not value.isascii():
        return None
    from email.utils import parsedate_to_datetime  # here: it takes a while, and is rarely needed

    try:
        moment = parsedate_to_datetime(value.decode())
        # HTTP's dates are in GMT, and its oldest form does not say so.
        aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return aware.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
