"""Messages as they are put again: as they were, and where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zbus.spark.dedup import frames as dedup
from zbus.spark.errors import Usage
from zbus.spark.etl.mapping import SINK
from zbus.spark.etl.parsing import header_of
from zbus.spark.replay.pacing import Bucket, Slice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PREFIX: Final = "x-replay-"
ORDER: Final = ("topic", "partition", "offset")


def chosen(
    rows: DataFrame,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    where: str | None = None,
    dedupe_id: bool = False,
    limit: int | None = None,
) -> DataFrame:
    """What is replayed of these messages. Raises Usage."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    if since_ms is not None:
        rows = rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(since_ms)))
    if until_ms is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(until_ms)))
    if where is not None:
        try:
            rows = rows.where(F.expr(where))
            rows.schema  # noqa: B018 - Spark analyses it here
        except PySparkException as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise Usage(f"--where {where}: {first}") from error
    if dedupe_id:
        rows = dedup.clean(rows, dedup.duplicates(rows))
    return rows if limit is None else _first(rows, limit)


def _first(rows: DataFrame, limit: int) -> DataFrame:
    """The first that many, in order. Their bodies are not sorted for that."""
    from pyspark.sql import functions as F

    places = rows.select(*ORDER).orderBy(*ORDER).limit(limit)
    last = places.agg(F.max(F.struct(*ORDER)).alias("last")).collect()[0]["last"]
    if last is None or limit <= 0:
        return rows.limit(0)
    edge = F.struct(*(F.lit(last[name]).alias(name) for name in ORDER))
    return rows.where(F.struct(*ORDER) <= edge)


def messages(rows: DataFrame, to: str, run: str, keep_time: bool = False) -> DataFrame:
    """What the sink is given (`mapping.SINK`), in order of topic, partition and offset: Spark's
    partitions one after another, and each by itself."""
    from pyspark.sql import functions as F

    header_columns = {
        "topic": header_of(F.col("topic")),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "run": F.lit(run),
    }
    lines = [
        part for name, value in header_columns.items() for part in (F.lit(PREFIX + name), value)
    ]
    own = F.map_filter("headers", lambda name, _: ~F.startswith(name, F.lit(PREFIX)))
    nothing = F.create_map().cast("map<string,string>")
    columns = {
        "topic": _target(to),
        "key": F.col("key"),
        "tag": F.col("tag"),
        "id": F.col("id"),
        "headers": F.map_concat(F.coalesce(own, nothing), F.create_map(*lines)),
        "deliver_at": F.col("deliver_at") if keep_time else F.lit(None).cast("timestamp"),
        "body": F.coalesce("body", F.lit(b"")),
    }
    return rows.orderBy(*ORDER).select(*(columns[name].alias(name) for name in SINK))


def _target(to: str) -> Column:
    from pyspark.sql import functions as F

    parts: list[Column] = []
    for number, text in enumerate(to.split("{topic}")):
        parts += [F.col("topic")] * (number > 0) + [F.lit(text)]
    return F.concat(*parts)


def buckets(rows: DataFrame, width_ms: int) -> list[Bucket]:
    """How much was stored when, in order."""
    from pyspark.sql import functions as F

    start = F.floor(F.unix_millis("timestamp") / width_ms) * width_ms
    size = F.coalesce(F.length("body"), F.lit(0))
    found = rows.select(start.cast("long").alias("start"), size.cast("long").alias("size"))
    sums = found.groupBy("start").agg(F.count(F.lit(1)).alias("n"), F.sum("size").alias("bytes"))
    return sorted(Bucket(row["start"], row["n"], row["bytes"]) for row in sums.collect())


def times(rows: DataFrame) -> tuple[int, int, int, int] | None:
    """Messages, bytes, and the first and the last time in milliseconds; None if there are none."""
    from pyspark.sql import functions as F

    size = F.sum(F.coalesce(F.length("body"), F.lit(0)).cast("long"))
    at = F.unix_millis("timestamp")
    row = rows.agg(F.count(F.lit(1)), size, F.min(at), F.max(at)).collect()[0]
    return (row[0], row[1], row[2], row[3]) if row[0] else None


def of_slice(rows: DataFrame, one: Slice) -> DataFrame:
    """What was stored then."""
    return chosen(rows, since_ms=one.start_ms, until_ms=one.end_ms)


def topics_of(rows: DataFrame) -> list[str]:
    """The topics that there are."""
    return sorted(row["topic"] for row in rows.select("topic").distinct().collect())
