"""Messages as Parquet files: what a task of the archive does, wherever it runs.

A file has the messages of one UTC day, one after another. Row groups have some ten MiB, which is
what a search reads at least. Columns that a search looks at have statistics for each page, ids and
keys Bloom filters; tags and keys repeat and have dictionaries; bodies have neither. Pages have
checksums. Who writes fewer bytes than a row group keeps no more than that in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zbus import __version__
from zbus.spark.archive import layout as names
from zbus.spark.archive.files import ArchiveFiles, Out
from zbus.spark.archive.layout import Attempt
from zbus.spark.archive.records import FileRecord
from zbus.spark.logs import Span
from zbus.spark.source.columns import NAMES, arrow_schema
from zbus.storage.local.files import make_directories

COLUMNS: Final = tuple(name for name in NAMES if name != "topic")
"""Of a file: its path says the topic."""

GROUP_BYTES: Final = 32 << 20
FILE_BYTES: Final = 256 << 20
BLOOM: Final = ("id", "key")
LEVEL: Final = 3

_DAY_US: Final = 86_400 * 1_000_000
_DICTIONARY: Final = ["tag", "key"]
_STATISTICS: Final = ["partition", "offset", "timestamp", "id", "tag", "key", "deliver_at"]
_FALSE_POSITIVES: Final = 0.01


@attrs.frozen
class Shape:
    """How files are to be. It travels to tasks."""

    file_bytes: int = FILE_BYTES  # of messages as they are stored; about
    group_bytes: int = GROUP_BYTES
    bloom: tuple[str, ...] = BLOOM
    level: int = LEVEL  # of zstd; 1 is half again as quick, for files that are some percent larger
    json: bool = False  # bodies are text, which all of them have to be
    flat: bool = False  # paths without the topic and the date, for tables that say them elsewhere


def write_files(
    files: ArchiveFiles,
    root: Path,
    run: str,
    shape: Shape,
    span: Span,
    batches: Iterable[pa.RecordBatch],
    time_ms: int,
) -> list[FileRecord]:
    """Write these batches, which have COLUMNS and follow one another, to as many files as it takes.
    All are durable, under names that no reader knows before there is a commit."""
    written: list[FileRecord] = []
    file: _File | None = None
    try:
        for day, batch in _days(batches):
            if file is not None and (file.day != day or file.bytes >= 2 * shape.file_bytes):
                written.append(file.finish())
                file = None
            if file is None:
                file = _File(files, root, run, shape, span, day, time_ms)
            file.add(batch)
        if file is not None:
            written.append(file.finish())
    except BaseException:
        if file is not None:
            file.abandon()
        raise
    return written


def _days(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, cut where another day begins; days since 1970."""
    for batch in batches:
        if not batch.num_rows:
            continue
        days = _micros(batch.column("timestamp")) // _DAY_US
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
        for first, end in pairwise(cuts):
            yield int(days[first]), batch.slice(first, end - first)


def _micros(times: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = times.cast(pa.int64()).to_numpy()
    return found


def body_crc(bodies: pa.Array, crc: int = 0) -> int:
    """CRC-32 of bodies, one after another, going on from that of those before."""
    if not len(bodies):
        return crc
    _, offsets, data = bodies.buffers()
    if data is None:
        return crc
    ends = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    return crc32(memoryview(data)[int(ends[0]) : int(ends[-1])], crc)


class _File:
    """One that is being written."""

    def __init__(
        self,
        files: ArchiveFiles,
        root: Path,
        run: str,
        shape: Shape,
        span: Span,
        day: int,
        time_ms: int,
    ) -> None:
        self.day = day
        self.bytes = 0
        self._files = files
        self._root = root
        self._shape = shape
        self._span = span
        self._attempt = Attempt.begun(time_ms)
        self._unfinished = root / names.UNFINISHED / run / f"{self._attempt.text}{names.SUFFIX}"
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._crc = 0
        self._rows = 0
        self._start: int | None = None
        self._min_us = self._max_us = 0
        make_directories(files, self._unfinished.parent)
        self._out = Out(files, self._unfinished)

    def add(self, batch: pa.RecordBatch) -> None:
        times = _micros(batch.column("timestamp"))
        least, most = int(times.min()), int(times.max())
        if self._start is None:
            self._start = batch.column("offset")[0].as_py()
            self._min_us, self._max_us = least, most
        self._min_us, self._max_us = min(self._min_us, least), max(self._max_us, most)
        self._crc = body_crc(batch.column("body"), self._crc)
        self._rows += batch.num_rows
        self._held.append(batch)
        size = batch.nbytes
        self.bytes += size
        self._held_bytes += size
        if self._held_bytes >= self._shape.group_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        if self._shape.json:
            body = table.schema.get_field_index("body")
            table = table.set_column(body, "body", table.column("body").cast(pa.string()))
        if self._writer is None:
            self._writer = _parquet(self._out, self._shape, table.num_rows)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._held.clear()
        self._held_bytes = 0

    def finish(self) -> FileRecord:
        """Give the file its name."""
        assert self._start is not None
        self._flush()
        assert self._writer is not None
        end = self._start + self._rows
        self._writer.add_key_value_metadata(
            {
                "zbus.topic": self._span.topic.encode("utf-8", "surrogatepass"),
                "zbus.partition": str(self._span.partition),
                "zbus.incarnation": self._span.incarnation,
                "zbus.start": str(self._start),
                "zbus.end": str(end),
                "zbus.rows": str(self._rows),
                "zbus.crc": str(self._crc),
                "zbus.version": __version__,
            }
        )
        self._writer.close()
        self._out.sync()
        size = self._out.tell()
        self._out.release()
        date = str(np.datetime64(self.day, "D"))
        path = names.data_path(
            self._span, date, self._start, end, self._attempt, flat=self._shape.flat
        )
        make_directories(self._files, (self._root / path).parent)
        self._files.rename(self._unfinished, self._root / path)
        self._files.sync_directory((self._root / path).parent)
        return FileRecord(
            path=path,
            incarnation=self._span.incarnation,
            start=self._start,
            end=end,
            date=date,
            min_time_ms=self._min_us // 1_000,
            max_time_ms=self._max_us // 1_000,
            bytes=size,
            content_bytes=self.bytes,
            crc=self._crc,
            file_crc=self._out.crc,
        )

    def abandon(self) -> None:
        """Let go of it. What is left is vacuumed one day."""
        self._out.release()


def file_schema(json: bool) -> pa.Schema:
    """Of a file, whose bodies are text or bytes."""
    schema = arrow_schema(COLUMNS)
    if json:
        schema = schema.set(schema.get_field_index("body"), pa.field("body", pa.string()))
    return schema


def _parquet(out: Out, shape: Shape, rows: int) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        pa.PythonFile(out, mode="w"),
        file_schema(shape.json),
        compression="zstd",
        compression_level=shape.level,
        use_dictionary=_DICTIONARY,
        write_statistics=_STATISTICS,
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(COLUMNS.index("offset"))],
        bloom_filter_options={
            name: {"ndv": max(1, rows), "fpp": _FALSE_POSITIVES} for name in shape.bloom
        },
    )
