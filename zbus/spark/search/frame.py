"""The engine of Spark: the same query, on as many machines as it has. What SQL does not say is
asked of the same functions as in the local engine, on Arrow columns."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.archive.spark import open_files
from zbus.spark.errors import SparkProblem, Usage, problem_in
from zbus.spark.io import where_options
from zbus.spark.search.conditions import Conditions
from zbus.spark.search.query import IN_ORDER, SPARK, columns, condition
from zbus.spark.search.results import Body, result_schema
from zbus.spark.search.scope import Scope
from zbus.spark.search.verdicts import Test, tests_of
from zbus.spark.session import without_a_log
from zbus.spark.source.columns import arrow_schema
from zbus.spark.source.location import Where
from zbus.spark.source.planning import Part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

AT_ONCE_MAX: Final = 10_000
"""Results that the driver takes as one table."""

BATCH_ROWS: Final = 1_000

_FORMAT: Final = "zbus"
_MINE: Final = ("pyspark", "py4j")
_VIEW: Final = "zbus_messages"


def search(
    spark: SparkSession, scope: Scope, conditions: Conditions, body: Body, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Results in order: one more than `limit`, if there are that many. Raises Usage, DataLoss."""
    try:
        with without_a_log():
            found = select(spark, messages(spark, scope), conditions)
            query = f"SELECT {columns(body, SPARK)} FROM {_VIEW} m {IN_ORDER}"
            with _named(found):
                found = spark.sql(query if limit is None else f"{query} LIMIT {limit + 1}")
        if limit is None or limit > AT_ONCE_MAX:
            yield from _one_after_another(found, body)
            return
        with without_a_log():
            table = found.toArrow().cast(result_schema(body))
    except Exception as error:
        raise _problem(error, conditions) from error
    yield from table.combine_chunks().to_batches()


@contextmanager
def _named(table: DataFrame) -> Iterator[None]:
    """A query finds the table by its name; what has been asked stays what it is."""
    table.createOrReplaceTempView(_VIEW)
    try:
        yield
    finally:
        table.sparkSession.catalog.dropTempView(_VIEW)


def messages(spark: SparkSession, scope: Scope) -> DataFrame:
    """All that a search looks at, as one table with the columns of messages."""
    tables = [open_files(spark, [file.path for file in scope.files])]
    if scope.parts and scope.where is not None:
        tables.append(_live(spark, scope.where, scope.parts))
    return reduce(lambda one, other: one.unionByName(other), tables)


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


def select(spark: SparkSession, table: DataFrame, conditions: Conditions) -> DataFrame:
    """The messages for which all are true."""
    from pyspark.sql import functions

    if conditions.where is not None:
        table = table.filter(functions.expr(conditions.where))
    where, parameters = condition(conditions, SPARK)
    with _named(table):
        table = spark.sql(f"SELECT * FROM {_VIEW} m WHERE {where}", args=parameters)
    tests = tests_of(conditions)
    return table.filter(_by_arrow(tests)) if tests else table


def _by_arrow(tests: Sequence[Test]) -> Column:
    """Those that Spark has no words for, in one go."""
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    schema = arrow_schema(list(dict.fromkeys(test.column for test in tests)))

    def true_for(*arrays: pa.Array) -> pa.Array:
        given = {
            field.name: array.cast(field.type) for array, field in zip(arrays, schema, strict=True)
        }
        return reduce(pc.and_, (test.verdict(given[test.column]) for test in tests))

    with warnings.catch_warnings():  # hints instead of the kind would need pandas
        warnings.simplefilter("ignore")
        function = arrow_udf(true_for, "boolean", ArrowUDFType.SCALAR)
    return function(*schema.names)


# -- results --------------------------------------------------------------------------------------


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
