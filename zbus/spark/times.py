"""Times, durations and rates as options of jobs have them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

from zbus.spark.errors import Usage
from zbus.units import parse_bytes, parse_ms, parse_time_ms

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: Python and Spark know none later."""

_DURATION_MS_MAX: Final = 100 * 366 * 86_400_000
_RATE_MAX: Final = 1 << 50

_WORDS: Final = {
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}


def ceil_ms(moment: datetime) -> int:
    """Epoch milliseconds, not before it. Exactly: floats are wrong by one now and then."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def moment_ms(text: str, option: str, now_ms: int | None = None) -> int:
    """Epoch milliseconds of `24h` (ago), `now`, a time in ISO 8601 (UTC if it does not say), or of
    that number. Raises Usage."""
    text = text.strip()
    now_ms = round(time.time() * 1_000) if now_ms is None else now_ms
    ago_ms = 0 if text == "now" else None if text.isdecimal() else parse_ms(text)
    try:
        found = parse_time_ms(text) if ago_ms is None else now_ms - ago_ms
    except ValueError:
        found = -1
    if not 0 <= found <= _TIME_MS_MAX:
        like = "24h (ago), 2026-11-23T12:00, or epoch milliseconds"
        raise Usage(f"{option} {text[:40]}: it is like {like}")
    return found


def between_ms(
    since: str | None, until: str | None, now_ms: int | None = None
) -> tuple[int | None, int | None]:
    """Of --since and --until. Raises Usage."""
    now_ms = round(time.time() * 1_000) if now_ms is None else now_ms
    since_ms = None if since is None else moment_ms(since, "--since", now_ms)
    until_ms = None if until is None else moment_ms(until, "--until", now_ms)
    if since_ms is not None and until_ms is not None and until_ms <= since_ms:
        raise Usage("--until is not after --since: no message is between them")
    return since_ms, until_ms


def duration_ms(text: str, option: str, least_ms: int = 1) -> int:
    """Milliseconds of `30s`, `5m`, or as Spark writes it, `10 minutes`. Raises Usage."""
    found = parse_ms(text)
    if found is None:
        number, _, word = text.strip().partition(" ")
        unit = _WORDS.get(word.strip().lower().removesuffix("s"))
        found = parse_ms(number + unit) if unit else None
    if found is None or not least_ms <= found <= _DURATION_MS_MAX:
        raise Usage(f"{option} {text[:40]}: it is like 30s, 5m, 24h or '10 minutes'")
    return found


def interval(text: str, option: str) -> str:
    """The same as Spark writes it. Raises Usage."""
    return f"{duration_ms(text, option, 0)} milliseconds"


def bytes_s(text: str, option: str = "--rate") -> int:
    """Bytes a second of `20MiB` or `20MiB/s`. Raises Usage."""
    found = parse_bytes(text.strip().removesuffix("/s"))
    if not found or found > _RATE_MAX:
        raise Usage(f"{option} {text[:40]}: it is bytes a second, like 20MiB/s")
    return found


def size_bytes(text: str, option: str) -> int:
    """Bytes of `256MiB`. Raises Usage."""
    found = parse_bytes(text.strip())
    if not found:
        raise Usage(f"{option} {text[:40]}: it is a size of more than 0, like 256MiB")
    return found
