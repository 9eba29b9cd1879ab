"""Where to begin: what `from` says on the wire, which is a word of Python and `start` here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
        if start.isascii() and start.startswith("time:"):
            return start  # the broker knows times
        with suppress(ValueError, OverflowError):
            if datetime.fromisoformat(start).timestamp() >= 0:
                return start
    else:
        offsets = [start] if isinstance(start, int) else list(start)
        if offsets and all(0 <= offset <= _OFFSET_MAX for offset in offsets):
            return ",".join(map(str, offsets))
    forms = "'earliest', 'latest', an offset (or one for each partition) or a time"
    raise ValueError(f"it starts at {forms}, not {start!r}")
