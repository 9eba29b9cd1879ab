"""The format `zbus` of Spark: messages as a table, of a broker or of files (pipeline, 5.2).

Spark makes a reader in a process of its own beside the driver, asks it for parts, and sends it to
the executors, where each part is read by one task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from zbus.spark.errors import Usage
from zbus.spark.logs import Log
from zbus.spark.options import EARLIEST, Wish, read_stream_wish, read_table_wish, read_wish
from zbus.spark.source.columns import NAMES, TYPES, VALUE
from zbus.spark.source.filters import (
    Condition,
    condition_of,
    offsets_between,
    tags_condition,
    times_between,
)
from zbus.spark.source.planning import Part, find_spans, keep, resolve, split
from zbus.spark.source.reading import Task, read_part
from zbus.spark.source.value import ddl_of, reader_of
from zbus.spark.times import ceil_ms


class ZbusDataSource(DataSource):
    """Options are those of `zbus.spark.options`."""

    @classmethod
    def name(cls) -> str:
        return "zbus"

    def schema(self) -> str:
        wish = read_wish(self.options)
        types = TYPES if VALUE not in wish.columns else {**TYPES, VALUE: _value_type(wish)}
        return ", ".join(f"{name} {types[name]}" for name in wish.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        wish = with_value_of(read_table_wish(self.options), schema)
        names = columns_of(schema)
        # A reader that can take filters is refused by Spark where it is not asked to
        # (spark.sql.python.filterPushdown.enabled is false by default).
        return PushingReader(wish, names) if _is_asked_to_filter() else Reader(wish, names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from zbus.spark.source.stream import StreamReader

        wish = with_value_of(read_stream_wish(self.options), schema)
        return StreamReader(wish, columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from zbus.spark.sink import sink

        return sink.writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from zbus.spark.sink import sink

        return sink.stream_writer(schema, self.options, overwrite)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """A user's schema is a projection: some of the columns, with their types. Raises Usage."""
    for field in schema.fields:
        if field.name == VALUE:
            continue  # of whatever type
        wanted = TYPES.get(field.name)
        if wanted is None:
            raise Usage(f"there is no column {field.name}; there are {', '.join(NAMES)}, {VALUE}")
        found = field.dataType.simpleString().replace("bigint", "long")
        if found != wanted:
            raise Usage(f"the column {field.name} is {wanted}, and not {found}")
    return tuple(field.name for field in schema.fields)


def with_value_of(wish: Wish, schema: StructType) -> Wish:
    """With the type that the column `value` has in this schema, if that has it. Raises Usage."""
    kinds = [field.dataType for field in schema.fields if field.name == VALUE]
    if not kinds:
        return wish
    kind = to_arrow_type(kinds[0], timezone="UTC")
    reader_of(kind)  # it may be none that is read
    return attrs.evolve(wish, value=kind)


def _value_type(wish: Wish) -> str:
    """As the schema of the topic has it, today. Raises SparkProblem."""
    if wish.where.broker is None or len(wish.topics) != 1:
        text = f"the type of the column {VALUE} is that of one topic's schema, in a running broker"
        raise Usage(f"{text}: else say it, .schema('offset long, {VALUE} struct<item:string>')")
    (topic,) = wish.topics
    with wish.where.impatient().client(topic) as bus:
        return ddl_of(bus.schema(topic))


def _is_asked_to_filter() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith("data_source_pushdown_filters"):
            return True
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return True
        frame = frame.f_back
    return False


class Reader(DataSourceReader):
    """A range that has its bounds when the query is planned."""

    def __init__(self, wish: Wish, names: tuple[str, ...]) -> None:
        self._wish = wish
        self._names = names
        self._conditions: list[Condition] = tags_condition(wish)

    def partitions(self) -> Sequence[InputPartition]:
        wish = self._wish
        with wish.where.impatient().open() as log:
            spans = find_spans(log, wish)
            start = EARLIEST if wish.start is None else wish.start
            begins = resolve(log, spans, start, wish.start_strict)
            ends = resolve(log, spans, wish.end)
            parts = [Part(*each) for each in zip(spans, begins, ends, strict=True)]
            parts = self._narrow(log, keep(parts, wish.fail_on_data_loss))
        return [Task(part) for part in split(parts, wish)]

    def _narrow(self, log: Log, parts: list[Part]) -> list[Part]:
        """Less of them, where conditions say that the rest is not wanted."""
        low, high = offsets_between(self._conditions)
        since, until = times_between(self._conditions)
        found = []
        for part in parts:
            start, stop = max(part.start, low), min(part.stop, high)
            if since is not None:
                start = max(start, log.offset_at(part.span, ceil_ms(since)))
            if until is not None:
                stop = min(stop, log.offset_at(part.span, ceil_ms(until) + 1))
            if start < stop:
                found.append(part._replace(start=start, stop=stop))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._wish, partition.value, self._names, self._conditions)


class PushingReader(Reader):
    """The same, when Spark offers conditions."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            condition = condition_of(each)
            if condition is None:
                yield each
            else:
                self._conditions.append(condition)
