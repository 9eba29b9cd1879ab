"""Where an archive goes: it says how far it is, and takes the next offsets, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import attrs

from zbus.spark.archive.chain import Chains
from zbus.spark.archive.files import ArchiveFiles, names_in
from zbus.spark.archive.layout import DELTA, check_path
from zbus.spark.archive.plan import Resume
from zbus.spark.archive.records import Commit, FileRecord, Gap, Lane
from zbus.spark.errors import LostRace, SparkProblem, Usage
from zbus.spark.logs import Span


@attrs.frozen
class Piece:
    """The next offsets of a partition."""

    span: Span
    start: int
    end: int
    files: list[FileRecord]
    gaps: list[Gap]
    time_ms: int


class Target(Protocol):
    flat: bool  # paths say neither topic nor date

    def begin(self, time_ms: int) -> None:
        """Make it, if it is not there. Raises Usage if something else is."""

    def resume(self, topic: str, partition: int) -> Resume | None:
        """How far it is; None: it does not know this partition."""

    def commit(self, piece: Piece) -> None:
        """Take these, durably: all or none. Raises LostRace if another client has done it."""


class ParquetTarget:
    """Files with the chain of commits. It remembers lanes: no other client goes on with them, or
    there is a LostRace."""

    flat = False

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._lanes: dict[tuple[str, int], tuple[Lane, int]] = {}

    def begin(self, time_ms: int) -> None:
        self._refuse_delta()
        self._chains.make(time_ms)

    def resume(self, topic: str, partition: int) -> Resume | None:
        lane, _ = self._lane(topic, partition)
        return Resume(lane.incarnation, lane.end) if lane.eras else None

    def commit(self, piece: Piece) -> None:
        span = piece.span
        lane, commits = self._lane(span.topic, span.partition)
        commit = Commit(
            topic=span.topic,
            partition=span.partition,
            incarnation=span.incarnation,
            position=lane.position,
            start=piece.start,
            end=piece.end,
            files=piece.files,
            gaps=piece.gaps,
            time_ms=piece.time_ms,
            run="",
            previous=lane.tip,
        )
        lane.then(commit)  # raises if it cannot be
        require_files(self._chains.files, self._chains.root, piece.files)
        try:
            lane = lane.then(self._chains.append(commit))
        except LostRace:
            self._lanes.pop((span.topic, span.partition))
            raise
        if self._chains.due(lane, commits + 1):
            try:
                self._chains.rewrite(span.topic, span.partition, "commits", piece.time_ms)
                commits = -1
            except LostRace:
                pass  # another run has made one
        self._lanes[span.topic, span.partition] = lane, commits + 1

    def _refuse_delta(self) -> None:
        root = self._chains.root
        if names_in(self._chains.files, root / DELTA):
            raise Usage(f"{root} is a table of Delta Lake: name another directory")

    def _lane(self, topic: str, partition: int) -> tuple[Lane, int]:
        found = self._lanes.get((topic, partition))
        if found is None:
            self._refuse_delta()
            lane, commits, _ = self._chains.read(topic, partition)
            found = self._lanes[topic, partition] = lane, len(commits)
        return found


def require_files(files: ArchiveFiles, root: Path, records: list[FileRecord]) -> None:
    """What is committed is there. Raises SparkProblem."""
    for record in records:
        path = root / check_path(record.path)
        try:
            file = files.open(path, "read")
        except FileNotFoundError:
            raise SparkProblem(
                f"{path} was written by a task, and is not here: all machines of a cluster need the"
                " same directory, and `vacuum` an age that no archiver takes"
            ) from None
        size = files.size(file)
        files.close(file)
        if size != record.bytes:
            raise SparkProblem(f"{path} has {size} bytes, and a task has written {record.bytes}")
