"""An archive on the disk that loses power, of logs in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive.chain import Chains
from zbus.spark.archive.files import ArchiveFiles
from zbus.spark.archive.job import Job, Report
from zbus.spark.archive.records import Lane
from zbus.spark.archive.sink import ParquetTarget
from zbus.spark.archive.tasks import Threads
from zbus.spark.archive.writer import Shape
from zbus.testing.disk import Disk, Operation
from zbus.testing.volume import Volume

ROOT = Path("/archive")
HERE = Threads(1)


class Killed(BaseException):
    """The process is dead: nothing of it happens any more."""


class LinkDisk(Disk):
    """A disk that knows links: a change of names as any other."""

    def __init__(self, volume: Volume | None = None) -> None:
        super().__init__(volume=volume)

    def link(self, path: Path, target: Path) -> None:
        self._begin("link", path)
        source, name = self._volume.parent(path)
        goal, new_name = self._volume.parent(target)
        if new_name in goal.names:
            raise FileExistsError(str(target))
        self._volume.rename((goal, new_name, source.names[name]))

    def kill(self) -> LinkDisk:
        return LinkDisk(super().kill()._volume)

    def crash(self, random: Random) -> LinkDisk:
        return LinkDisk(super().crash(random)._volume)


def kill_at(disk: LinkDisk, index: int) -> None:
    """The process dies before that operation."""

    def fault(operation: Operation) -> None:
        # What is dead closes its files, and that is no news to the disk.
        if operation.index == index or (operation.index > index and operation.name != "close"):
            raise Killed

    disk.faults = fault


def changes_of(disk: LinkDisk, work: Callable[[], object]) -> list[int]:
    """The operations of some work that change the disk."""
    found: list[int] = []

    def note(operation: Operation) -> None:
        if operation.name not in ("read", "size", "close", "list"):
            found.append(operation.index)

    disk.faults = note
    work()
    disk.faults = None
    return found


class Clock:
    """It goes on a second with each look."""

    def __init__(self) -> None:
        self.time_ms = TIME_MS

    def __call__(self) -> int:
        self.time_ms += 1_000
        return self.time_ms


def chains(files: ArchiveFiles, root: Path = ROOT) -> Chains:
    return Chains(files, root, "run")


def job(
    files: ArchiveFiles,
    log: MemoryLog,
    root: Path = ROOT,
    now: Callable[[], int] | None = None,
    **more: Any,
) -> Job:
    more.setdefault("pattern", None if "topics" in more else "(?s).*")
    more.setdefault("engine", HERE)
    more.setdefault("target", ParquetTarget(chains(files, root)))
    more.setdefault("shape", Shape(file_bytes=400, group_bytes=150))
    return Job(
        opener=lambda: log,
        root=str(root),
        files=files,
        now_ms=now or Clock(),
        **more,
    )


def run(files: ArchiveFiles, log: MemoryLog, **more: Any) -> Report:
    return job(files, log, **more).run()


def lane(files: ArchiveFiles, topic: str = "orders", partition: int = 0) -> Lane:
    return chains(files).lane(topic, partition)


def bodies(disk: LinkDisk, topic: str = "orders", partition: int = 0) -> list[tuple[int, bytes]]:
    """Offsets and bodies of all committed files, as they are read."""
    found: list[tuple[int, bytes]] = []
    for file in lane(disk, topic, partition).files:
        table = pq.read_table(pa.BufferReader(disk.read_file(ROOT / file.path)))
        assert table.num_rows == file.rows
        found += zip(table["offset"].to_pylist(), table["body"].to_pylist(), strict=True)
    return found


def put_numbers(log: MemoryLog, count: int, topic: str = "orders", **more: Any) -> None:
    """Messages whose bodies say their offset."""
    first = sum(span.end for span in log.spans(topic)[:1]) if topic in log.stored else 0
    log.put(topic, [b"%d" % (first + number) for number in range(count)], **more)


def numbers(count: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in range(first, count)]
