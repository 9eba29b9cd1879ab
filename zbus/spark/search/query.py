"""A search in SQL that DuckDB and Spark both understand.

Values are parameters and never a part of the text. Messages are called `m`: some names of columns
are words of SQL, and behind a dot they are names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from zbus.spark.search.conditions import Conditions
from zbus.spark.search.cursor import ORDER, Cursor
from zbus.spark.search.results import HEAD_BYTES, Body, result_names

IN_ORDER: Final = "ORDER BY " + ", ".join(f"m.{name}" for name in ORDER)


class Words(NamedTuple):
    """What the two say differently."""

    mark: str  # before the name of a parameter
    contains: str  # bytes in bytes
    head: str  # of a body


DUCKDB: Final = Words("$", "has_bytes", f"m.body[1:{HEAD_BYTES}]")
SPARK: Final = Words(":", "contains", f"substring(m.body, 1, {HEAD_BYTES})")


def columns(body: Body, words: Words) -> str:
    """What is selected of the messages that are found."""
    made = {
        "size": "CAST(octet_length(m.body) AS bigint) AS size",
        "body": "m.body" if body is Body.FULL else f"{words.head} AS body",
    }
    return ", ".join(made.get(name, f"m.{name}") for name in result_names(body))


def condition(conditions: Conditions, words: Words) -> tuple[str, dict[str, Any]]:
    """All that SQL says, and the parameters. Cheap ones come first."""
    parameters: dict[str, Any] = {}

    def value(given: object) -> str:
        name = f"p{len(parameters)}"
        parameters[name] = given
        return words.mark + name

    def clauses() -> Iterator[str]:
        for name, given in (
            ("id", conditions.ids),
            ("key", conditions.keys),
            ("tag", conditions.tags),
        ):
            if given:
                yield f"m.{name} IN ({', '.join(map(value, given))})"
        if conditions.since_ms is not None:
            yield f"m.timestamp >= {value(moment(conditions.since_ms))}"
        if conditions.until_ms is not None:
            yield f"m.timestamp < {value(moment(conditions.until_ms))}"
        if conditions.after is not None:
            marks = [value(each) for each in _place(conditions.after)]
            yield _behind(list(zip(ORDER, marks, strict=True)))
        for name, text in conditions.headers:
            yield f"m.headers[{value(name)}] = {value(text)}"
        for sought in conditions.contains:
            yield f"{words.contains}(m.body, {value(sought)})"

    return " AND ".join(clauses()) or "true", parameters


def _place(cursor: Cursor) -> tuple[str, int, datetime, int]:
    return cursor.topic, cursor.partition, moment(cursor.time_ms), cursor.offset


def _behind(place: list[tuple[str, str]]) -> str:
    (name, mark), *rest = place
    further = f"m.{name} > {mark}"
    return f"({further} OR (m.{name} = {mark} AND {_behind(rest)}))" if rest else further


def moment(time_ms: int) -> datetime:
    """As a value of the column `timestamp`."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC)
