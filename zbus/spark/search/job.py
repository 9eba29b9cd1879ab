"""A search from beginning to end: where, with which engine, and a page of what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa

from zbus.spark.errors import Usage
from zbus.spark.logs import Where
from zbus.spark.search.conditions import Conditions, describe
from zbus.spark.search.results import LIMIT, Body, Page
from zbus.spark.search.scope import ArchivedFile, Scope, Topics, find_scope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(StrEnum):
    """Which one looks. AUTO: `local` for one id or one key in an archive, else Spark."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@attrs.frozen(kw_only=True)
class Search:
    """What somebody wants to find."""

    conditions: Conditions
    archive: str | None = None
    where: Where | None = None
    topics: Topics = Topics()
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
    engine = engine_of(search)
    files = None if search.archive is None else archived_files(search.archive)
    return Plan(find_scope(files, search.where, search.topics, search.conditions), engine)


def engine_of(search: Search) -> Engine:
    """Raises Usage."""
    conditions = search.conditions
    if conditions.where is not None:
        if search.engine is Engine.LOCAL:
            raise Usage("--where is SQL: it needs --engine spark")
        return Engine.SPARK
    if search.engine is not Engine.AUTO:
        return search.engine
    look_up = search.archive is not None and conditions.is_look_up
    return Engine.LOCAL if look_up else Engine.SPARK


def archived_files(path: str) -> Sequence[ArchivedFile]:
    """Those that are committed."""
    from zbus.spark.archive.table import Archive

    files: Sequence[ArchivedFile] = Archive(path).files()
    return files


def find(search: Search, plan: Plan, session: Callable[[], SparkSession]) -> Page:
    """The results; a session of Spark is asked for only if it is needed."""
    return Page(_found(search, plan, session), search.limit)


def _found(
    search: Search, plan: Plan, session: Callable[[], SparkSession]
) -> Iterator[pa.RecordBatch]:
    if plan.engine is Engine.LOCAL:
        from zbus.spark.search import local

        return local.search(plan.scope, search.conditions, search.body)
    if not plan.scope.lanes:
        return iter(())
    from zbus.spark.search import frame

    return frame.search(session(), plan.scope, search.conditions, search.body, search.limit)
