"""Whether an archive is what was written: its table, its files, and the log if it is at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zbus.spark.archive.table import (
    FILE_SCHEMA,
    UNKNOWN,
    Archive,
    ArchiveFile,
    Lane,
    LaneFiles,
)
from zbus.spark.archive.tasks import Engine
from zbus.spark.archive.writer import checksum
from zbus.spark.errors import DataLoss, SparkProblem, UnknownTopic
from zbus.spark.logs import Log, Span
from zbus.spark.source.arrows import ROWS_MAX, read
from zbus.spark.source.columns import NAMES, arrow_schema

_CHECKSUM: Final = re.compile(r"[0-9]{20}-[0-9]{20}-([0-9a-f]{8})-[0-9a-f]{12}\.parquet")
_UNREADABLE: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError)


@attrs.define
class Checkup:
    """What was looked at, and what is wrong: a sentence each."""

    lanes: int = 0
    files: int = 0
    messages: int = 0
    bytes: int = 0
    compared: int = 0  # messages, with the log
    gone: int = 0  # messages that the log does not have any more
    wrong: list[str] = attrs.Factory(list)


def verify(
    archive: Archive,
    engine: Engine,
    topics: Sequence[str],
    *,
    quick: bool = False,
    log: Log | None = None,
) -> Checkup:
    """`quick`: no message is read. `log`: what it still has is compared, message by message."""
    lanes = list(archive.lanes(topics))
    files = [file for lane in lanes for file in lane.files]
    found = Checkup(
        lanes=len(lanes),
        files=len(files),
        messages=sum(file.rows for file in files),
        bytes=sum(file.bytes for file in files),
    )
    for wrong in engine.each(partial(check_file, quick=quick), files):
        found.wrong += wrong
    for lane in lanes:
        found.wrong += _whole(lane)
        if log is not None:
            _compare(lane, log, found)
    return found


def _whole(lane: LaneFiles) -> Iterator[str]:
    """Each offset is in one file or one gap."""
    at = 0
    for file in lane.files:
        if file.start < at:
            yield f"{lane.lane.place}: offset {file.start} is there where {at} is next"
        at = max(at, file.end)
    if at > lane.end:
        yield f"{lane.lane.place}: offset {at - 1} is there, and the table ends at {lane.end}"
    for gap in lane.gaps:
        if gap.reason == UNKNOWN:
            yield f"{lane.lane.place}: offsets {gap.start} to {gap.end} are {UNKNOWN}"


# -- a file ---------------------------------------------------------------------------------------


def check_file(file: ArchiveFile, quick: bool = False) -> list[str]:
    """What is wrong with a file, if anything is. `quick`: by what it says of itself."""
    path = Path(file.path)
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return [f"{path} has {size} bytes, not {file.bytes}"]
        named = _CHECKSUM.fullmatch(path.name)  # what other programs write has other names
        if not quick and named is not None and checksum(path) != int(named[1], 16):
            return [f"{path} is not what was written: its checksum is wrong"]
        with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
            wrong = _footer(file, parquet) or ("" if quick else _messages(file, parquet))
    except FileNotFoundError:
        return [f"{path} is missing"]
    except _UNREADABLE as error:
        return [f"{path} cannot be read: {str(error).splitlines()[0]}"]
    return [f"{path} {wrong}"] if wrong else []


def _footer(file: ArchiveFile, parquet: pq.ParquetFile) -> str:
    """What is wrong with what it says of itself; empty: nothing."""
    if parquet.schema_arrow.names != FILE_SCHEMA.names:
        return "has other columns"
    if parquet.metadata.num_rows != file.end - file.start:
        return f"has {parquet.metadata.num_rows} messages of offsets {file.start} to {file.end}"
    return ""


def _messages(file: ArchiveFile, parquet: pq.ParquetFile) -> str:
    at = file.start
    times = []
    for batch in parquet.iter_batches(ROWS_MAX):
        offsets = batch.column("offset").to_numpy()
        if not np.array_equal(offsets, np.arange(at, at + len(offsets))):
            return f"has other offsets than {at} to {at + len(offsets)}"
        at += len(offsets)
        lanes = [batch.column(name).unique().to_pylist() for name in Lane._fields]
        if lanes != [[value] for value in file.lane]:
            return f"has messages of {lanes}, not of {file.lane.place}"
        bounds = pc.min_max(batch.column("timestamp").cast(pa.int64())).as_py()
        times += [bounds["min"] // 1_000, bounds["max"] // 1_000]
    least, most = min(times), max(times)
    if (least, most) != (file.min_time_ms, file.max_time_ms):
        return f"has messages of {least} to {most} ms, not as the table's log says"
    dates = {_date(least), _date(most)} - {file.date}
    return f"has messages of {', '.join(sorted(dates))}" if dates else ""


def _date(time_ms: int) -> str:
    return str(pa.scalar(time_ms, pa.timestamp("ms")).as_py().date())


# -- the log --------------------------------------------------------------------------------------


def _compare(lane: LaneFiles, log: Log, found: Checkup) -> None:
    span = _span(log, lane.lane)
    for file in lane.files:
        try:
            span = _compare_file(file, log, span, found)
        except DataLoss as error:
            found.wrong.append(f"{lane.lane.place}: the log has lost what is archived: {error}")
        except _UNREADABLE:
            pass  # that is told anyway
        except SparkProblem as error:
            found.wrong.append(f"{lane.lane.place}: {error}")


def _span(log: Log, lane: Lane) -> Span | None:
    """What there is by now."""
    try:
        spans = log.spans(lane.topic)
    except UnknownTopic:
        return None
    return next((span for span in spans if Lane(*span[:3]) == lane), None)


def _compare_file(file: ArchiveFile, log: Log, span: Span | None, found: Checkup) -> Span | None:
    """Gives the span as it is by then: retention goes on meanwhile, and what it has removed is
    gone, and not lost. Raises DataLoss, SparkProblem."""
    if span is None or span.first >= file.end:
        found.gone += file.rows
        return span
    at = file.start
    with pq.ParquetFile(file.path) as parquet:
        for group in range(parquet.num_row_groups):  # each read of the log has a cost of its own
            archived = parquet.read_row_group(group, NAMES).select(NAMES)
            start, at = at, at + archived.num_rows
            span, first, live = _live(log, span, file.lane, start, at)
            found.gone += first - start
            found.compared += at - first
            if live is not None and not archived.slice(first - start).equals(live):
                found.wrong.append(
                    f"{file.path}: of the offsets {first} to {at} the log has other messages"
                )
    return span


def _live(
    log: Log, span: Span | None, lane: Lane, start: int, stop: int
) -> tuple[Span | None, int, pa.Table | None]:
    """What the log has of these offsets, and from which on."""
    while span is not None and span.first < stop:
        first = max(start, span.first)
        try:
            batches = list(read(log, span, first, stop))
            return span, first, pa.Table.from_batches(batches, arrow_schema())
        except DataLoss:
            before, span = span, _span(log, lane)
            if span is not None and span.first == before.first:
                raise
    return span, stop, None
