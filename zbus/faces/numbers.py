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


def parse_ranges(value: bytes, count_max: int) -> list[range] | None:
    """Numbers and ranges of them, both ends included, with commas between: `3,5-9,12`. None if it
    is anything else, a range runs backwards, or there are more than `count_max` numbers."""
    ranges = []
    # Each piece is a number at least, so this many commas are too many already.
    for piece in value.split(b",", count_max):
        first, dash, last = piece.partition(b"-")
        begin = parse_number(first)
        end = parse_number(last) if dash else begin
        if begin is None or end is None or end < begin:
            return None
        count_max -= end - begin + 1
        if count_max < 0:
            return None
        ranges.append(range(begin, end + 1))
    return ranges
