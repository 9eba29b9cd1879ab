"""An archive for tests: Parquet files as the archive writes them, from messages in a log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.search.messages import plain
from zbus.spark.logs import Log
from zbus.spark.source.arrows import read
from zbus.spark.source.columns import NAMES, arrow_schema

COLUMNS = [name for name in NAMES if name != "topic"]
_numbers = count()


class File(NamedTuple):
    path: str
    topic: str
    partition: int
    incarnation: str
    start: int
    end: int
    rows: int
    date: str
    min_time_ms: int
    max_time_ms: int
    bytes: int
    crc: int = 0


def write(
    folder: Path, table: pa.Table, topic: str, *, incarnation: str = "1", group_rows: int = 50
) -> File:
    """One file, of messages that follow one another."""
    path = folder / f"{next(_numbers)}.parquet"
    columns = table.select(COLUMNS).cast(arrow_schema(COLUMNS))
    pq.write_table(
        columns,
        path,
        row_group_size=group_rows,
        compression="zstd",
        use_dictionary=["tag", "key"],
        bloom_filter_options={
            name: {"ndv": group_rows, "fpp": 0.00001} for name in ("id", "key") if table.num_rows
        },
    )
    offsets = table.column("offset").to_pylist()
    times = [round(each.timestamp() * 1_000) for each in table.column("timestamp").to_pylist()]
    partition = table.column("partition")[0].as_py()
    span = (offsets[0], offsets[-1] + 1)
    size = path.stat().st_size
    return File(
        str(path),
        topic,
        partition,
        incarnation,
        *span,
        table.num_rows,
        "2027-01-15",
        min(times),
        max(times),
        size,
    )


def archive(
    folder: Path, log: Log, *, rows: int = 120, group_rows: int = 50, until: int | None = None
) -> list[File]:
    """All that a log has, or of each partition what is before `until`; files of so many rows."""
    files = []
    for topic in log.topics():
        for span in log.spans(topic):
            stop = span.end if until is None else min(until, span.end)
            for start in range(span.first, stop, rows):
                batches = read(log, span, start, min(stop, start + rows))
                table = pa.Table.from_batches(batches, arrow_schema())
                found = write(
                    folder, table, topic, incarnation=span.incarnation, group_rows=group_rows
                )
                files.append(found)
    return files


def everything(log: Log) -> Iterator[dict[str, Any]]:
    """All messages, as plain values, in order."""
    for topic in log.topics():
        for span in log.spans(topic):
            for batch in read(log, span, span.first, span.end):
                yield from map(plain, batch.to_pylist())
