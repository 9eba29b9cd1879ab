"""Durations and sizes as people write them: `5s`, `7d`, `10 MiB`."""

from __future__ import annotations

DIGITS_MAX = 30

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


def parse_ms(text: str) -> int | None:
    """Milliseconds; a number without a unit is that already. None = it is no duration."""
    return _parse(text, MS)


def parse_bytes(text: str) -> int | None:
    """Bytes; a number without a unit is that already. None = it is no size."""
    return _parse(text, BYTES)


def _parse(text: str, units: dict[str, int]) -> int | None:
    text = text.strip()
    unit = text.lstrip("0123456789.")
    number = text[: len(text) - len(unit)]
    factor = units.get(unit.strip()) if unit else 1
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
