"""What a search finds: a table with the place, the labels and the size of each message, and as much
of its body as was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.search.cursor import ORDER, Cursor
from zbus.spark.source.columns import arrow_schema

HEAD_BYTES: Final = 256
"""Of the head of a body."""

LIMIT: Final = 1_000

_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "id",
    "tag",
    "key",
    "headers",
    "size",
    "body",
)


class Body(StrEnum):
    """How much of it."""

    NONE = "none"
    HEAD = "head"
    FULL = "full"


def result_names(body: Body) -> tuple[str, ...]:
    """The columns."""
    return _COLUMNS[:-1] if body is Body.NONE else _COLUMNS


def result_schema(body: Body) -> pa.Schema:
    """With their types."""
    size = pa.field("size", pa.int64())
    return pa.schema(
        [size if name == "size" else arrow_schema([name]).field(0) for name in result_names(body)]
    )


def shortened(results: pa.RecordBatch, body: Body) -> pa.RecordBatch:
    """Results with whole bodies, with less of them."""
    if body is Body.FULL:
        return results
    if body is Body.NONE:
        return results.select(result_names(body))
    head = pc.binary_slice(results.column("body"), 0, HEAD_BYTES)
    return results.set_column(results.schema.get_field_index("body"), "body", head)


class Page:
    """The first `limit` results, or all of them; and where the next page begins, if there is one.
    Further results are not asked for."""

    def __init__(self, found: Iterable[pa.RecordBatch], limit: int | None) -> None:
        self._found = found
        self._limit = limit
        self._last: Cursor | None = None
        self.rows = 0
        self.next: Cursor | None = None
        """Known when all batches were taken."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._found:
            left = batch.num_rows if self._limit is None else self._limit - self.rows
            kept = batch.slice(0, left)
            if kept.num_rows:
                self.rows += kept.num_rows
                self._last = place_of(kept, kept.num_rows - 1)
                yield kept
            if kept.num_rows < batch.num_rows:
                self.next = self._last
                return


def place_of(batch: pa.RecordBatch, row: int) -> Cursor:
    """Of one of the results."""
    topic, partition, time, offset = (batch.column(name)[row] for name in ORDER)
    time_ms = time.cast(pa.int64()).as_py() // 1_000
    return Cursor(topic.as_py(), partition.as_py(), time_ms, offset.as_py())
