"""Messages as Parquet files: what a task of the archive does, wherever it runs.

A file has the messages of one UTC day, one after another. Row groups have some ten MiB, which is
what a search reads at least. Columns that a search looks at have statistics for each page, ids and
keys Bloom filters; tags and keys repeat and have dictionaries; bodies have neither. Pages have
checksums, and the name of a file has that of all of it. Who writes fewer bytes than a row group
keeps no more than that in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zbus.spark.archive.commit import sync
from zbus.spark.archive.table import COLUMNS, FILE_SCHEMA, ArchiveFile, Lane
from zbus.spark.logs import Span

GROUP_BYTES: Final = 32 << 20
FILE_BYTES: Final = 256 << 20
BLOOM: Final = ("id", "key")
LEVEL: Final = 3
FALSE_POSITIVES: Final = 0.01

_DAY_US: Final = 86_400 * 1_000_000
_PIECE_BYTES: Final = 1 << 20
_DICTIONARY: Final = ["topic", "partition", "incarnation", "tag", "key"]
_STATISTICS: Final = [name for name in COLUMNS if name not in ("headers", "body")]


@attrs.frozen
class Shape:
    """How files are to be. It travels to tasks."""

    file_bytes: int = FILE_BYTES  # of messages as they are stored; about
    group_bytes: int = GROUP_BYTES
    bloom: tuple[str, ...] = BLOOM
    level: int = LEVEL  # of zstd; 1 is half again as quick, for files that are some percent larger


def write_files(
    root: Path, shape: Shape, span: Span, batches: Iterable[pa.RecordBatch]
) -> list[ArchiveFile]:
    """Write these batches, which are messages that follow one another, to as many files as it
    takes. All are durable, and belong to the archive when they are committed."""
    written: list[ArchiveFile] = []
    file: _File | None = None
    try:
        for day, batch in _days(batches):
            if file is not None and (file.day != day or file.bytes >= 2 * shape.file_bytes):
                written.append(file.finish())
                file = None
            if file is None:
                file = _File(root, shape, span, day)
            file.add(batch)
        if file is not None:
            written.append(file.finish())
    finally:
        if file is not None:
            file.out.close()
    return written


def _days(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, cut where another day begins; days since 1970."""
    for batch in batches:
        if not batch.num_rows:
            continue
        days = _micros(batch) // _DAY_US
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
        for first, end in pairwise(cuts):
            yield int(days[first]), batch.slice(first, end - first)


def _micros(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    times: np.ndarray[tuple[int], np.dtype[np.int64]]
    times = batch.column("timestamp").cast(pa.int64()).to_numpy()
    return times


class _File:
    """One that is being written. What is left of one that was not finished is vacuumed one day."""

    def __init__(self, root: Path, shape: Shape, span: Span, day: int) -> None:
        self.day = day
        self.bytes = 0
        self._shape = shape
        self._lane = Lane(span.topic, span.partition, span.incarnation)
        self._date = str(np.datetime64(day, "D"))
        self._folder = root / f"lane={self._lane.digest}" / f"date={self._date}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._attempt = os.urandom(6).hex()
        self.out = open(self._folder / f"{self._attempt}.part", "xb")  # noqa: SIM115 - see finish
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._start: int | None = None
        self._rows = 0
        self._times: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if self._start is None:
            self._start = batch.column("offset")[0].as_py()
        times = _micros(batch)
        bounds = [*self._times, int(times.min()), int(times.max())]
        self._times = [min(bounds), max(bounds)]
        self._rows += batch.num_rows
        size = batch.nbytes
        self.bytes += size
        self._held.append(batch)
        self._held_bytes += size
        if self._held_bytes >= self._shape.group_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        incarnation = pa.repeat(pa.scalar(self._lane.incarnation, pa.string()), table.num_rows)
        table = table.append_column("incarnation", incarnation)
        if self._writer is None:
            self._writer = _parquet(self.out, self._shape, table.num_rows)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._held.clear()
        self._held_bytes = 0

    def finish(self) -> ArchiveFile:
        """Give the file its name."""
        assert self._start is not None
        self._flush()
        assert self._writer is not None
        self._writer.close()
        self.out.flush()
        os.fsync(self.out.fileno())
        size = self.out.tell()
        self.out.close()
        part = Path(self.out.name)
        end = self._start + self._rows
        name = f"{self._start:020}-{end:020}-{checksum(part):08x}-{self._attempt}.parquet"
        path = part.rename(self._folder / name)
        for folder in (self._folder, self._folder.parent, self._folder.parent.parent):
            sync(folder)
        return ArchiveFile(
            path=str(path),
            **self._lane._asdict(),
            start=self._start,
            end=end,
            rows=self._rows,
            date=self._date,
            min_time_ms=self._times[0] // 1_000,
            max_time_ms=self._times[1] // 1_000,
            bytes=size,
        )


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            crc = crc32(piece, crc)
    return crc


def _parquet(out: object, shape: Shape, rows: int) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        out,
        FILE_SCHEMA,
        compression="zstd",
        compression_level=shape.level,
        use_dictionary=_DICTIONARY,
        write_statistics=_STATISTICS,
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(COLUMNS.index("offset"))],
        bloom_filter_options={
            name: {"ndv": max(1, rows), "fpp": FALSE_POSITIVES} for name in shape.bloom
        },
    )
