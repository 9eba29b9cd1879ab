"""Where to begin: what `from` says on the wire, which is a word of Python and `start` here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

Start = str | int | Sequence[int] | datetime
"""`"earliest"`, `"latest"`, an offset, one for each partition, or a time: a `datetime`, text in ISO
8601, or `"time:<epoch ms>"`."""

_OFFSET_MAX = (1 << 63) - 2
_WORDS = {"earliest": "earliest", "latest": "latest", "begin": "earliest", "end": "latest"}


def encode_start(start: Start) -> str:
    """As it is sent. Raises ValueError for what can be no place."""
    if isinstance(start, datetime):
        return f"time:{max(0, round(start.timestamp() * 1000))}"
    if isinstance(start, str):
        if start in _WORDS:
            return _WORDS[start]
        if start.isascii() and (_is_moment(start) or _is_date(start)):
            return start
    else:
        offsets = [start] if isinstance(start, int) else list(start)
        if offsets and all(0 <= offset <= _OFFSET_MAX for offset in offsets):
            return ",".join(map(str, offsets))
    forms = "'earliest', 'latest', an offset (or one for each partition) or a time"
    raise ValueError(f"it starts at {forms}, not {start!r}")


def _is_moment(text: str) -> bool:
    return text.startswith("time:") and text[5:].isdigit() and len(text) <= 24


def _is_date(text: str) -> bool:
    """As the broker reads it: in ISO 8601, and in UTC if it names no zone."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return text[4:5] == "-"
