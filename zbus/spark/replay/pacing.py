"""Slices of a replay, and when each is due.

As fast as it goes a replay is one transaction: all of it, or nothing. At the speed at which it
happened, or at a rate, it is cut into slices by the time at which messages were stored; each slice
is a transaction, and is written when it is due. Nothing here asks the clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from zbus.spark.errors import Usage

SLICES_MAX: Final = 10_000
SLICE_S: Final = 1.0
"""A slice is at least that long when it is replayed: Spark needs part of a second for each."""

_BUCKET_MS_MIN: Final = 100


class Bucket(NamedTuple):
    """What was stored in a short time."""

    start_ms: int
    messages: int
    bytes: int


class Slice(NamedTuple):
    """What is written at once: stored from `start_ms` to before `end_ms`."""

    start_ms: int
    end_ms: int
    messages: int
    bytes: int


def parse_speed(text: str) -> float | None:
    """`1x`, `10x`, `0.5x`; None for `max`. Raises Usage."""
    if text == "max":
        return None
    number = text.removesuffix("x")
    is_number = number.isascii() and number.replace(".", "", 1).isdecimal() and len(number) < 10
    found = float(number) if is_number and text.endswith("x") else 0.0
    if not found > 0:
        raise Usage(f"--speed {text[:40]}: it is like 1x, 10x or 0.5x, or max")
    return found


def bucket_ms(first_ms: int, last_ms: int) -> int:
    """How long buckets are, so that there are not too many."""
    return max(_BUCKET_MS_MIN, math.ceil((last_ms - first_ms + 1) / SLICES_MAX))


def cut(
    buckets: Sequence[Bucket], width_ms: int, speed: float | None, rate: int | None
) -> list[Slice]:
    """Slices of buckets in order, each as short as it may be."""
    if not buckets:
        return []
    least_ms = 0.0 if speed is None else SLICE_S * 1_000 * speed
    least_bytes = 0.0 if rate is None else SLICE_S * rate
    found: list[Slice] = []
    for bucket in buckets:
        end_ms = bucket.start_ms + width_ms
        last = found[-1] if found else None
        if last is not None and not _full(last, bucket, least_ms, least_bytes):
            both = last.messages + bucket.messages, last.bytes + bucket.bytes
            found[-1] = Slice(last.start_ms, end_ms, *both)
        else:
            found.append(Slice(bucket.start_ms, end_ms, bucket.messages, bucket.bytes))
    return found


def _full(last: Slice, bucket: Bucket, least_ms: float, least_bytes: float) -> bool:
    """It is long enough in time, if that counts, or in bytes."""
    by_time = least_ms > 0 and bucket.start_ms - last.start_ms >= least_ms
    by_bytes = least_bytes > 0 and last.bytes + bucket.bytes > least_bytes
    return by_time or by_bytes


def due_s(slices: Iterable[Slice], speed: float | None, rate: int | None) -> list[float]:
    """Seconds from the beginning until each slice may be written."""
    found: list[float] = []
    before = 0
    first_ms: int | None = None
    for one in slices:
        first_ms = one.start_ms if first_ms is None else first_ms
        by_time = 0.0 if speed is None else (one.start_ms - first_ms) / 1_000 / speed
        by_rate = 0.0 if rate is None else before / rate
        found.append(max(by_time, by_rate))
        before += one.bytes
    assert all(a <= b for a, b in pairwise(found))
    return found


def check_targets(to: str, topics: Iterable[str], force: bool) -> dict[str, str]:
    """Where the messages of each topic go. `{topic}` in `to` is their topic's name. Raises Usage if
    one would be read and written."""
    found = {topic: to.replace("{topic}", topic) for topic in topics}
    sources = {topic.lower() for topic in found}
    loops = sorted({target for target in found.values() if target.lower() in sources})
    if loops and not force:
        raise Usage(f"{', '.join(loops)} would be read and written: name another --to, or --force")
    return found
