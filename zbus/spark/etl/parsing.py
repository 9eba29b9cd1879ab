"""Bodies as values, and those that are none.

A body is parsed into the column `value`. Whatever is wrong with it is said in `_why`; such a row
is bad, and goes with its reason and its place into the topic of bad rows, which `zbus spark dlq`
reads like one of dead letters. Without such a topic the first bad row ends the job: no row is
dropped silently.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from zbus.spark.errors import Unverified, Usage, marker_of
from zbus.spark.io import problems

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

WHY: Final = "_why"
PREFIX: Final = "x-bad-"
"""Begins the headers that say where a bad row comes from, and why it is bad."""

_CORRUPT: Final = "_zbus_corrupt"
_NEEDED_TEXT: Final = "UTF-8"


def schema_of(ddl: str) -> StructType:
    """Raises Usage."""
    from pyspark.sql.types import StructType

    with problems(f"--schema {ddl!r} cannot be read"):
        found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType) or not found.fields:
        raise Usage(f"--schema {ddl!r} has no columns: it is like 'carrier string, delay int'")
    return found


def parsed(rows: DataFrame, parse: str, ddl: str | None, delimiter: str = ",") -> DataFrame:
    """Rows with `value`, and with `_why`: null where the body could be parsed. Raises Usage."""
    from pyspark.sql import functions as F

    text = F.col("body").cast("string")
    empty = F.col("body").isNull() | (F.length("body") == 0)
    reasons = F.when(F.col("body").isNull(), "no body")
    reasons = reasons.when(~F.is_valid_utf8(text), f"not {_NEEDED_TEXT}")
    if parse == "text":
        value = F.coalesce(text, F.lit(""))
        return rows.withColumn("value", value).withColumn(WHY, reasons)
    assert ddl is not None
    fields = schema_of(ddl)
    if any(field.name == _CORRUPT for field in fields):
        raise Usage(f"--schema: {_CORRUPT} is not for columns")
    whole = rows.withColumn("_whole", _read(text, parse, fields, delimiter))
    corrupt = F.col(f"_whole.{_CORRUPT}").isNotNull() | F.col("_whole").isNull()
    reasons = reasons.when(empty, "empty").when(corrupt, f"not {parse} of this schema")
    if parse == "json":
        reasons = reasons.when(~_is_one(text), "not one json document")
    for field in fields:
        if not field.nullable:
            missing = F.col("_whole").getField(field.name).isNull()
            reasons = reasons.when(missing, F.lit(f"no {field.name}"))
    value = F.struct(*(F.col("_whole").getField(f.name).alias(f.name) for f in fields))
    return whole.withColumn("value", value).withColumn(WHY, reasons).drop("_whole")


def _read(text: Column, parse: str, fields: StructType, delimiter: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    loose: list[StructField] = [StructField(f.name, f.dataType, True) for f in fields]
    schema = StructType([*loose, StructField(_CORRUPT, StringType(), True)])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if parse == "json":
        return F.from_json(text, schema, options)
    without_end = F.expr("trim(trailing '\\r\\n' from cast(body as string))")
    return F.from_csv(without_end, schema.toDDL(), {**options, "sep": delimiter})


def _is_one(text: Column) -> Column:
    """Whether a text is one document of JSON and nothing else. Spark reads the first one, and does
    not look behind it. So the text is read as the first of two in a list; an author of the text
    cannot guess the second, and pretend."""
    from pyspark.sql import functions as F

    mark = secrets.token_hex(8)
    pair = F.concat(F.lit("["), text, F.lit(f',"{mark}"]'))
    return F.coalesce(F.get_json_object(pair, "$[1]") == mark, F.lit(False))


def good(rows: DataFrame) -> DataFrame:
    """What could be parsed."""
    from pyspark.sql import functions as F

    return rows.where(F.col(WHY).isNull()).drop(WHY)


def good_or_end(rows: DataFrame) -> DataFrame:
    """All rows; a bad one ends the job when it is come to."""
    from pyspark.sql import functions as F

    place = F.concat_ws(" ", F.lit("offset"), "offset", F.lit("of"), "topic")
    advice = F.lit("; --bad-rows TOPIC keeps such rows")
    text = F.concat(F.lit(marker_of(Unverified)), place, F.lit(" is bad: "), F.col(WHY), advice)
    ends = F.raise_error(text).cast("boolean")
    return rows.where(F.when(F.col(WHY).isNull(), F.lit(True)).otherwise(ends)).drop(WHY)


def bad(rows: DataFrame, topic: str, job: str) -> DataFrame:
    """What could not, as messages of this topic: as it was, and why (columns of `mapping.SINK`)."""
    from pyspark.sql import functions as F

    kept = F.map_filter("headers", lambda name, _: ~F.startswith(name, F.lit(PREFIX)))
    header_columns = {
        "topic": header_of(F.col("topic")),
        "job": header_of(F.lit(job)),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "reason": F.col(WHY),
    }
    lines = [
        part for name, value in header_columns.items() for part in (F.lit(PREFIX + name), value)
    ]
    nothing = F.create_map().cast("map<string,string>")
    return rows.where(F.col(WHY).isNotNull()).select(
        F.lit(topic).alias("topic"),
        "key",
        "tag",
        "id",
        F.map_concat(F.coalesce(kept, nothing), F.create_map(*lines)).alias("headers"),
        F.lit(None).cast("timestamp").alias("deliver_at"),
        F.coalesce("body", F.lit(b"")).alias("body"),
    )


def header_of(name: Column) -> Column:
    """A name as the broker has it in a header: percent-encoded."""
    from pyspark.sql import functions as F

    return F.replace(F.url_encode(name), F.lit("+"), F.lit("%20"))
