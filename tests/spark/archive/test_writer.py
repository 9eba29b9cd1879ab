"""Files: what is in them, where they are cut, and what a search finds in their footers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive.table import COLUMNS, FILE_SCHEMA, ArchiveFile
from zbus.spark.archive.writer import Shape, checksum, write_files
from zbus.spark.source.arrows import read

DAY_MS = 86_400_000
MIDNIGHT_MS = TIME_MS // DAY_MS * DAY_MS


def write(root: Path, log: MemoryLog, shape: Shape) -> list[ArchiveFile]:
    (span,) = log.spans("orders")
    batches = [
        batch
        for start in range(span.first, span.end, 10)  # Arrow batches are larger as a rule
        for batch in read(log, span, start, min(start + 10, span.end))
    ]
    return write_files(root, shape, span, batches)


@pytest.fixture
def log() -> MemoryLog:
    found = MemoryLog()
    for number in range(40):
        found.put(
            "orders",
            [b"%d" % number * 500] * 10,
            time_ms=TIME_MS + number,
            ids=[b"id-%d-%d" % (number, each) for each in range(10)],
            tags=[b"eu"] * 10,
            keys=[b"k%d" % each for each in range(10)],
            headers=[b"a: %d\r\n" % number] * 10,
        )
    return found


def test_what_a_file_is_like(log: MemoryLog, tmp_path: Path) -> None:
    (record,) = write(tmp_path, log, Shape(group_bytes=150_000))
    found = pq.ParquetFile(record.path, page_checksum_verification=True)
    assert found.schema_arrow.equals(FILE_SCHEMA)
    assert found.num_row_groups == 3
    group = found.metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    for name in ("topic", "partition", "offset", "timestamp", "id", "key", "incarnation"):
        assert columns[name].is_stats_set, name
        assert columns[name].has_offset_index, name
        assert columns[name].has_column_index, name
    assert not columns["body"].is_stats_set
    dictionaries = {name for name, column in columns.items() if column.has_dictionary_page}
    assert dictionaries == {"topic", "partition", "incarnation", "tag", "key"}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    with_bloom = {name for name, each in columns.items() if each.bloom_filter_offset is not None}
    assert with_bloom == {"id", "key"}
    assert group.sorting_columns[0].column_index == COLUMNS.index("offset")


def test_nothing_is_left_beside_the_files(log: MemoryLog, tmp_path: Path) -> None:
    (record,) = write(tmp_path, log, Shape())
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert (str(path), path.stat().st_size) == (record.path, record.bytes)
    assert path.name.startswith(f"{0:020}-{400:020}-{checksum(path):08x}-")


def test_a_file_that_grows_too_large_is_cut(log: MemoryLog, tmp_path: Path) -> None:
    """The plan goes by the average: messages of one range may be larger."""
    records = write(tmp_path, log, Shape(file_bytes=50_000, group_bytes=10_000))
    assert len(records) > 2
    assert all(one.end == other.start for one, other in pairwise(records))
    assert (records[0].start, records[-1].end) == (0, 400)


def test_nothing_is_no_file(tmp_path: Path) -> None:
    assert write_files(tmp_path, Shape(), None, []) == []  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_fails_leaves_nothing_open(log: MemoryLog, tmp_path: Path) -> None:
    (span,) = log.spans("orders")

    def broken() -> Iterator[pa.RecordBatch]:
        yield from read(log, span, 0, 10)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_files(tmp_path, Shape(), span, broken())
    (left,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert left.suffix == ".part"


def test_midnight(tmp_path: Path) -> None:
    log = MemoryLog()
    for time_ms in (MIDNIGHT_MS - 2, MIDNIGHT_MS - 1, MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS):
        log.put("orders", [b"x", b"y"], time_ms=time_ms)
    found = write(tmp_path, log, Shape())
    assert [(file.date, file.start, file.end) for file in found] == [
        ("2027-01-14", 0, 4),
        ("2027-01-15", 4, 6),
        ("2027-01-16", 6, 8),
    ]
    assert (found[0].min_time_ms, found[0].max_time_ms) == (MIDNIGHT_MS - 2, MIDNIGHT_MS - 1)
    assert [Path(file.path).parent.name for file in found] == [
        f"date={file.date}" for file in found
    ]


def test_a_clock_that_goes_back_at_midnight(tmp_path: Path) -> None:
    log = MemoryLog()
    for time_ms in (MIDNIGHT_MS, MIDNIGHT_MS - 1, MIDNIGHT_MS + 1):
        log.put("orders", [b"x"], time_ms=time_ms)
    assert [(file.date[-2:], file.start) for file in write(tmp_path, log, Shape())] == [
        ("15", 0),
        ("14", 1),
        ("15", 2),
    ]
