"""The engine of this process: DuckDB, no Java, and no start-up to speak of.

DuckDB leaves out row groups by statistics and Bloom filters, and reads bodies only of messages that
are left. A log is read by us, and given to it as Arrow. Partitions come one after another: who has
enough results stops the search.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from glob import escape
from itertools import groupby
from typing import Any, Final

import duckdb
import pyarrow as pa

from zbus.spark.archive.table import ArchiveFile
from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.logs import Log
from zbus.spark.search.conditions import Conditions
from zbus.spark.search.query import DUCKDB, IN_ORDER, columns, condition
from zbus.spark.search.results import Body, result_schema
from zbus.spark.search.scope import Scope
from zbus.spark.search.verdicts import Verdict, contains, passed, prefilter, tests_of
from zbus.spark.source.arrows import read
from zbus.spark.source.columns import NAMES, arrow_schema
from zbus.spark.source.planning import Part

BATCH_ROWS: Final = 1_000
GROWTH: Final = 4

_LIVE: Final = [name for name in NAMES if name != "deliver_at"]
_TYPES: Final = {"tag": "VARCHAR", "body": "BLOB"}


def search(
    scope: Scope, conditions: Conditions, body: Body, limit: int | None
) -> Generator[pa.RecordBatch, None, None]:
    """Results in order: one more than `limit`, if there are that many. Raises Usage, DataLoss,
    Unreachable."""
    if conditions.where is not None:
        raise Usage("--where is SQL: it needs --engine spark")
    found = 0
    with _Session(scope, conditions, body) as session:
        for some in _some_at_a_time(scope):
            left = None if limit is None else limit + 1 - found
            if left == 0:
                return
            for batch in session.found(some, left):
                found += batch.num_rows
                yield batch


def _some_at_a_time(scope: Scope) -> Iterator[list[ArchiveFile] | Part]:
    """In order: files that are searched together, and parts of the log. Few files at first, since
    a page may be full soon; then more and more, up to a partition of which the log is searched."""
    live = {part.span[:2]: part for part in scope.parts}
    archived = {
        place: list(files)
        for place, files in groupby(scope.files, key=lambda file: (file.topic, file.partition))
    }
    size = 1
    waiting: list[ArchiveFile] = []
    for place in sorted(archived.keys() | live.keys()):
        for file in archived.get(place, ()):
            waiting.append(file)
            if len(waiting) == size:
                yield waiting
                waiting, size = [], GROWTH * size
        if place in live:
            if waiting:
                yield waiting
            waiting = []
            yield live[place]
    if waiting:
        yield waiting


class _Session:
    """DuckDB, with the conditions as functions, and the log if it is searched."""

    def __init__(self, scope: Scope, conditions: Conditions, body: Body) -> None:
        self._schema = result_schema(body)
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        self._log: Log | None = None
        self._problems: list[SparkProblem] = []
        self._scope = scope
        where, self._parameters = condition(conditions, DUCKDB)
        self._prefilter = prefilter(conditions)
        tests = tests_of(conditions)
        for number, test in enumerate(tests):
            where += f" AND test{number}(m.{test.column})"
            self._function(f"test{number}", [_TYPES[test.column]], _of_whole(test.verdict))
        self._function("has_bytes", ["BLOB", "BLOB"], _has_bytes)
        self._select = f"SELECT {columns(body, DUCKDB)} FROM {{}} m WHERE {where}"

    def _function(self, name: str, types: list[str], function: Callable[..., pa.Array]) -> None:
        create: Any = self._database.create_function  # its types leave Arrow out
        create(name, function, types, "BOOLEAN", type="arrow", null_handling="special")

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        if self._log is not None:
            self._log.close()

    def found(self, some: list[ArchiveFile] | Part, limit: int | None) -> Iterator[pa.RecordBatch]:
        """In some files, or in a part of the log."""
        return self._live(some, limit) if isinstance(some, Part) else self._archived(some, limit)

    def _archived(
        self, files: Sequence[ArchiveFile], limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        alone = len({(file.topic, file.partition) for file in files}) == 1
        order = "ORDER BY m.timestamp, m.offset" if alone else IN_ORDER  # fewer rows are read
        query = self._select.format("read_parquet($paths)")
        yield from self._run(f"{query} {order}", limit, paths=[escape(file.path) for file in files])

    def _live(self, part: Part, limit: int | None) -> Iterator[pa.RecordBatch]:
        """It is in order by itself."""
        reader = pa.RecordBatchReader.from_batches(arrow_schema(_LIVE), self._read(part))
        self._database.register("live", reader)
        yield from self._run(self._select.format("live"), limit)
        self._database.unregister("live")

    def _read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """What goes wrong here comes back as a text of DuckDB."""
        try:
            if self._log is None:
                assert self._scope.where is not None
                self._log = self._scope.where.open()
            for batch in read(self._log, part.span, part.start, part.stop, _LIVE):
                yield passed(batch, self._prefilter)
        except SparkProblem as problem:
            self._problems.append(problem)
            raise

    def _run(self, query: str, limit: int | None, **more: list[str]) -> Iterator[pa.RecordBatch]:
        query += "" if limit is None else f" LIMIT {limit}"
        try:
            found = self._database.sql(query, params={**self._parameters, **more})
            for batch in found.to_arrow_reader(BATCH_ROWS):
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [
                            column.cast(field.type)
                            for column, field in zip(batch, self._schema, strict=True)
                        ],
                        schema=self._schema,
                    )
        except (duckdb.Error, pa.ArrowException) as error:
            if self._problems:
                raise self._problems[0] from error
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SparkProblem(f"{first}; `archive verify` says what is wrong") from error


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _of_whole(verdict: Verdict) -> Callable[[pa.ChunkedArray | pa.Array], pa.Array]:
    def function(column: pa.ChunkedArray | pa.Array) -> pa.Array:
        return verdict(_whole(column))

    return function


def _has_bytes(bodies: pa.ChunkedArray | pa.Array, sought: pa.ChunkedArray | pa.Array) -> pa.Array:
    """`sought` is one value, said for each."""
    return contains(sought[0].as_py())(_whole(bodies)) if len(bodies) else pa.array([], pa.bool_())
