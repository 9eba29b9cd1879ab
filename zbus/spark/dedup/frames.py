"""Messages that are there more than once: a table of them, and a topic without.

Two messages are the same if all columns of `--by` are: `id`, `key`, `tag`, `body_hash`, or
`header.NAME`. Of the same, the one that was stored first is kept. One that has none of the values
is like no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zbus.spark.errors import Usage
from zbus.spark.times import interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

COLUMNS: Final = ("id", "key", "tag", "body_hash")
HEADER: Final = "header."
_PLACE: Final = ("topic", "partition", "offset")


def parse_by(text: str) -> tuple[str, ...]:
    """`key,body_hash` -> its columns. Raises Usage."""
    found = tuple(part.strip() for part in text.split(","))
    for name in found:
        if name not in COLUMNS and not (name.startswith(HEADER) and len(name) > len(HEADER)):
            raise Usage(f"--by {name}: there are {', '.join(COLUMNS)} and {HEADER}NAME")
    if len(set(found)) < len(found):
        raise Usage(f"--by {text}: a column is named twice")
    return found


def value_of(name: str) -> Column:
    """What two messages are compared by."""
    from pyspark.sql import functions as F

    if name == "body_hash":
        return F.sha2("body", 256)
    if name.startswith(HEADER):
        return F.try_element_at("headers", F.lit(name.removeprefix(HEADER).lower()))
    return F.col(name)


def duplicates(rows: DataFrame, by: Sequence[str] = ("id",)) -> DataFrame:
    """A row for each message that is there more than once, in one topic: `topic`, the columns of
    `by`, `kept` and `dropped` with partition, offset and time, `count`, `gap_ms` (from the one that
    is kept to the last)."""
    from pyspark.sql import functions as F

    place = F.struct("timestamp", "partition", "offset")
    has_one = F.coalesce(*(value_of(name).cast("string") for name in by)).isNotNull()
    narrow = rows.where(has_one).select("topic", *_values(by), place.alias("place"))
    groups = narrow.groupBy("topic", *(_quoted(name) for name in by))
    found = groups.agg(F.count(F.lit(1)).alias("count"), F.sort_array(F.collect_list("place")))
    places = F.col(_quoted(found.columns[-1]))
    gap = F.unix_millis(F.element_at(places, -1)["timestamp"]) - F.unix_millis(
        places[0]["timestamp"]
    )
    return found.where(F.col("count") > 1).select(
        "topic",
        *(_quoted(name) for name in by),
        "count",
        places[0].alias("kept"),
        F.slice(places, F.lit(2), F.size(places) - 1).alias("dropped"),
        gap.alias("gap_ms"),
    )


def clean(rows: DataFrame, found: DataFrame) -> DataFrame:
    """The messages without what `found` (of `duplicates`) drops."""
    from pyspark.sql import functions as F

    dropped = found.select("topic", F.explode("dropped").alias("place"))
    places = dropped.select("topic", "place.partition", "place.offset")
    return rows.join(places, list(_PLACE), "left_anti")


def within(rows: DataFrame, by: Sequence[str], window: str) -> DataFrame:
    """A stream without what was there within that time; the state is about the ids of the window.
    What has none of the values is not compared."""
    from pyspark.sql import functions as F

    own = F.concat_ws(":", *_PLACE)
    values = [value_of(name) for name in by]
    keys = {
        f"_by_{number}": F.coalesce(value, own) if len(values) == 1 else value
        for number, value in enumerate(values)
    }
    if len(values) > 1:
        none = F.coalesce(*(value.cast("string") for value in values)).isNull()
        keys["_by_own"] = F.when(none, own)
    marked = rows.withColumns(keys).withWatermark("timestamp", interval(window, "--window"))
    return marked.dropDuplicatesWithinWatermark(["topic", *keys]).drop(*keys)


def _values(by: Sequence[str]) -> list[Column]:
    return [value_of(name).alias(name) for name in by]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
