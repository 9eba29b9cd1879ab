"""Numbers on the wire: digits, nothing else."""

from __future__ import annotations

import re

_DIGITS = re.compile(rb"[0-9]{1,19}\Z")


def parse_number(value: bytes, maximum: int = (1 << 63) - 1) -> int | None:
    """A non-negative decimal integer of at most `maximum`, else None. No sign, space or `_`."""
    if _DIGITS.match(value) is None:
        return None
    number = int(value)
    return number if number <= maximum else None
