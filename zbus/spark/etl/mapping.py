"""Which column of a result becomes what of a message.

Columns named like those of the sink are that: key, tag, id, headers, deliver_at and body, and with
`--route` topic. Without a `body` all other columns are a JSON object, which is the body. With one,
the columns that every message has (topic, partition, offset, timestamp) and what was parsed of it
are left out, so that `select * from input where …` passes messages on as they are; any other
column would be lost, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from zbus.spark.errors import Usage, marker_of
from zbus.spark.sink.encode import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOPIC: Final = "topic"
LABELS: Final = ("key", "tag", "id", "headers", "deliver_at")
TYPES: Final = {name: kinds[0] for name, kinds in COLUMNS.items()}
SINK: Final = tuple(TYPES)
"""The columns that go into the sink, in this order."""

DDL: Final = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())

LEFT_OUT: Final = ("topic", "partition", "offset", "timestamp", "value", "event_time")
_TEXT_LABELS: Final = (TOPIC, "key", "tag", "id")
_NO_TEXT: Final = ("binary", "array", "map", "struct", "variant")


@attrs.frozen
class Plan:
    labels: tuple[str, ...]  # columns that are labels of a message
    body: tuple[str, ...]  # columns of a JSON object
    has_body: bool  # there is a column `body`


def plan(types: Mapping[str, str], route: bool) -> Plan:
    """Of a result with columns of these simple types. Raises Usage."""
    labels = (TOPIC, *LABELS) if route else LABELS
    if route and TOPIC not in types:
        raise Usage("--route needs a column `topic` in the result")
    for name in labels:
        if name in types:
            _check_label(name, types[name])
    others = [name for name in types if name not in labels]
    has_body = "body" in types
    if has_body:
        lost = [name for name in others if name != "body" and name not in LEFT_OUT]
        if lost:
            raise Usage(
                f"the result has a column `body`, so {', '.join(lost)} would be lost: leave body"
                " out for a JSON object of all columns, or put them into headers"
            )
    elif not others:
        raise Usage("the result has only labels: a message needs a body, or columns to make one of")
    known = tuple(name for name in labels if name in types)
    return Plan(known, () if has_body else tuple(others), has_body)


def _check_label(name: str, kind: str) -> None:
    if name == "headers":
        fits, wanted = kind.startswith(("map", "void")), "map<string,string>"
    elif name == "deliver_at":
        fits, wanted = kind.startswith(("timestamp", "void")), "timestamp"
    else:
        fits, wanted = not kind.startswith(_NO_TEXT), "string"
    if not fits:
        raise Usage(f"the column {name} of the result is {kind}; the sink wants {wanted}")


def messages(result: DataFrame, to: str | None) -> DataFrame:
    """A result as messages, with the columns SINK; `to` is None with `--route`. Raises Usage."""
    from pyspark.sql import functions as F

    names = result.columns
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Usage(f"the result has {', '.join(twice)} more than once: name columns with `as`")
    types = dict(result.dtypes)
    mapping = plan(types, to is None)
    columns: dict[str, Column] = {TOPIC: F.lit(to)}
    for name in LABELS:
        columns[name] = F.lit(None)
    for name in mapping.labels:
        columns[name] = F.col(_quoted(name))
    if to is None:
        text = f"{marker_of(Usage)}a row of the result has no topic, which --route needs"
        missing = F.raise_error(F.lit(text))
        columns[TOPIC] = F.coalesce(columns[TOPIC].cast("string"), missing.cast("string"))
    columns["body"] = _body(mapping, types)
    return result.select(*(columns[name].cast(kind).alias(name) for name, kind in TYPES.items()))


def _body(mapping: Plan, types: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as F

    if not mapping.has_body:
        fields = [F.col(_quoted(name)).alias(name) for name in mapping.body]
        return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"})
    body = F.col("body")
    kind = types["body"]
    if kind.startswith(("array", "map", "struct", "variant")):
        return F.to_json(body)
    return body if kind == "binary" else body.cast("string")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
