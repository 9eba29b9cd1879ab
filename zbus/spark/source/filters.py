"""Conditions that Spark leaves to the source: exact, on Arrow columns, before rows are made.

What is pushed is not checked again by Spark, so only what means here what it means in SQL is taken:
comparisons of these columns with values, null being neither true nor false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from zbus.spark.options import Wish
from zbus.spark.source.columns import ARROW

COLUMNS: Final = frozenset(("topic", "partition", "offset", "timestamp", "id", "tag", "key"))
"""Of these a condition may be pushed."""

Condition = tuple[str, str, Any]
"""Column, operation, value. It travels to other machines."""

_TYPES: Final = {"partition": int, "offset": int, "timestamp": datetime}

_OPERATIONS: Final[dict[str, Callable[[pc.Expression, Any], pc.Expression]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "starts": pc.starts_with,
    "ends": pc.ends_with,
    "contains": pc.match_substring,
    "null": lambda column, _: column.is_null(),
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


def expression_of(conditions: Sequence[Condition]) -> pc.Expression | None:
    """Whether all are true, for Arrow; null is neither true nor false. None: there are none."""
    return reduce(operator.and_, [_expression(*each) for each in conditions] or [None])


def _expression(column: str, name: str, value: Any) -> pc.Expression:  # noqa: ANN401 - a literal
    plain = name.removeprefix("not ")
    field, kind = pc.field(column), ARROW[column]
    if plain == "in":
        # Of null it says false, which is turned round below.
        found = field.isin(pa.array(value, kind))
        return (~found if name != plain else found) & field.is_valid()
    if isinstance(value, int | datetime):
        value = pa.scalar(value, kind)
    found = _OPERATIONS[plain](field, value)
    return ~found if name != plain else found


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
