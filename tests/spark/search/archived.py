"""Files of an archive, from messages in a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spark.search.messages import plain
from zbus.spark.archive import ArchiveFile
from zbus.spark.archive.writer import Shape, write_files
from zbus.spark.logs import Log
from zbus.spark.source.arrows import read


def archive(
    folder: Path, log: Log, *, rows: int = 120, until: int | None = None, **shape: Any
) -> list[ArchiveFile]:
    """All that a log has, or of each partition what is before `until`; files of so many rows, in
    groups of 50."""
    files = []
    for topic in log.topics():
        for span in log.spans(topic):
            stop = span.end if until is None else min(until, span.end)
            for start in range(span.first, stop, rows):
                end = min(stop, start + rows)
                batches = (
                    batch
                    for first in range(start, end, 50)
                    for batch in read(log, span, first, min(end, first + 50))
                )
                files += write_files(folder, Shape(group_bytes=1, **shape), span, batches)
    return files


def everything(log: Log) -> Iterator[dict[str, Any]]:
    """All messages, as plain values, in order."""
    for topic in log.topics():
        for span in log.spans(topic):
            for batch in read(log, span, span.first, span.end):
                yield from map(plain, batch.to_pylist())
