"""A search from beginning to end: where, with which engine, and a page of what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa

from zbus.spark.archive.table import Archive
from zbus.spark.errors import Usage
from zbus.spark.search.conditions import Conditions, describe
from zbus.spark.search.results import LIMIT, Body, Page
from zbus.spark.search.scope import Scope, Topics, find_scope
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SMALL_BYTES: Final = 4 << 30
"""What one process reads before a session of Spark would have paid: some ten seconds."""


class Engine(StrEnum):
    """Which one looks. AUTO: `local` if SQL is not needed, and it is about one id or key, or about
    little."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@attrs.frozen(kw_only=True)
class Search:
    """A search: which messages to find."""

    conditions: Conditions
    archive: str | None = None
    where: Where | None = None
    topics: Topics = attrs.field(factory=Topics)
    engine: Engine = Engine.AUTO
    limit: int | None = LIMIT
    body: Body = Body.HEAD


@attrs.frozen
class Plan:
    """How it is done."""

    scope: Scope
    engine: Engine  # not AUTO

    def document(self, conditions: Conditions) -> dict[str, object]:
        """For `--dry-run`."""
        files = self.scope.files
        return {
            "engine": str(self.engine),
            "conditions": describe(conditions),
            "files": len(files),
            "file_bytes": sum(file.bytes for file in files),
            "live_messages": sum(part.stop - part.start for part in self.scope.parts),
            "notes": list(self.scope.notes),
        }


def plan(search: Search) -> Plan:
    """Raises Usage, UnknownTopic, Unreachable, Unverified."""
    if search.engine is Engine.LOCAL and search.conditions.where is not None:
        raise Usage("--where is SQL: it needs --engine spark")
    files = None if search.archive is None else Archive(search.archive).files()
    scope = find_scope(files, search.where, search.topics, search.conditions)
    return Plan(scope, engine_of(search, scope))


def engine_of(search: Search, scope: Scope) -> Engine:
    """The one that is not AUTO."""
    if search.engine is not Engine.AUTO:
        return search.engine
    if search.conditions.where is not None:
        return Engine.SPARK
    is_small = scope.bytes <= SMALL_BYTES
    return Engine.LOCAL if is_small or search.conditions.is_look_up else Engine.SPARK


def find(search: Search, plan: Plan, session: Callable[[], SparkSession]) -> Page:
    """The results; a session of Spark is asked for only if it is needed."""
    return Page(_found(search, plan, session), search.limit)


def _found(
    search: Search, plan: Plan, session: Callable[[], SparkSession]
) -> Iterator[pa.RecordBatch]:
    if plan.engine is Engine.LOCAL:
        from zbus.spark.search import local

        return local.search(plan.scope, search.conditions, search.body, search.limit)
    from zbus.spark.search import frame

    return frame.search(session(), plan.scope, search.conditions, search.body, search.limit)
