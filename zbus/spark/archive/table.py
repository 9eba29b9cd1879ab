"""An archive is a table of Delta Lake: its columns, its files, and what its log says of offsets.

    lane=<lane>/date=2026-11-23/<start>-<end>-<checksum>-<chance>.parquet
    _delta_log/

A *lane* is a partition of one incarnation of a topic. The table is partitioned by lane and date, so
a file has messages of one lane and one UTC day, whoever compacts it. `lane` is a digest: names of
topics are any text, and are in a column instead of in a path.

The log remembers numbers by name: the *transactions* of applications. An archive keeps there the
next offset of each lane, the newest incarnation of each partition, and each gap, that is, offsets
that are in no file, and why. They are written along with the files, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from zbus.spark.errors import UnknownTopic, Unverified, Usage
from zbus.spark.source.columns import NAMES, arrow_schema

if TYPE_CHECKING:
    import pyarrow.dataset as ds

COLUMNS: Final = (*NAMES, "incarnation")
"""Of a file."""

PARTITIONED_BY: Final = ["lane", "date"]
FILE_SCHEMA: Final = arrow_schema().append(pa.field("incarnation", pa.string()))
SCHEMA: Final = FILE_SCHEMA.append(pa.field("lane", pa.string())).append(
    pa.field("date", pa.date32())
)

BEFORE: Final = "before the first archive"
RETENTION: Final = "removed by the retention before they were archived"
EXPIRED: Final = "expired from the archive"
REASONS: Final = {"before": BEFORE, "retention": RETENTION, "expired": EXPIRED}
UNKNOWN: Final = "in no file, and the table's log does not say why"

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Lane(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    partition: int
    incarnation: str

    @property
    def place(self) -> str:
        return f"{self.topic}, partition {self.partition}"

    @property
    def digest(self) -> str:
        """The value of the column `lane`."""
        name = f"{self.partition}:{self.incarnation}:{self.topic}"
        return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def next_offset(self) -> str:
        """The transaction whose version is the next offset."""
        return f"zbus:offset:{self.partition}:{self.incarnation}:{self.topic}"

    @property
    def newest_incarnation(self) -> str:
        """The transaction whose version is the newest incarnation of this partition."""
        return f"zbus:incarnation:{self.partition}:{self.topic}"

    def gap(self, reason: str, start: int) -> str:
        """The transaction whose version is where a gap ends that starts there."""
        code = next(code for code, text in REASONS.items() if text == reason)
        return f"zbus:gap:{code}:{self.partition}:{self.incarnation}:{start}:{self.topic}"


class ArchiveFile(NamedTuple):
    """A file with the messages `start` to before `end` of a lane, all of one UTC day."""

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

    @property
    def lane(self) -> Lane:
        return Lane(self.topic, self.partition, self.incarnation)


class Gap(NamedTuple):
    """Offsets that are in no file, and why."""

    start: int
    end: int
    reason: str


class Resume(NamedTuple):
    """Where the archive of a partition ends."""

    incarnation: str
    end: int


@attrs.frozen
class LaneFiles:
    """All that is archived of a lane."""

    lane: Lane
    end: int  # the next offset
    files: list[ArchiveFile]
    gaps: list[Gap]


class Archive:
    """A version of the table: the newest one, if none is named. What is committed later is in a
    later version; the files of this one stay until `vacuum` removes them.

    Raises Usage if it is no archive or there is no such version, Unverified if its log is damaged.
    """

    def __init__(self, path: str | Path, version: int | None = None) -> None:
        self.path = Path(local_directory(str(path)))
        self.table = open_table(self.path, version)

    @property
    def version(self) -> int:
        return self.table.version()

    def topics(self) -> list[str]:
        """All that there are messages of, in order."""
        return sorted({file.topic for file in self._files})

    def files(self, *topics: str) -> list[ArchiveFile]:
        """Of these topics, or all, in order of topic, partition, incarnation and offset. Raises
        UnknownTopic."""
        for topic in topics:
            if topic not in self.topics():
                raise UnknownTopic(f"nothing of the topic {topic} is archived in {self.path}")
        return [file for file in self._files if not topics or file.topic in topics]

    @cached_property
    def _files(self) -> list[ArchiveFile]:
        rows = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        return sorted((self._file(row) for row in rows), key=_order)

    def _file(self, row: dict[str, Any]) -> ArchiveFile:
        try:
            return ArchiveFile(
                path=str(self.path / row["path"]),
                topic=row["min.topic"],
                partition=row["min.partition"],
                incarnation=row["min.incarnation"],
                start=row["min.offset"],
                end=row["max.offset"] + 1,
                rows=row["num_records"],
                date=str(row["partition.date"]),
                min_time_ms=_ms(row["min.timestamp"]),
                max_time_ms=_ms(row["max.timestamp"]),
                bytes=row["size_bytes"],
            )
        except (KeyError, TypeError, AttributeError):
            raise Unverified(
                f"{self.path}: the table's log has no statistics of {row.get('path')}, which zbus"
                " has not written"
            ) from None

    def resume(self, topic: str, partition: int) -> Resume | None:
        """Where the archive of this partition ends; None: it is not archived. Raises Unverified."""
        newest = self.table.transaction_version(Lane(topic, partition, "").newest_incarnation)
        if newest is None:
            return None
        lane = Lane(topic, partition, str(newest))
        return Resume(lane.incarnation, self._end(lane))

    def _end(self, lane: Lane) -> int:
        end = self.table.transaction_version(lane.next_offset)
        if end is None:
            raise Unverified(f"{lane.place}: the table does not say its next offset")
        return end

    def lanes(self, topics: Sequence[str] = ()) -> Iterator[LaneFiles]:
        """Those of which there are files, in order. Raises Unverified."""
        for lane, group in groupby(self._files, key=lambda file: file.lane):
            if not topics or lane.topic in topics:
                files, end = list(group), self._end(lane)
                yield LaneFiles(lane, end, files, list(self._gaps(lane, end, files)))

    def _gaps(self, lane: Lane, end: int, files: Sequence[ArchiveFile]) -> Iterator[Gap]:
        """What lies between these files and before `end`, and why."""
        at = 0
        for start, stop in [*((file.start, file.end) for file in files), (end, end)]:
            while at < start:
                gap = self._gap(lane, at, start)
                yield gap
                at = gap.end
            at = max(at, stop)

    def _gap(self, lane: Lane, start: int, end: int) -> Gap:
        for reason in REASONS.values():
            stop = self.table.transaction_version(lane.gap(reason, start))
            if stop is not None and stop > start:
                return Gap(start, min(stop, end), reason)
        return Gap(start, end, UNKNOWN)

    def dataset(self) -> ds.Dataset:
        """All messages, with the columns of the table. Files that a filter leaves out by what the
        table's log says of them are not opened."""
        return self.table.to_pyarrow_dataset()


def _order(file: ArchiveFile) -> tuple[str, int, int, int]:
    return file.topic, file.partition, int(file.incarnation), file.start


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def open_table(path: Path, version: int | None = None) -> DeltaTable:
    """The table of an archive. Raises Usage if it is none, Unverified if its log is damaged."""
    try:
        table = DeltaTable(path, version=version)
    except TableNotFoundError:
        raise Usage(f"{path} is not an archive of zbus: it has no _delta_log") from None
    except (DeltaError, OSError) as error:
        if version is not None:
            raise Usage(f"{path}: version {version} is not there any more: {error}") from error
        raise Unverified(f"{path} cannot be read as a Delta table: {error}") from error
    wanted = {field.name: field.type for field in Schema.from_arrow(SCHEMA).fields}
    found = {field.name: field.type for field in table.schema().fields}
    if found != wanted:
        wrong = sorted(name for name in found | wanted if found.get(name) != wanted.get(name))
        raise Usage(f"{path} is a table with other columns: {', '.join(wrong)} differ")
    if (by := table.metadata().partition_columns) != PARTITIONED_BY:
        cut = ", ".join(by) or "nothing"
        raise Usage(f"{path} is a table that is partitioned by {cut}, not as an archive")
    return table


def local_directory(text: str) -> str:
    """A directory as people write it, perhaps as a URI. Raises Usage."""
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif _URI.match(text):
        raise Usage(f"{text}: an archive is a directory; object stores are not supported")
    return str(Path(text).expanduser().absolute())
