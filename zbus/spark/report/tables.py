"""What a report is made of: small tables, computed by Spark or read from statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import attrs
import pyarrow as pa

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
HISTORY_DAYS: Final = 14
UNUSUAL: Final = 3.0
"""This many times the most, or the usual, of the same hour of other days."""


class Traffic(NamedTuple):
    """Messages of a topic, partition and tag that were stored within a bucket of time."""

    topic: str
    partition: int
    tag: str | None
    bucket_ms: int
    messages: int
    bytes: int
    size_p50: float
    size_p95: float
    size_p99: float
    size_max: int
    distinct_keys: int


class Count(NamedTuple):
    """Messages of a topic that were stored within a bucket of time."""

    topic: str
    bucket_ms: int
    messages: int


class Latency(NamedTuple):
    """From a producer's own time, in a header, until it was stored: milliseconds."""

    topic: str
    bucket_ms: int
    messages: int
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Pending(NamedTuple):
    """Delayed messages that are due within a bucket of time."""

    topic: str
    due_ms: int
    messages: int


class Backlog(NamedTuple):
    """What a group had before it at some time."""

    topic: str
    group: str
    at_ms: int
    messages: int
    leased: int
    delayed: int
    dead: int
    consumers: int
    bytes: int | None = None  # about: that many of the average size
    oldest_age_s: float | None = None  # of what is ready; None: nothing, or it is not known


class Anomaly(NamedTuple):
    """A bucket that is not like the same hour of other days."""

    topic: str
    bucket_ms: int
    messages: int
    usual: float
    most: int
    days: int


@attrs.define(kw_only=True)
class Report:
    """All of them, and what they are about."""

    since_ms: int
    until_ms: int
    bucket_ms: int
    made_ms: int
    topics: list[str]
    source: str
    traffic: list[Traffic] = attrs.field(factory=list)
    latency: list[Latency] = attrs.field(factory=list)
    pending: list[Pending] = attrs.field(factory=list)
    backlog: list[Backlog] = attrs.field(factory=list)
    anomalies: list[Anomaly] = attrs.field(factory=list)
    keys: list[tuple[str, str, int]] = attrs.field(factory=list)  # topic, key, messages
    notes: list[str] = attrs.field(factory=list)

    def tables(self) -> dict[str, Sequence[tuple[Any, ...]]]:
        """Those that are written as files, by name."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS: Final = {
    "traffic": Traffic,
    "latency": Latency,
    "pending": Pending,
    "backlog": Backlog,
    "anomalies": Anomaly,
}
_TYPES: Final = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def arrow_table(name: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """A table of it, with its types even if it is empty. Names that end in `_ms` are times."""
    columns = {}
    for at, (column, kind) in enumerate(get_type_hints(COLUMNS[name]).items()):
        plain = next(each for each in (*get_args(kind), kind) if each in _TYPES)
        array = pa.array([row[at] for row in rows], _TYPES[plain])
        if column.endswith("_ms"):
            array = array.cast(pa.timestamp("ms", "UTC"))
        columns[column.removesuffix("_ms")] = array
    return pa.table(columns)


def anomalies(
    history: Iterable[Count], since_ms: int, until_ms: int, bucket_ms: int
) -> list[Anomaly]:
    """Buckets from `since_ms` on whose messages are three times the most of that time of day, or a
    third of the usual, on at least two of the days before. One that `until_ms` cuts does not count;
    one in which nothing came does."""
    counts: dict[str, dict[int, int]] = {}
    for row in history:
        found = counts.setdefault(row.topic, {})
        found[row.bucket_ms] = found.get(row.bucket_ms, 0) + row.messages
    unusual = []
    for topic, buckets in sorted(counts.items()):
        first = min(buckets)
        end = until_ms - until_ms % bucket_ms
        for bucket in range(max(first, since_ms - since_ms % bucket_ms), end, bucket_ms):
            days = [bucket - day * DAY_MS for day in range(1, HISTORY_DAYS + 1)]
            past = [buckets.get(day, 0) for day in days if day >= first]
            if len(past) < 2:
                continue
            now, usual, most = buckets.get(bucket, 0), median(past), max(past)
            if now > UNUSUAL * max(most, 1) or now * UNUSUAL < usual:
                unusual.append(Anomaly(topic, bucket, now, usual, most, len(past)))
    return unusual
