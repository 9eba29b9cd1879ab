"""The archive and Spark: its tasks as those of Spark, and its files as a table of Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from zbus.spark.archive.table import Archive
from zbus.spark.errors import DataLoss, SparkProblem, problem_in
from zbus.spark.source.columns import DDL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


class SparkEngine:
    """Tasks of Spark. Bodies do not enter the JVM: only what the function gives does.

    The session is begun when there is work: to look whether there is any takes no seconds.
    """

    def __init__(self, begin: Callable[[], SparkSession]) -> None:
        self._begin = begin

    @cached_property
    def _context(self) -> SparkContext:
        return self._begin().sparkContext

    @property
    def workers(self) -> int:
        """As many as there are by now: executors come and go."""
        return self._context.defaultParallelism

    def each(
        self, function: Callable[[Item], list[Result]], items: list[Item]
    ) -> Iterator[list[Result]]:
        if not items:
            return

        def run(part: Iterable[Item]) -> Iterable[list[Result]]:
            return map(function, part)

        try:
            yield from self._context.parallelize(items, len(items)).mapPartitions(run).collect()
        except Exception as error:
            if type(error).__module__.split(".")[0] not in ("py4j", "pyspark"):
                raise
            if (problem := problem_in(error)) is not None:
                raise problem from error
            raise SparkProblem(f"a task of Spark failed: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    """What went wrong in the task, of pages of text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (errors or lines or [type(error).__name__])[-1]


def open_archive(
    spark: SparkSession,
    path: str | Path,
    version: int | None = None,
    topics: Sequence[str] = (),
) -> DataFrame:
    """All messages of an archive, or of a version of it, or of some topics, as a table with the
    columns of a message. Raises Usage, Unverified, DataLoss if a version was vacuumed."""
    paths = [file.path for file in Archive(path, version).files(*topics)]
    gone = next((path for path in paths if version is not None and not os.path.exists(path)), None)
    if gone is not None:
        raise DataLoss(f"version {version} of {path} was vacuumed: {gone} is not there any more")
    return open_files(spark, paths)


def open_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    """The messages in some files of an archive. Spark needs nothing for it: they are Parquet."""
    if not paths:
        return spark.createDataFrame([], DDL)
    # Nothing of a path is a pattern, one may be called [x], or a column.
    reader = spark.read.option("__globPaths__", "false").option("recursiveFileLookup", "true")
    return reader.schema(DDL).parquet(*paths)
