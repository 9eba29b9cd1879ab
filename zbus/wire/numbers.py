"""Numbers on the wire: digits, nothing else."""

from __future__ import annotations

import re

_DIGITS = re.compile(rb"[0-9]{1,19}\Z")
_RANGES = re.compile(rb"(?:[0-9]{1,19}+(?:-[0-9]{1,19}+)?+,)++")  # takes nothing back
_STOP_MAX = 1 << 63


def parse_number(value: bytes, maximum: int = (1 << 63) - 1) -> int | None:
    """A non-negative decimal integer of at most `maximum`, else None. No sign, space or `_`."""
    if _DIGITS.match(value) is None:
        return None
    number = int(value)
    return number if number <= maximum else None


def parse_ranges(value: bytes, count_max: int) -> list[range] | None:
    """Numbers and ranges of them, both ends included, with commas between: `3,5-9,12`. None if it
    is anything else, a range runs backwards, or there are more than `count_max` numbers. What one
    number after another makes longer is one range: `3,4,5-9` is `3-9`."""
    if value.count(b",") >= count_max or _RANGES.fullmatch(value + b",") is None:
        return None
    ranges = []
    begin, stop = -1, -1  # of the range that the next number may make longer
    for piece in value.split(b","):
        if b"-" in piece:
            first, _, last = piece.partition(b"-")
            number, end = int(first), int(last) + 1
            if end <= number:
                return None
        else:
            number = int(piece)
            end = number + 1
        count_max -= end - number
        if count_max < 0 or end > _STOP_MAX:
            return None
        if number == stop:
            stop = end
            continue
        if stop >= 0:
            ranges.append(range(begin, stop))
        begin, stop = number, end
    ranges.append(range(begin, stop))
    return ranges
