"""Conditions that Spark leaves to the source: exact, on Arrow columns, before rows are made.

What is pushed is not checked again by Spark, so only what means here what it means in SQL is taken:
comparisons of these columns with values, null being neither true nor false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from zbus.spark.options import Wish

COLUMNS: Final = frozenset(("topic", "partition", "offset", "timestamp", "id", "tag", "key"))
"""Of these a condition may be pushed."""

Condition = tuple[str, str, Any]
"""Column, operation, value. It travels to other machines."""

_TYPES: Final = {"partition": int, "offset": int, "timestamp": datetime}

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    "in": lambda column, value: pc.is_in(column, value_set=value),
    "starts": lambda column, value: pc.starts_with(column, value),
    "ends": lambda column, value: pc.ends_with(column, value),
    "contains": lambda column, value: pc.match_substring(column, value),
    "null": lambda column, value: pc.is_null(column),
}

_NAMES: Final[dict[type[spark.Filter], str]] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.In: "in",
    spark.StringStartsWith: "starts",
    spark.StringEndsWith: "ends",
    spark.StringContains: "contains",
    spark.IsNull: "null",
}


def condition_of(found: spark.Filter) -> Condition | None:
    """What can be taken over; None = Spark has to see to it."""
    if isinstance(found, spark.IsNotNull):
        return _condition(spark.IsNull(found.attribute), "not ")
    if isinstance(found, spark.Not):
        return _condition(found.child, "not ")
    return _condition(found, "")


def _condition(found: spark.Filter, negated: str) -> Condition | None:
    name = _NAMES.get(type(found))
    column = ".".join(getattr(found, "attribute", ()))
    if name is None or column not in COLUMNS:
        return None
    value = getattr(found, "value", None)
    if name != "null" and not _fits(column, name, value):
        return None
    return column, negated + name, value


def _fits(column: str, name: str, value: Any) -> bool:  # noqa: ANN401 - a literal of SQL
    kind = _TYPES.get(column, str)
    if name in ("starts", "ends", "contains"):
        return kind is str and isinstance(value, str)
    values = value if name == "in" else (value,)
    return all(type(each) is kind and getattr(each, "tzinfo", True) for each in values)


def tags_condition(wish: Wish) -> list[Condition]:
    """Of the option `tags`."""
    return [("tag", "in", tuple(sorted(wish.tags)))] if wish.tags else []


def select(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """The rows for which all are true."""
    mask = None
    for column, name, value in conditions:
        plain = name.removeprefix("not ")
        values = batch.column(column)
        if plain == "in":
            value = pa.array(value, values.type)
        elif plain in ("=", ">", ">=", "<", "<="):
            value = pa.scalar(value, values.type)
        found = _OPERATIONS[plain](values, value)
        if plain == "in":  # of null it says false
            found = pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), found)
        found = pc.invert(found) if name != plain else found
        mask = found if mask is None else pc.and_kleene(mask, found)
    return batch if mask is None else batch.filter(mask)


def offsets_between(conditions: Sequence[Condition]) -> tuple[int, int]:
    """Offsets outside of these fulfil none of the conditions."""
    low, high = 0, 1 << 63
    for column, name, value in conditions:
        if column != "offset":
            continue
        if name in ("=", ">", ">="):
            low = max(low, value + (name == ">"))
        if name in ("=", "<", "<="):
            high = min(high, value + (name != "<"))
    return low, high


def times_between(conditions: Sequence[Condition]) -> tuple[datetime | None, datetime | None]:
    """The same of times: from the first, and not after the second."""
    lows = [v for c, n, v in conditions if c == "timestamp" and n in ("=", ">", ">=")]
    highs = [v for c, n, v in conditions if c == "timestamp" and n in ("=", "<", "<=")]
    return max(lows, default=None), min(highs, default=None)
