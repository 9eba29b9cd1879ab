"""The engine of this process: Arrow, threads, and no start-up to speak of.

Of an archive's file, statistics and Bloom filters say which row groups can have what is looked for.
Of such a group the columns of the cheap conditions are read first, and bodies only if a message is
left. Row groups are looked at by several threads, and results come in order: no more are kept in
memory than threads are busy. Who stops taking results stops the search.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.logs import Log
from zbus.spark.search.bloom import may_have
from zbus.spark.search.conditions import Conditions
from zbus.spark.search.results import Body, as_results, source_names
from zbus.spark.search.scope import ArchivedFile, Scope
from zbus.spark.search.verdicts import (
    Test,
    columns_of,
    passed,
    tests_of,
    time_scalar,
    verdict_of,
)
from zbus.spark.source.arrows import read
from zbus.spark.source.columns import NAMES, arrow_schema
from zbus.spark.source.planning import Part

THREADS: Final = min(8, os.cpu_count() or 1)
_PARQUET: Final = ds.ParquetFileFormat()
_DISK: Final = fs.LocalFileSystem()


class Group(NamedTuple):
    """A row group that can have what is looked for."""

    file: ArchivedFile
    number: int
    rows: int


def search(
    scope: Scope, conditions: Conditions, body: Body
) -> Generator[pa.RecordBatch, None, None]:
    """Results in order. Raises Usage, DataLoss, Unreachable."""
    if conditions.where is not None:
        raise Usage("--where is SQL: it needs --engine spark")
    tests = tests_of(conditions)
    log = scope.where.open() if scope.parts and scope.where is not None else None
    with ThreadPoolExecutor(THREADS, "search") as pool:
        try:
            for lane in scope.lanes:
                groups = _groups(lane.files, conditions, pool)
                work = (_looker(group, tests, body) for group in groups)
                with closing(_in_order(pool, work)) as found:
                    yield from found
                if lane.live is not None and log is not None:
                    yield from _live(log, lane.live, tests, body)
        finally:
            if log is not None:
                log.close()
            pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ThreadPoolExecutor, work: Iterable[Callable[[], list[pa.RecordBatch]]]
) -> Generator[pa.RecordBatch, None, None]:
    """What the functions give, in their order; few of them are ahead."""
    ahead: deque[Future[list[pa.RecordBatch]]] = deque()
    try:
        for each in work:
            ahead.append(pool.submit(each))
            if len(ahead) > THREADS:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


# -- archived -------------------------------------------------------------------------------------


def _groups(
    files: Sequence[ArchivedFile], conditions: Conditions, pool: ThreadPoolExecutor
) -> Iterator[Group]:
    """The footers of some files ahead are read at once."""
    expression = known_by_statistics(conditions)
    step = 8 * THREADS
    for at in range(0, len(files), step):
        futures = [
            pool.submit(groups_of, file, conditions, expression) for file in files[at : at + step]
        ]
        for future in futures:
            yield from future.result()


def groups_of(
    file: ArchivedFile, conditions: Conditions, expression: ds.Expression | None
) -> list[Group]:
    """Those that statistics and Bloom filters let pass."""
    try:
        fragment = _PARQUET.make_fragment(file.path, _DISK)
        parts = fragment.split_by_row_group(expression, arrow_schema())
        numbers = [part.row_groups[0].id for part in parts]
        metadata = fragment.metadata
        with _DISK.open_input_file(file.path) as opened:
            for column, values in (("id", conditions.ids), ("key", conditions.keys)):
                at = metadata.schema.names.index(column) if values and numbers else 0
                numbers = [
                    number
                    for number in numbers
                    if not values or _any_may_be(opened, metadata.row_group(number), at, values)
                ]
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _unreadable(file, error) from error
    return [Group(file, number, metadata.row_group(number).num_rows) for number in numbers]


def _any_may_be(
    opened: pa.NativeFile, group: pq.RowGroupMetaData, at: int, values: Sequence[str]
) -> bool:
    offset = group.column(at).bloom_filter_offset
    return any(may_have(opened, offset, value.encode("utf-8", "replace")) for value in values)


def known_by_statistics(conditions: Conditions) -> ds.Expression | None:
    """What least and greatest values of a row group can refute; None: nothing."""
    found = []
    columns = (("id", conditions.ids), ("key", conditions.keys), ("tag", conditions.tags))
    found += [ds.field(column).isin(values) for column, values in columns if values]
    if conditions.since_ms is not None:
        found.append(ds.field("timestamp") >= time_scalar(conditions.since_ms))
    if conditions.until_ms is not None:
        found.append(ds.field("timestamp") < time_scalar(conditions.until_ms))
    if not found:
        return None
    whole = found[0]
    for each in found[1:]:
        whole = whole & each
    return whole


def _unreadable(file: ArchivedFile, error: Exception) -> SparkProblem:
    return SparkProblem(f"{file.path} cannot be read: {error}; `archive verify` says what is wrong")


def _looker(group: Group, tests: Sequence[Test], body: Body) -> Callable[[], list[pa.RecordBatch]]:
    def look() -> list[pa.RecordBatch]:
        try:
            with pq.ParquetFile(group.file.path) as file:
                return _look(file, group, tests, body)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(group.file, error) from error

    return look


def _look(
    file: pq.ParquetFile, group: Group, tests: Sequence[Test], body: Body
) -> list[pa.RecordBatch]:
    """Column after column, as long as messages are left."""
    held = _Held(file, group)
    for test in tests:
        batches = held.need(test.columns)
        held.keep([verdict_of(batch, test) for batch in batches])
        if not held.rows:
            return []
    return [as_results(batch, body) for batch in held.need(source_names(body)) if batch.num_rows]


class _Held:
    """The columns that were read of a row group, and the rows that are left."""

    def __init__(self, file: pq.ParquetFile, group: Group) -> None:
        self._file = file
        self._group = group
        self._left: pa.Array | None = None  # None: all
        self._columns: dict[str, pa.Array] = {}
        self.rows = group.rows

    def need(self, names: Sequence[str]) -> list[pa.RecordBatch]:
        missing = [name for name in names if name not in self._columns]
        stored = [name for name in missing if name != "topic"]
        if stored:
            table = self._file.read_row_group(self._group.number, columns=stored)
            for name in stored:
                column = table.column(name).cast(arrow_schema([name]).field(0).type)
                self._columns[name] = column if self._left is None else column.take(self._left)
        if "topic" in missing:
            self._columns["topic"] = pa.chunked_array(
                [pa.repeat(pa.scalar(self._group.file.topic, pa.string()), self.rows)]
            )
        table = pa.table({name: self._columns[name] for name in names}, arrow_schema(names))
        return table.to_batches() or [_empty(names)]

    def keep(self, verdicts: Sequence[pa.Array]) -> None:
        mask = pa.chunked_array(verdicts, pa.bool_())
        left = pa.array(mask.to_numpy().nonzero()[0])
        if len(left) == self.rows:
            return
        self._columns = {name: column.take(left) for name, column in self._columns.items()}
        self._left = left if self._left is None else self._left.take(left)
        self.rows = len(left)


def _empty(names: Sequence[str]) -> pa.RecordBatch:
    schema = arrow_schema(names)
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


# -- live -----------------------------------------------------------------------------------------


def _live(log: Log, part: Part, tests: Sequence[Test], body: Body) -> Iterator[pa.RecordBatch]:
    wanted = {*source_names(body), *columns_of(tests)}
    names = [name for name in NAMES if name in wanted]
    for batch in read(log, part.span, part.start, part.stop, names):
        left = passed(batch, tests)
        if left.num_rows:
            yield as_results(left, body)
