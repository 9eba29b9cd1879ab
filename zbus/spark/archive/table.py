"""An archive for those who read: which files there are, and the messages in them as one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds
from pyarrow import fs

from zbus.spark.archive.chain import Chains
from zbus.spark.archive.files import OsArchiveFiles
from zbus.spark.archive.job import local_directory
from zbus.spark.archive.records import Commit, FileRecord, Lane
from zbus.spark.errors import UnknownTopic
from zbus.spark.source.columns import arrow_schema


class ArchiveFile(NamedTuple):
    """A file with the messages `start` to before `end`, all of one UTC day."""

    path: str  # absolute
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
    crc: int  # CRC-32 of the bodies, one after another


class End(NamedTuple):
    """How far a partition was archived at some time. What is archived later is behind it."""

    topic: str
    partition: int
    incarnation: str
    end: int


def ends_of(files: Iterable[ArchiveFile]) -> list[End]:
    """Of the partitions of these files."""
    found: dict[tuple[str, int, str], End] = {}
    for file in files:
        lane = file.topic, file.partition, file.incarnation
        known = found.get(lane, End(*lane, 0))
        found[lane] = End(*lane, max(known.end, file.end))
    return list(found.values())


class Archive:
    """What is committed later is seen by the next call; what is replaced or taken
    out stays for as long as `vacuum` is told. Raises Usage if it is none, Unverified if its records
    are damaged."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(local_directory(str(path)))
        self.chains = Chains(OsArchiveFiles(), self.path)
        self.chains.require()

    def topics(self) -> list[str]:
        """All that something is archived of, in order."""
        return sorted({topic for topic, _ in self.chains.lanes()})

    def lanes(self, topic: str | None = None) -> list[Lane]:
        """Partitions, in order. Raises UnknownTopic."""
        found = [
            self.chains.lane(name, partition)
            for name, partition in self.chains.lanes()
            if topic in (None, name)
        ]
        if topic is not None and not found:
            raise UnknownTopic(f"nothing of the topic {topic} is archived in {self.path}")
        return found

    def chain(self, topic: str) -> list[Commit]:
        """The commits since the newest snapshot of each partition. Raises UnknownTopic."""
        return [
            commit
            for lane in self.lanes(topic)
            for commit in self.chains.read(lane.topic, lane.partition)[1]
        ]

    def files(self, topic: str | None = None) -> list[ArchiveFile]:
        """Those that are committed, in order of partition and offset. Raises UnknownTopic."""
        return [self._file(lane, file) for lane in self.lanes(topic) for file in lane.files]

    def _file(self, lane: Lane, file: FileRecord) -> ArchiveFile:
        return ArchiveFile(
            path=str(self.path / file.path),
            topic=lane.topic,
            partition=lane.partition,
            incarnation=file.incarnation,
            start=file.start,
            end=file.end,
            rows=file.rows,
            date=file.date,
            min_time_ms=file.min_time_ms,
            max_time_ms=file.max_time_ms,
            bytes=file.bytes,
            crc=file.crc,
        )

    def dataset(self, files: Sequence[ArchiveFile]) -> ds.FileSystemDataset:
        """Their messages as a table with all columns. What a filter on topic, partition, offset or
        timestamp leaves out is not opened."""
        return dataset(files)


def dataset(files: Sequence[ArchiveFile]) -> ds.FileSystemDataset:
    """See `Archive.dataset`."""
    form = ds.ParquetFileFormat()
    local = fs.LocalFileSystem()
    fragments = [
        form.make_fragment(file.path, local, partition_expression=_known(file)) for file in files
    ]
    return ds.FileSystemDataset(fragments, arrow_schema(), form, local)


def _known(file: ArchiveFile) -> ds.Expression:
    """What is true of all messages of a file."""
    import pyarrow as pa

    kind = arrow_schema(["timestamp"]).field(0).type
    least, most = (
        pa.scalar(1_000 * time_ms, pa.int64()).cast(kind)
        for time_ms in (file.min_time_ms, file.max_time_ms)
    )
    offset, time = ds.field("offset"), ds.field("timestamp")
    return (
        (ds.field("topic") == file.topic)
        & (ds.field("partition") == pa.scalar(file.partition, pa.int32()))
        & (offset >= file.start)
        & (offset < file.end)
        & (time >= least)
        & (time <= most)
    )
