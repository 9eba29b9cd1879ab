"""Commits to an archive, each all or nothing, and durable when it is done.

*Pieces*, the next offsets of some partitions: the start of each is compared with the next offset
that the table's log has, and delta-rs refuses a commit if another one has written the same
transactions since. So of two archivers of a partition one loses.

*Replacements*, files for others with the same messages: delta-rs would let two of them remove the
same file and add its messages twice. So they are committed as the next version to the one that was
looked at, or not at all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from zbus import __version__
from zbus.spark.archive.table import (
    PARTITIONED_BY,
    SCHEMA,
    Archive,
    ArchiveFile,
    Gap,
    Lane,
    Resume,
)
from zbus.spark.errors import LostRace, SparkProblem

TRIES: Final = 20
"""Of a replacement that archivers overtake."""

_LOG: Final = "_delta_log"
_CONFIGURATION: Final = {
    "delta.dataSkippingStatsColumns": "topic,partition,incarnation,offset,timestamp"
}


@attrs.frozen
class Piece:
    """The next offsets of a lane, all of them in files or in gaps."""

    lane: Lane
    start: int
    end: int
    files: list[ArchiveFile]
    gaps: list[Gap]


class Committer:
    """Raises Usage if the directory is the table of another program."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._archive: Archive | None = None

    def begin(self) -> None:
        """Make the archive, if it is not there."""
        if not DeltaTable.is_deltatable(self._root):
            self._root.mkdir(parents=True, exist_ok=True)
            with suppress(
                DeltaError
            ):  # another one has made it; else opening it says what is wrong
                DeltaTable.create(
                    self._root,
                    SCHEMA,
                    partition_by=PARTITIONED_BY,
                    name="zbus archive",
                    configuration=_CONFIGURATION,
                )
                sync_log(self._root, -1, 0)
        self._archive = Archive(self._root)

    def resume(self, topic: str, partition: int) -> Resume | None:
        """Where the archive of a partition ends; None: it does not know it."""
        if self._archive is None and DeltaTable.is_deltatable(self._root):
            self._archive = Archive(self._root)
        return None if self._archive is None else self._archive.resume(topic, partition)

    def commit(self, pieces: Sequence[Piece]) -> None:
        """Take these, durably. Raises LostRace if another archiver has gone on with one of them."""
        assert self._archive is not None
        table = self._archive.table
        table.update_incremental()
        for piece in pieces:
            self._require_next(piece)
            require_files(piece.files)
        properties = CommitProperties(
            custom_metadata=_metadata(pieces),
            app_transactions=[each for piece in pieces for each in _transactions(piece)],
        )
        before = table.version()
        try:
            table.create_write_transaction(
                [_action(self._root, file) for piece in pieces for file in piece.files],
                mode="append",
                schema=SCHEMA,
                partition_by=PARTITIONED_BY,
                commit_properties=properties,
            )
            table.update_incremental()
        except DeltaError as error:
            if isinstance(error, CommitFailedError) and "oncurrent" in str(error):
                raise _lost(pieces[0]) from error
            raise SparkProblem(f"{self._root}: {error}") from error
        sync_log(self._root, before, table.version())

    def _require_next(self, piece: Piece) -> None:
        known = self.resume(piece.lane.topic, piece.lane.partition)
        same = known is not None and known.incarnation == piece.lane.incarnation
        if piece.start != (known.end if known is not None and same else 0):
            raise _lost(piece)


def replace(archive: Archive, old: Sequence[ArchiveFile], new: Sequence[ArchiveFile]) -> None:
    """New files in place of old ones, durably. Raises LostRace if one of those is not there."""
    require_files(new)
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = []
    actions += [_removal(archive.path, file, now_ms) for file in old]
    actions += [_action(archive.path, file, changes=False) for file in new]
    for _ in range(TRIES):
        newest = Archive(archive.path)
        if not set(old) <= set(newest.files()):
            break
        try:
            newest.table.create_write_transaction(
                actions,
                mode="append",
                schema=SCHEMA,
                partition_by=PARTITIONED_BY,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            continue  # an archiver was faster
        except DeltaError as error:
            raise SparkProblem(f"{archive.path}: {error}") from error
        sync_log(archive.path, newest.version, newest.version + 1)
        return
    raise changed(archive.path)


def changed(path: Path) -> LostRace:
    """An operation that was to change files found others."""
    return LostRace(f"{path}: another program has changed its files meanwhile: try again")


def _lost(piece: Piece) -> LostRace:
    return LostRace(
        f"{piece.lane.place}: another run has archived from offset {piece.start} on; one archiver"
        " at a time is enough"
    )


def _transactions(piece: Piece) -> list[Transaction]:
    lane = piece.lane
    return [
        Transaction(lane.newest_incarnation, _number(lane.incarnation)),
        Transaction(lane.next_offset, piece.end),
        *(Transaction(lane.gap(gap.reason, gap.start), gap.end) for gap in piece.gaps),
    ]


def _number(incarnation: str) -> int:
    if not incarnation.isdecimal() or str(int(incarnation)) != incarnation:
        raise SparkProblem(f"the incarnation {incarnation!r} is no number: Delta wants one")
    return int(incarnation)


def _action(root: Path, file: ArchiveFile, *, changes: bool = True) -> AddAction:
    bounds = (
        (file.start, file.min_time_ms),
        (file.end - 1, file.max_time_ms),
    )
    least, most = (
        {
            "topic": file.topic,
            "partition": file.partition,
            "incarnation": file.incarnation,
            "offset": offset,
            "timestamp": _moment(time_ms),
        }
        for offset, time_ms in bounds
    )
    statistics = {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": dict.fromkeys(least, 0),
    }
    return AddAction(
        path=_below(root, file),
        size=file.bytes,
        partition_values=_partition(file),
        modification_time=file.max_time_ms,
        data_change=changes,
        stats=json.dumps(statistics),
    )


def _removal(root: Path, file: ArchiveFile, now_ms: int) -> RemoveAction:
    return RemoveAction(
        path=_below(root, file),
        data_change=False,
        deletion_timestamp=now_ms,
        size=file.bytes,
        partition_values=_partition(file),
    )


def _below(root: Path, file: ArchiveFile) -> str:
    return Path(file.path).relative_to(root).as_posix()


def _partition(file: ArchiveFile) -> dict[str, str | None]:
    return {"lane": file.lane.digest, "date": file.date}


def _moment(time_ms: int) -> str:
    text = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _metadata(pieces: Sequence[Piece]) -> dict[str, Any]:
    """What the table's history says of a commit."""
    said = [
        {
            **piece.lane._asdict(),
            "start": piece.start,
            "end": piece.end,
            "gaps": [gap._asdict() for gap in piece.gaps],
        }
        for piece in pieces
    ]
    return {"zbus.version": __version__, "zbus.archived": json.dumps(said)}


def require_files(files: Sequence[ArchiveFile]) -> None:
    """What is committed is there. Raises SparkProblem."""
    for file in files:
        try:
            size = os.stat(file.path).st_size
        except FileNotFoundError:
            raise SparkProblem(
                f"{file.path} was written by a task, and is not here: all machines of a cluster"
                " need the same directory, and `vacuum` an age that no archiver takes"
            ) from None
        if size != file.bytes:
            raise SparkProblem(f"{file.path} has {size} bytes, and a task has written {file.bytes}")


def sync_log(root: Path, before: int, version: int) -> None:
    """The table's log is durable up to this version: delta-rs itself syncs nothing."""
    log = root / _LOG
    wanted = {f"{number:020}" for number in range(before + 1, version + 1)}
    for path in log.iterdir():
        if path.name[:20] in wanted or path.name == "_last_checkpoint":
            with suppress(FileNotFoundError):
                sync(path)
    sync(log)
    if before < 0:
        sync(root)
        sync(root.parent)


def sync(path: Path) -> None:
    """The content of a file, or the names in a directory, are durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
