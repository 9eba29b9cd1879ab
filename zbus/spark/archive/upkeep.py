"""Keeping an archive: few large files of many small ones, no old days, no files that are not
needed, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from zbus.spark.archive.commit import changed, replace, sync_log
from zbus.spark.archive.table import EXPIRED, Archive, ArchiveFile, Gap, Lane, LaneFiles
from zbus.spark.archive.tasks import Engine
from zbus.spark.archive.verify import check_file
from zbus.spark.archive.writer import Shape, write_files
from zbus.spark.errors import SparkProblem, UnknownTopic, Unverified
from zbus.spark.logs import Log, Span
from zbus.spark.source.arrows import ROWS_MAX
from zbus.spark.source.columns import NAMES

AGE_MS_LEAST: Final = 3_600_000
_HOUR_MS: Final = 3_600_000


class Compacted(NamedTuple):
    """What was done with a partition."""

    topic: str
    partition: int
    files_before: int
    files: int


class Expired(NamedTuple):
    """What was taken out of a partition."""

    topic: str
    partition: int
    files: int
    messages: int
    bytes: int


# -- compacting -----------------------------------------------------------------------------------


@attrs.frozen
class Merged:
    """What became of some files."""

    old: list[ArchiveFile]
    new: list[ArchiveFile] = attrs.Factory(list)
    problem: str = ""


def compact(
    archive: Archive,
    engine: Engine,
    file_bytes: int,
    topics: Sequence[str],
    *,
    dry_run: bool = False,
) -> list[Compacted]:
    """Files of one day that follow one another become one, of so many bytes at most, with the same
    messages. Raises LostRace, Unverified; then nothing has changed."""
    files = archive.files(*topics)
    groups = groups_of(files, file_bytes)
    if groups and not dry_run:
        merged = [
            each
            for some in engine.each(partial(merge, root=str(archive.path)), groups)
            for each in some
        ]
        for each in merged:
            if each.problem:
                raise Unverified(f"{each.problem}; nothing is compacted")
        old = [file for each in merged for file in each.old]
        replace(archive, old, [file for each in merged for file in each.new])
    before = Counter(file.lane for file in files)
    gone = Counter(group[0].lane for group in groups for _ in group[1:])
    return [Compacted(*lane[:2], before[lane], before[lane] - gone[lane]) for lane in gone]


def groups_of(files: Iterable[ArchiveFile], file_bytes: int) -> list[list[ArchiveFile]]:
    """Files that become one."""
    groups: list[list[ArchiveFile]] = []
    size = 0
    for file in files:
        last = groups[-1][-1] if groups else None
        follows = last is not None and (last.lane, last.date, last.end) == (
            file.lane,
            file.date,
            file.start,
        )
        if not follows or size + file.bytes > file_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return [group for group in groups if len(group) > 1]


def merge(group: list[ArchiveFile], root: str) -> list[Merged]:
    """Write the messages of some files to one. What is damaged is not copied."""
    for file in group:
        for wrong in check_file(file):
            return [Merged(group, problem=wrong)]
    first, last = group[0], group[-1]
    span = Span(*first.lane, first.start, last.end, 0)
    shape = Shape(file_bytes=last.end << 40)  # all in one
    return [Merged(group, write_files(Path(root), shape, span, _batches(group)))]


def _batches(files: Iterable[ArchiveFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file.path) as parquet:
            yield from parquet.iter_batches(ROWS_MAX, columns=list(NAMES))


# -- removing -------------------------------------------------------------------------------------


@contextmanager
def _changing(archive: Archive) -> Iterator[None]:
    """A change of the table is durable, and its failures are in our words."""
    before = archive.version
    try:
        yield
    except CommitFailedError as error:
        raise changed(archive.path) from error
    except DeltaError as error:
        raise SparkProblem(f"{archive.path}: {error}") from error
    archive.table.update_incremental()
    sync_log(archive.path, before, archive.version)


def expire(
    archive: Archive, before: str, topics: Sequence[str], *, dry_run: bool = False
) -> list[Expired]:
    """Take out all days before this one (YYYY-MM-DD) as gaps. Their files go when they are
    vacuumed: readers have them. Raises LostRace, Unverified."""
    found, transactions, digests = [], [], []
    for lane in archive.lanes(topics):
        old = [file for file in lane.files if file.date < before]
        if not old:
            continue
        sums = sum(file.rows for file in old), sum(file.bytes for file in old)
        found.append(Expired(*lane.lane[:2], len(old), *sums))
        digests.append(lane.lane.digest)
        transactions += [
            Transaction(lane.lane.gap(EXPIRED, gap.start), gap.end) for gap in _expired(lane, old)
        ]
    if found and not dry_run:
        lanes = ", ".join(f"'{digest}'" for digest in digests)
        with _changing(archive):
            archive.table.delete(
                f"date < '{before}' AND lane IN ({lanes})",
                commit_properties=CommitProperties(app_transactions=transactions),
            )
    return found


def _expired(lane: LaneFiles, old: Sequence[ArchiveFile]) -> list[Gap]:
    """Gaps of what was and is expired; those that follow one another are one."""
    gaps = [Gap(file.start, file.end, EXPIRED) for file in old]
    found: list[Gap] = []
    for gap in sorted([*(gap for gap in lane.gaps if gap.reason == EXPIRED), *gaps]):
        if found and gap.start <= found[-1].end:
            found[-1] = Gap(found[-1].start, max(found[-1].end, gap.end), EXPIRED)
        else:
            found.append(gap)
    return found


def vacuum(archive: Archive, older_than_ms: int, *, dry_run: bool = False) -> list[str]:
    """Remove files that the newest version does not need: what was compacted or expired so long
    ago, and what runs that were killed have left. Gives their paths below the archive."""
    hours = -(-older_than_ms // _HOUR_MS)
    with _changing(archive):
        return archive.table.vacuum(
            hours, dry_run=dry_run, enforce_retention_duration=False, full=True
        )


# -- figures --------------------------------------------------------------------------------------


def info(archive: Archive, topics: Sequence[str], log: Log | None = None) -> list[dict[str, Any]]:
    """Figures of each partition of each incarnation; with a log, how far behind it the archive is.
    Raises Unverified."""
    found = []
    for each in archive.lanes(topics):
        files = each.files
        row: dict[str, Any] = {
            **each.lane._asdict(),
            "end": each.end,
            "messages": sum(file.rows for file in files),
            "files": len(files),
            "bytes": sum(file.bytes for file in files),
            "min_time_ms": min(file.min_time_ms for file in files),
            "max_time_ms": max(file.max_time_ms for file in files),
            "gaps": [gap._asdict() for gap in each.gaps],
        }
        if log is not None:
            row["lag"] = _lag(log, each)
        found.append(row)
    return found


def _lag(log: Log, lane: LaneFiles) -> int | None:
    """None: the log has no such lane any more."""
    try:
        spans = log.spans(lane.lane.topic)
    except UnknownTopic:
        return None
    return next((span.end - lane.end for span in spans if Lane(*span[:3]) == lane.lane), None)
