"""What is written down about the files of an archive: commits, snapshots, and what they come to.

A *lane* is a partition of a topic. Its commits are a chain: each says from which offset to which
it goes on, and what the one before it was. Its *position* counts all offsets of the lane: an
incarnation begins at offset 0 again, the position goes on. So the name of the next commit is known
from the one before it, and of two archivers only one can make it.

A snapshot is a lane as its chain has made it. It saves others from reading the chain, and it is how
files are replaced by larger ones, and taken out: a commit only ever adds.

Records are JSON. Each has the SHA-256 of itself without it, and names that of the one before.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from zbus.spark.archive.layout import check_path
from zbus.spark.errors import Unverified, Usage

FORMAT: Final = 1

BEFORE: Final = "before the first archive"
RETENTION: Final = "removed by the retention before they were archived"
EXPIRED: Final = "expired from the archive"

Natural = Annotated[int, msgspec.Meta(ge=0)]


class FileRecord(msgspec.Struct, frozen=True):
    """A data file."""

    path: str  # below the root of the archive
    incarnation: str
    start: Natural
    end: Natural
    date: str  # in UTC, of all its messages
    min_time_ms: int
    max_time_ms: int
    bytes: Natural
    content_bytes: Natural  # of its messages, as Arrow has them
    crc: Natural  # CRC-32 of the bodies, one after another
    file_crc: Natural  # CRC-32 of the file, with all that is around them

    @property
    def rows(self) -> int:
        """A file has all messages from its start to before its end."""
        return self.end - self.start


class Gap(msgspec.Struct, frozen=True):
    """Offsets that are in no file, and why."""

    incarnation: str
    start: Natural
    end: Natural
    reason: str
    time_ms: int = 0  # when it was found, or made


class Era(msgspec.Struct, frozen=True):
    """An incarnation of a topic."""

    incarnation: str
    position: Natural  # at which it begins


class Commit(msgspec.Struct, frozen=True):
    """The next offsets of a lane, all of them in files or in gaps."""

    topic: str
    partition: Natural
    incarnation: str
    position: Natural
    start: Natural
    end: Natural
    files: list[FileRecord]
    gaps: list[Gap]
    time_ms: int
    run: str  # the run that wrote it
    previous: str  # the checksum of the commit before; empty: this is the first
    version: str = ""  # of zbus
    checksum: str = ""
    format: int = FORMAT

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class Lane(msgspec.Struct, frozen=True):
    """All that is archived of a partition."""

    topic: str
    partition: Natural
    position: Natural = 0  # of the next commit
    incarnation: str = ""
    end: Natural = 0  # the next offset
    tip: str = ""  # the checksum of the last commit
    files: list[FileRecord] = []
    gaps: list[Gap] = []
    eras: list[Era] = []

    @property
    def place(self) -> str:
        return f"{self.topic}, partition {self.partition}"

    def then(self, commit: Commit) -> Lane:
        """With one commit more. Raises Unverified if it is not the next one."""
        wrong = self._wrong(commit)
        if wrong:
            raise Unverified(f"{self.place}: the commit at {commit.position} {wrong}")
        eras = self.eras
        if commit.incarnation != self.incarnation or not eras:
            eras = [*eras, Era(commit.incarnation, commit.position)]
        return Lane(
            topic=self.topic,
            partition=self.partition,
            position=commit.position + commit.end - commit.start,
            incarnation=commit.incarnation,
            end=commit.end,
            tip=commit.checksum,
            files=[*self.files, *commit.files],
            gaps=[*self.gaps, *commit.gaps],
            eras=eras,
        )

    def _wrong(self, commit: Commit) -> str:
        if (commit.topic, commit.partition) != (self.topic, self.partition):
            return f"is of {commit.topic}, partition {commit.partition}"
        if commit.position != self.position:
            return f"is where that at {self.position} belongs"
        if commit.previous != self.tip:
            return "does not follow the one before it: its `previous` is another one's checksum"
        begins = commit.incarnation != self.incarnation
        if commit.start != (0 if begins else self.end):
            return f"starts at offset {commit.start}, not at {0 if begins else self.end}"
        if commit.end <= commit.start:
            return f"ends at offset {commit.end}, where it starts"
        return uncovered(commit)


class Snapshot(msgspec.Struct, frozen=True):
    """A lane, and what made it so."""

    number: Natural
    lane: Lane
    why: str
    time_ms: int
    run: str
    previous: str  # the checksum of the snapshot before
    version: str = ""
    checksum: str = ""
    format: int = FORMAT


Record = TypeVar("Record", Commit, Snapshot)


def uncovered(commit: Commit) -> str:
    """What is wrong with its files and gaps, which hold each offset once; empty: nothing."""
    at = commit.start
    ranges: list[FileRecord | Gap] = [*commit.files, *commit.gaps]
    for each in sorted(ranges, key=lambda each: each.start):
        if each.incarnation != commit.incarnation:
            return f"has messages of incarnation {each.incarnation}, not of {commit.incarnation}"
        if each.start != at or each.end <= each.start:
            return f"has offset {each.start} where {at} is next"
        at = each.end
    return "" if at == commit.end else f"has nothing for the offsets {at} to {commit.end}"


def sealed(record: Record) -> Record:
    """With its checksum."""
    return msgspec.structs.replace(record, checksum=_checksum(record))


def _checksum(record: Commit | Snapshot) -> str:
    return sha256(msgspec.json.encode(msgspec.structs.replace(record, checksum=""))).hexdigest()


def encode(record: Commit | Snapshot) -> bytes:
    """As it is written."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes, kind: type[Record], path: Path) -> Record:
    """Raises Unverified if it is not what was written."""
    try:
        record = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unverified(f"{path} cannot be read: {error}") from None
    if record.format != FORMAT:
        raise Unverified(f"{path} has format {record.format}, which this version does not know")
    if record.checksum != _checksum(record):
        raise Unverified(f"{path} is not what was written: its checksum is wrong")
    files = record.files if isinstance(record, Commit) else record.lane.files
    try:
        for file in files:
            check_path(file.path)
    except Usage as error:
        raise Unverified(f"{path}: {error}") from None
    return record
