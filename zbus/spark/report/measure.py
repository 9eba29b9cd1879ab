"""A report's tables, computed by Spark; backlogs are asked of the broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from zbus.client import errors
from zbus.client.blocking import BlockingClient
from zbus.spark.report.tables import Backlog, Count, Latency, Pending, Traffic
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXACT_MAX: Final = 10_000_000
"""Messages up to which percentiles are exact. Above, they are of a sketch."""

ACCURACY: Final = 10_000
KEYS: Final = 20
_SHARES: Final = (0.5, 0.95, 0.99)
_LATENCIES: Final = (0.5, 0.9, 0.95, 0.99)


def traffic(rows: DataFrame, bucket_ms: int, exact: bool = True) -> list[Traffic]:
    """Of messages with topic, partition, tag, timestamp, key and body."""
    from pyspark.sql import functions as F

    size = F.coalesce(F.octet_length("body"), F.lit(0)).cast("long")
    keys = (F.count_distinct if exact else F.approx_count_distinct)("key")
    groups = ("topic", "partition", "tag", "bucket")
    sized = rows.withColumns({"size": size, "bucket": _bucket("timestamp", bucket_ms)})
    found = sized.groupBy(*groups).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        _percentiles("size", _SHARES, exact).alias("sizes"),
        F.max("size").alias("size_max"),
        keys.alias("distinct_keys"),
    )
    sizes = [F.col("sizes")[at].cast("double") for at in range(len(_SHARES))]
    columns = found.select(*groups, "messages", "bytes", *sizes, "size_max", "distinct_keys")
    return [Traffic(*row) for row in columns.orderBy(*groups).collect()]


def counts(rows: DataFrame, bucket_ms: int) -> list[Count]:
    """Of messages with topic and timestamp."""
    found = rows.groupBy("topic", _bucket("timestamp", bucket_ms)).count()
    return [Count(*row) for row in found.collect()]


def latency(rows: DataFrame, header: str, bucket_ms: int, exact: bool = True) -> list[Latency]:
    """Of messages whose header says when they were sent, in epoch milliseconds."""
    from pyspark.sql import functions as F

    sent = F.try_element_at("headers", F.lit(header.lower())).try_cast("double")
    late = (F.unix_millis("timestamp") - sent).alias("late")
    sane = rows.select("topic", _bucket("timestamp", bucket_ms), late).where("late is not null")
    found = sane.groupBy("topic", "bucket").agg(
        F.count(F.lit(1)).alias("messages"),
        _percentiles("late", _LATENCIES, exact).alias("lates"),
        F.max("late").alias("most"),
    )
    lates = [F.col("lates")[at] for at in range(len(_LATENCIES))]
    columns = found.select("topic", "bucket", "messages", *lates, "most")
    return [Latency(*row) for row in columns.orderBy("topic", "bucket").collect()]


def pending(rows: DataFrame, now_ms: int, bucket_ms: int) -> list[Pending]:
    """Of messages with topic and deliver_at: those that are due later than now."""
    from pyspark.sql import functions as F

    later = rows.where(F.unix_millis("deliver_at") > F.lit(now_ms))
    found = later.groupBy("topic", _bucket("deliver_at", bucket_ms)).count()
    return [Pending(*row) for row in found.orderBy("topic", "bucket").collect()]


def delaying(where: Where, topics: Sequence[str]) -> list[str]:
    """Topics that may have delayed messages: all but those whose groups have taken everything.
    Raises Usage, Unreachable."""
    found = []
    with where.client() as bus:
        for topic in topics:
            try:
                groups = bus.query(topic).groups
            except errors.Forbidden:
                groups = []
            if not groups or any(group.message_count or group.delayed_count for group in groups):
                found.append(topic)
    return found


def keys(rows: DataFrame) -> list[tuple[str, str, int]]:
    """The keys of most messages."""
    from pyspark.sql import functions as F

    found = rows.where("key is not null").groupBy("topic", "key").count()
    ordered = found.orderBy(F.desc("count"), "topic", "key").limit(KEYS)
    return [(topic, key, count) for topic, key, count in ordered.collect()]


def backlog(where: Where, topics: Sequence[str]) -> list[Backlog]:
    """Of each group now. Raises Usage, Unreachable."""
    now_ms = time.time_ns() // 1_000_000
    found = []
    with where.client() as bus, where.open() as log:
        for topic in topics:
            try:
                info = bus.query(topic)
            except errors.NotFound:
                continue  # it is in an archive, and not in the broker any more
            spans = log.spans(info.name)
            size = sum(span.bytes for span in spans) / max(1, sum(s.end - s.first for s in spans))
            found += [
                Backlog(
                    info.name,
                    group.name,
                    now_ms,
                    group.message_count,
                    group.leased_count,
                    group.delayed_count,
                    group.dead_count,
                    group.consumer_count,
                    round(size * group.message_count),
                    _oldest_age_s(bus, info.name, group.name, now_ms) if len(spans) == 1 else None,
                )
                for group in info.groups
                if not group.unclaimed
            ]
    return found


def _oldest_age_s(bus: BlockingClient, topic: str, group: str, now_ms: int) -> float | None:
    """What is ready is listed by offset: of one partition the first is the oldest."""
    try:
        first = bus.peek(topic, group, count=1).messages
    except errors.ZbusError:
        return None  # a token may be allowed to ask, and not to look
    return max(0, now_ms - first[0]["timestamp"]) / 1_000 if first else None


def _bucket(column: str, bucket_ms: int) -> Column:
    from pyspark.sql import functions as F

    at = F.unix_millis(column)
    return (at - F.pmod(at, F.lit(bucket_ms))).alias("bucket")


def _percentiles(column: str, shares: Sequence[float], exact: bool) -> Column:
    from pyspark.sql import functions as F

    wanted: Any = F.array(*map(F.lit, shares))
    if exact:
        return F.percentile(column, wanted)
    return F.percentile_approx(column, wanted, ACCURACY)
