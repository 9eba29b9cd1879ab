"""The engine of Spark: the conditions as expressions of columns, so that Spark reads of an archive
what it has to, on as many machines as it has.

Values are literals of the expressions and never a part of a text. What Spark's words would do
differently (`verdicts`) is done by the same functions as in the local engine, on Arrow columns.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.errors import SparkProblem, Usage, problem_in
from zbus.spark.io import where_options
from zbus.spark.search.conditions import Conditions
from zbus.spark.search.cursor import ORDER
from zbus.spark.search.results import (
    HEAD_BYTES,
    Body,
    result_schema,
)
from zbus.spark.search.scope import ArchivedFile, Scope
from zbus.spark.search.verdicts import Test, columns_of, moment, tests_of, verdict_of
from zbus.spark.session import without_a_log
from zbus.spark.source.columns import DDL, NAMES, arrow_schema
from zbus.spark.source.location import Where
from zbus.spark.source.planning import Part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

AT_ONCE_MAX: Final = 10_000
"""Results that the driver takes as one table."""

BATCH_ROWS: Final = 1_000

_FORMAT: Final = "zbus"
_MINE: Final = ("pyspark", "py4j")


def search(
    spark: SparkSession, scope: Scope, conditions: Conditions, body: Body, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Results in order: one more than `limit`, if there are that many. Raises Usage, DataLoss."""
    try:
        with without_a_log():
            found = select(messages(spark, scope), conditions)
        found = _results(found, body).orderBy(*ORDER)
        if limit is not None:
            found = found.limit(limit + 1)
        if limit is None or limit > AT_ONCE_MAX:
            yield from _one_after_another(found, body)
            return
        with without_a_log():
            table = found.toArrow().cast(result_schema(body))
    except Exception as error:
        raise _problem(error, conditions) from error
    yield from table.combine_chunks().to_batches()


def messages(spark: SparkSession, scope: Scope) -> DataFrame:
    """All that a search looks at, as one table with the columns of messages."""
    tables = [_archived(spark, files) for files in _by_topic(scope.files)]
    if scope.parts and scope.where is not None:
        tables.append(_live(spark, scope.where, scope.parts))
    if not tables:
        return spark.createDataFrame([], DDL)
    return reduce(lambda one, other: one.unionByName(other), tables)


def _by_topic(files: Sequence[ArchivedFile]) -> list[list[ArchivedFile]]:
    found: dict[str, list[ArchivedFile]] = {}
    for file in files:
        found.setdefault(file.topic, []).append(file)
    return list(found.values())


def _archived(spark: SparkSession, files: Sequence[ArchivedFile]) -> DataFrame:
    from pyspark.sql import functions

    schema = DDL.removeprefix("topic string, ")  # which the files do not have
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    topic = functions.lit(files[0].topic)
    table = reader.parquet(*(file.path for file in files))
    return table.withColumn("topic", topic).select(*NAMES)


def _live(spark: SparkSession, where: Where, parts: Sequence[Part]) -> DataFrame:
    from zbus.spark import register

    register(spark)
    starts: dict[str, dict[str, int]] = {}
    stops: dict[str, dict[str, int]] = {}
    for part in _whole(where, parts):
        starts.setdefault(part.span.topic, {})[str(part.span.partition)] = part.start
        stops.setdefault(part.span.topic, {})[str(part.span.partition)] = part.stop
    reader = spark.read.format(_FORMAT).options(**where_options(where))
    # Names can have commas.
    reader = reader.option("topicsPattern", "|".join(re.escape(topic) for topic in starts))
    reader = reader.option("startingOffsets", json.dumps(starts))
    return reader.option("endingOffsets", json.dumps(stops)).load()


def _whole(where: Where, parts: Sequence[Part]) -> list[Part]:
    """With an empty part for each partition of which nothing is searched: the source wants all."""
    there = {(part.span.topic, part.span.partition): part for part in parts}
    with where.open() as log:
        topics = dict.fromkeys(part.span.topic for part in parts)
        spans = [span for topic in topics for span in log.spans(topic)]
    found = [
        there.get((span.topic, span.partition), Part(span, span.end, span.end)) for span in spans
    ]
    for part, span in zip(found, spans, strict=True):
        if part.span.incarnation != span.incarnation:
            raise SparkProblem(f"the topic {span.topic} was made again meanwhile: search once more")
    return found


# -- conditions -----------------------------------------------------------------------------------


def select(table: DataFrame, conditions: Conditions) -> DataFrame:
    """The messages for which all are true."""
    from pyspark.sql import functions

    for column in columns(conditions):
        table = table.filter(column)
    if conditions.where is not None:
        table = table.filter(functions.expr(conditions.where))
    rest = [test for test in tests_of(conditions) if not test.spark]
    return table.filter(_by_arrow(rest)) if rest else table


def columns(conditions: Conditions) -> list[Column]:
    """Those that Spark has words for."""
    from pyspark.sql import functions as f

    found = [
        f.col(name).isin(*map(f.lit, values))
        for name, values in (
            ("id", conditions.ids),
            ("key", conditions.keys),
            ("tag", conditions.tags),
        )
        if values
    ]
    if conditions.since_ms is not None:
        found.append(f.col("timestamp") >= f.lit(moment(conditions.since_ms)))
    if conditions.until_ms is not None:
        found.append(f.col("timestamp") < f.lit(moment(conditions.until_ms)))
    if conditions.after is not None:
        cursor = conditions.after
        values = (cursor.topic, cursor.partition, moment(cursor.time_ms), cursor.offset)
        found.append(_behind(list(zip(ORDER, values, strict=True))))
    found += [
        f.try_element_at(f.col("headers"), f.lit(name)) == f.lit(value)
        for name, value in conditions.headers
    ]
    found += [f.contains(f.col("body"), f.lit(bytearray(text))) for text in conditions.contains]
    return found


def _behind(place: Sequence[tuple[str, Any]]) -> Column:
    from pyspark.sql import functions as f

    (name, value), *rest = place
    further = f.col(name) > f.lit(value)
    return further | ((f.col(name) == f.lit(value)) & _behind(rest)) if rest else further


def _by_arrow(tests: Sequence[Test]) -> Column:
    """Those that Spark has no words for, in one go."""
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    schema = arrow_schema(columns_of(tests))

    def true_for(*arrays: pa.Array) -> pa.Array:
        columns = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return reduce(pc.and_, (verdict_of(batch, test) for test in tests))

    with warnings.catch_warnings():  # hints instead of the kind would need pandas
        warnings.simplefilter("ignore")
        function = arrow_udf(true_for, "boolean", ArrowUDFType.SCALAR)
    return function(*schema.names)


# -- results --------------------------------------------------------------------------------------


def _results(found: DataFrame, body: Body) -> DataFrame:
    from pyspark.sql import functions as f

    size = f.octet_length("body").cast("long").alias("size")
    bodies = {
        Body.NONE: [],
        Body.HEAD: [f.substring("body", 1, HEAD_BYTES).alias("body")],
        Body.FULL: [f.col("body")],
    }
    return found.select(*NAMES[:8], size, *bodies[body])


def _one_after_another(found: DataFrame, body: Body) -> Iterator[pa.RecordBatch]:
    """As many as there are: the driver has a part of them at a time."""
    from pyspark.sql import functions as f

    schema = result_schema(body)
    found = found.withColumn("timestamp", f.unix_micros("timestamp"))
    # As a map of Python they would lose their order.
    rows = found.withColumn("headers", f.map_entries("headers")).toLocalIterator()
    while some := list(islice(rows, BATCH_ROWS)):
        columns = [
            pa.array([_plain(row[field.name]) for row in some], _stored(field.type)).cast(
                field.type
            )
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any column
    if isinstance(value, list):
        return [tuple(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def _problem(error: Exception, conditions: Conditions) -> Exception:
    """In words, if it is one of Spark's."""
    if type(error).__module__.split(".")[0] not in _MINE:
        return error
    problem = problem_in(error)
    if problem is not None:
        return problem
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text_of_error = lines[0] if lines else type(error).__name__
    names = {kind.__name__ for kind in type(error).__mro__}
    if conditions.where is not None and names & {"AnalysisException", "ParseException"}:
        return Usage(f"--where: {text_of_error}")
    return SparkProblem(f"Spark: {text_of_error}")
