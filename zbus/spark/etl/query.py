"""The query of a job over a frame of messages: what comes out, what is bad, and counts of both."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from zbus.spark.errors import Usage
from zbus.spark.etl import history, parsing
from zbus.spark.etl.counting import Counts
from zbus.spark.etl.job import Job
from zbus.spark.io import problems
from zbus.spark.times import interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

VIEW: Final = "input"
READ: Final = "zbus_read"
RESULTS: Final = "zbus_results"
BAD: Final = "zbus_bad"

Observe = Callable[..., "DataFrame"]
"""(rows, name, *columns) -> the same rows, counted on their way under that name."""

_BY_ROW: Final = (
    "Project",
    "Filter",
    "SubqueryAlias",
    "View",
    "WithCTE",
    "CTERelationDef",
    "CTERelationRef",
    "CollectMetrics",
    "EventTimeWatermark",
    "LogicalRDD",
    "LocalRelation",
    "RelationV2",
    "DataSourceV2Relation",
    "StreamingRelationV2",
    "StreamingDataSourceV2Relation",
    "StreamingRelation",
    "StreamingExecutionRelation",
    "Relation",
    "UnresolvedHint",
    "ResolvedHint",
    "DataSourceV2ScanRelation",
    "StreamingDataSourceV2ScanRelation",
)
"""Nodes of a plan that make of each row one row or none. Others may make more, or count."""


@attrs.frozen
class Outcome:
    """What a job makes of its input."""

    results: DataFrame
    bad: DataFrame | None  # with the columns of `mapping.SINK`
    by_row: bool


def apply(spark: SparkSession, rows: DataFrame, job: Job, name: str, observe: Observe) -> Outcome:
    """The frames of a job; `rows` are the messages. Raises Usage."""
    from pyspark.sql import functions as F

    bad = None
    if job.parse is not None:
        rows = parsing.parsed(rows, job.parse, job.schema, job.delimiter)
        if job.bad_rows is not None:
            found = parsing.bad(rows, job.bad_rows, name)
            bad = observe(found, BAD, F.count(F.lit(1)).alias("rows"))
    wrong = F.col(parsing.WHY) if job.parse is not None else F.lit(None)
    rows = observe(rows, READ, F.count(F.lit(1)).alias("rows"), F.count(wrong).alias("bad"))
    if job.parse is not None:
        rows = parsing.good(rows) if bad is not None else parsing.good_or_end(rows)
    rows = _timed(rows, job)
    results = _queried(spark, rows, job)
    by_row = is_by_row(_plan_of(results))
    counted = observe(results, RESULTS, F.count(F.lit(1)).alias("rows"))
    return Outcome(counted, bad, by_row)


def counts_of(
    metrics: Mapping[str, Mapping[str, Any]], by_row: bool, offsets: int | None, has_bad: bool
) -> Counts:
    """Of what was observed of a batch. Spark leaves out of a plan what cannot give rows, and what
    counts there with it: then nothing is judged."""
    if READ not in metrics:
        return Counts(by_row=False)
    read, results, kept = (metrics.get(name, {}) for name in (READ, RESULTS, BAD))
    return Counts(
        offsets=offsets,
        read=read.get("rows", 0),
        bad=read.get("bad", 0),
        results=results.get("rows", 0),
        bad_kept=kept.get("rows", 0) if has_bad else read.get("bad", 0),
        by_row=by_row,
    )


def _timed(rows: DataFrame, job: Job) -> DataFrame:
    if job.watermark is None:
        return rows
    from pyspark.sql import functions as F

    column = "timestamp"
    with problems("--watermark, --event-time"):
        if job.event_time is not None:
            column = "event_time"
            rows = rows.withColumn(column, F.expr(job.event_time).cast("timestamp"))
        return rows.withWatermark(column, interval(job.watermark, "--watermark"))


def _queried(spark: SparkSession, rows: DataFrame, job: Job) -> DataFrame:
    results = rows
    with problems("the query cannot be done"):
        if job.sql is not None:
            rows.createOrReplaceTempView(VIEW)
            results = spark.sql(job.sql)
        if job.transform is not None:
            results = _function(job.transform)(results)
        columns, streams = results.columns, results.isStreaming
    if not columns:
        raise Usage("the query gives no rows: it is one that begins with select or with")
    if streams != rows.isStreaming:
        raise Usage(f"the query does not read from {VIEW}")
    return results


def _function(name: str) -> Callable[[DataFrame], DataFrame]:
    module, _, inner = name.partition(":")
    if not module or not inner:
        raise Usage(f"--transform {name}: it is like package.module:function")
    try:
        found = getattr(importlib.import_module(module), inner)
    except (ImportError, AttributeError) as error:
        raise Usage(f"--transform {name}: {error}") from error

    def called(rows: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        made = found(rows)
        if not isinstance(made, DataFrame):
            raise Usage(f"--transform {name} returned {type(made).__name__}, not a DataFrame")
        return made

    return called


def facts(job: Job) -> history.Facts:
    """What of a job may not change on its checkpoint."""
    sink = f"--files {job.files}" if job.files else ("--route" if job.route else f"--to {job.to}")
    return {
        "--from": ", ".join(sorted(job.sources)),
        "--sql": history.one_line(job.sql) if job.sql else None,
        "--transform": _fingerprint(job.transform) if job.transform else None,
        "--parse": job.parse,
        "--schema": history.one_line(job.schema) if job.schema else None,
        "--delimiter": job.delimiter if job.parse == "csv" else None,
        "--event-time": job.event_time,
        "--watermark": job.watermark,
        "--mode": job.mode,
        "--bad-rows": job.bad_rows,
        "sink": sink,
    }


def _fingerprint(transform: str) -> str:
    """The name of a function, and its text if there is one: a changed function is another."""
    module, _, inner = transform.partition(":")
    try:
        source = inspect.getsource(getattr(importlib.import_module(module), inner))
    except (ImportError, AttributeError, OSError, TypeError):
        return transform
    return f"{transform} {history.digest({'source': source})}"


def is_by_row(plan: str) -> bool:
    """Whether a plan, as Spark prints it, makes of each row one row or none."""
    for line in plan.splitlines():
        words = line.lstrip(" :+-!~*'").split("(")[0].split()
        if words and words[0].split("[")[0] not in _BY_ROW:
            return False
    return "explode" not in plan


def _plan_of(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().analyzed().treeString())
