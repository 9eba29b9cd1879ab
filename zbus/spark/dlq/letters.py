"""Dead letters as a frame: where each comes from, why it died, and of which error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zbus.spark.dlq.fingerprints import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

ERROR_HEADERS: Final = ("x-bad-reason", "x-error", "error", "x-exception", "exception")
"""Where consumers write what went wrong; the first that a message has counts."""

COUNT: Final = "x-redrive-count"
"""The header that says how often a message was sent back."""

GROUP_BY: Final = ("origin", "group", "reason", "fingerprint", "tag", "hour")
SAMPLES: Final = 3


def letters(rows: DataFrame, error_headers: Sequence[str] = ERROR_HEADERS) -> DataFrame:
    """Messages of a dead-letter topic (or of bad rows) with what their headers say, as columns:
    `origin`, `group`, `origin_partition`, `origin_offset`, `attempts`, `reason`, `error`,
    `fingerprint`, `hour`, `redrives`."""
    from pyspark.sql import functions as F

    error = F.coalesce(*(_header(name.lower()) for name in error_headers), F.lit(""))
    bad = F.when(_header("x-bad-reason").isNotNull(), "unparseable")
    found = rows.withColumns(
        {
            "origin": F.coalesce(_name("dead_topic"), _name("x-bad-topic")),
            "group": F.coalesce(_name("dead_group"), _name("x-bad-job")),
            "origin_partition": _either("partition", "int"),
            "origin_offset": _either("offset", "long"),
            "attempts": _number("dead_attempts", "int"),
            "reason": F.coalesce(_header("dead_reason"), bad),
            "error": error,
            "hour": F.date_trunc("hour", "timestamp"),
            "redrives": F.coalesce(_number(COUNT, "int"), F.lit(0)),
        }
    )
    return found.withColumn("fingerprint", fingerprint(F.col("error")))


def _header(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.try_element_at("headers", F.lit(name))


def _number(name: str, kind: str) -> Column:
    return _header(name).try_cast(kind)


def _either(name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(_number(f"dead_{name}", kind), _number(f"x-bad-{name}", kind))


def _name(header: str) -> Column:
    """Percent-encoded; a plus is one."""
    from pyspark.sql import functions as F

    return F.try_url_decode(F.replace(_header(header), F.lit("+"), F.lit("%2B")))


def summary(found: DataFrame, body_bytes: int = 0) -> DataFrame:
    """What has the same origin, group, reason, fingerprint, tag and hour: how many, the first and
    the last time, and the first few of them. The largest come first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    nth = Window.partitionBy(*GROUP_BY).orderBy("timestamp", "partition", "offset")
    body = F.lit(None).cast("binary") if not body_bytes else F.substring("body", 1, body_bytes)
    sample = F.struct(
        "partition",
        "offset",
        "id",
        "origin_partition",
        "origin_offset",
        "attempts",
        "redrives",
        F.substring("error", 1, 500).alias("error"),
        body.cast("string").alias("body"),
    )
    narrow = found.select(*GROUP_BY, "timestamp", "offset", "partition", sample.alias("sample"))
    numbered = narrow.withColumn("nth", F.row_number().over(nth))
    first = F.when(F.col("nth") <= SAMPLES, F.struct("nth", "sample"))
    grouped = numbered.groupBy(*GROUP_BY).agg(
        F.count(F.lit(1)).alias("count"),
        F.min("timestamp").alias("first"),
        F.max("timestamp").alias("last"),
        F.array_sort(F.collect_list(first)).alias("samples"),
    )
    samples = F.transform("samples", lambda one: one["sample"])
    ordered = grouped.withColumn("samples", samples)
    return ordered.orderBy(F.desc("count"), *(F.asc_nulls_first(name) for name in GROUP_BY))
