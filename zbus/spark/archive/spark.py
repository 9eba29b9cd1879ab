"""The archive and Spark: its tasks as those of Spark, and its files as a table of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, TypeVar

from zbus.spark.archive.layout import topic_name, topic_of
from zbus.spark.archive.table import Archive, ArchiveFile, End
from zbus.spark.errors import SparkProblem, problem_in
from zbus.spark.source.columns import DDL, NAMES

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
    spark: SparkSession, path: str | Path, ends: Sequence[End] | None = None
) -> DataFrame:
    """All that is committed, or was by these `ends`, as a table with all columns of a message.
    Raises Usage, Unverified."""
    archive = Archive(path)
    if ends is None:
        return _open(spark, archive, archive.files())
    stops = {end[:3]: end.end for end in ends}
    whole: list[ArchiveFile] = []
    cut: list[DataFrame] = []
    for file in archive.files():
        stop = stops.get((file.topic, file.partition, file.incarnation), 0)
        if file.end <= stop:
            whole.append(file)
        elif file.start < stop:  # it was compacted with what is behind
            cut.append(_open(spark, archive, [file]).where(f"offset < {stop}"))
    return reduce(lambda one, other: one.unionByName(other), [_open(spark, archive, whole), *cut])


def _open(spark: SparkSession, archive: Archive, found: Sequence[ArchiveFile]) -> DataFrame:
    named: list[ArchiveFile] = []  # the path says the topic
    others: dict[str, list[ArchiveFile]] = {}
    for file in found:
        if topic_of(topic_name(file.topic)) is None:
            others.setdefault(file.topic, []).append(file)
        else:
            named.append(file)
    tables = [_read(spark, archive, named)] if named else []
    tables += [_with_topic(_read(spark, archive, files), files) for files in others.values()]
    if not tables:
        return spark.createDataFrame([], DDL)
    return reduce(lambda one, other: one.unionByName(other), tables)


def _read(spark: SparkSession, archive: Archive, files: list[ArchiveFile]) -> DataFrame:
    reader = spark.read.schema(DDL).option("basePath", str(archive.path))
    reader = reader.option("__globPaths__", "false")  # a directory may be called [x]
    return reader.parquet(*(file.path for file in files)).select(*NAMES)


def _with_topic(table: DataFrame, files: list[ArchiveFile]) -> DataFrame:
    from pyspark.sql import functions

    return table.withColumn("topic", functions.lit(files[0].topic)).select(*NAMES)
