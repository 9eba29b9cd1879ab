"""Making few large files of many small ones, and a snapshot of a long chain.

An archive that is written every minute has a small file for each. Files of one day that follow one
another become one, with the same messages; what they were made of stays until it is vacuumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from zbus.spark.archive.chain import Chains
from zbus.spark.archive.files import ArchiveFiles, OsArchiveFiles, source
from zbus.spark.archive.layout import Attempt
from zbus.spark.archive.records import FileRecord, Lane
from zbus.spark.archive.tasks import Engine
from zbus.spark.archive.writer import Shape, body_crc, write_files
from zbus.spark.errors import SparkProblem, Unverified
from zbus.spark.logs import Span
from zbus.spark.source.arrows import ROWS_MAX


@attrs.frozen
class Group:
    """Files that become one."""

    topic: str
    partition: int
    files: list[FileRecord]


@attrs.frozen
class Merged:
    """What became of them."""

    group: Group
    files: list[FileRecord] = attrs.Factory(list)
    problem: SparkProblem | None = None


@attrs.frozen
class Compacted:
    """What was done with a partition."""

    topic: str
    partition: int
    files_before: int
    files: int
    snapshot: int  # its number


def compact(
    chains: Chains,
    shape: Shape,
    engine: Engine,
    time_ms: int,
    topics: list[str],
    *,
    dry_run: bool = False,
    files: ArchiveFiles | None = None,
) -> list[Compacted]:
    """Raises LostRace, Unverified (then nothing is replaced in that partition)."""
    found = []
    run = Attempt.begun(time_ms).text
    merge = partial(merge_group, root=str(chains.root), run=run, shape=shape, files=files)
    for topic, partition in chains.lanes():
        if topics and topic not in topics:
            continue
        lane, commits, _ = chains.read(topic, partition)
        groups = groups_of(lane, shape.file_bytes)
        if not commits and not groups:
            continue
        before = len(lane.files)
        after = before - sum(len(group.files) - 1 for group in groups)
        if dry_run:
            found.append(Compacted(topic, partition, before, after, -1))
            continue
        merged = [each for some in engine.each(merge, groups) for each in some]
        for each in merged:
            if each.problem is not None:
                raise each.problem
        change = partial(_with, merged=merged)
        snapshot = chains.rewrite(topic, partition, "compact", time_ms, change)
        assert snapshot is not None
        found.append(Compacted(topic, partition, before, len(snapshot.lane.files), snapshot.number))
    return found


def groups_of(lane: Lane, file_bytes: int) -> list[Group]:
    """Files of one day that follow one another, together not larger than a file is to be."""
    groups: list[list[FileRecord]] = []
    size = 0
    for file in lane.files:
        last = groups[-1][-1] if groups else None
        fits = (
            last is not None
            and (last.incarnation, last.date, last.end) == (file.incarnation, file.date, file.start)
            and size + file.content_bytes <= file_bytes
        )
        if not fits:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.content_bytes
    return [Group(lane.topic, lane.partition, group) for group in groups if len(group) > 1]


def merge_group(
    group: Group, root: str, run: str, shape: Shape, files: ArchiveFiles | None = None
) -> list[Merged]:
    """Write the messages of some files to one. It reads them anyway, so it checks them."""
    system = files or OsArchiveFiles()
    first, last = group.files[0], group.files[-1]
    span = Span(group.topic, group.partition, first.incarnation, first.start, last.end, 0)
    try:
        json = all(_bodies_are_text(system, Path(root), file) for file in group.files)
        shape = attrs.evolve(shape, json=json)
        batches = _batches(system, Path(root), group.files)
        now_ms = time.time_ns() // 1_000_000
        made = write_files(system, Path(root), run, shape, span, batches, now_ms)
        at = first.start
        for each in made:
            if each.start != at:
                break
            at = each.end
        if at != last.end:
            raise Unverified(f"{first.path} and those behind it do not follow one another")
    except SparkProblem as problem:
        return [Merged(group, problem=problem)]
    return [Merged(group, made)]


def _batches(
    files: ArchiveFiles, root: Path, records: list[FileRecord]
) -> Iterator[pa.RecordBatch]:
    for record in records:
        crc = rows = 0
        try:
            with source(files, root / record.path) as opened:
                parquet = pq.ParquetFile(opened, page_checksum_verification=True)
                at = parquet.schema_arrow.get_field_index("body")
                for batch in parquet.iter_batches(ROWS_MAX):
                    crc = body_crc(batch.column("body"), crc)
                    rows += batch.num_rows
                    yield batch.set_column(at, "body", batch.column("body").cast(pa.binary()))
        except (FileNotFoundError, pa.ArrowInvalid, OSError) as error:
            raise Unverified(f"{root / record.path} cannot be read: {error}") from error
        if (rows, crc) != (record.rows, record.crc):
            raise Unverified(f"{root / record.path} is not what was written; see archive verify")


def _bodies_are_text(files: ArchiveFiles, root: Path, record: FileRecord) -> bool:
    try:
        with source(files, root / record.path) as opened:
            kind = pq.read_schema(opened).field("body").type
    except (FileNotFoundError, pa.ArrowInvalid, OSError) as error:
        raise Unverified(f"{root / record.path} cannot be read: {error}") from error
    return bool(kind == pa.string())


def _with(lane: Lane, merged: list[Merged]) -> Lane:
    """A lane with larger files, where those that they were made of are still there."""
    there = {file.path for file in lane.files}
    instead: dict[str, list[FileRecord]] = {}
    for each in merged:
        paths = [file.path for file in each.group.files]
        if there.issuperset(paths):
            instead |= {path: [] for path in paths[1:]}
            instead[paths[0]] = each.files
    files = [new for old in lane.files for new in instead.get(old.path, [old])]
    return msgspec.structs.replace(lane, files=files)
