"""The work of an archive in pieces: each a range of a partition, done anywhere.

A task fetches stored batches, makes Arrow of them and writes files. It is done in a task of Spark
or in a thread here: its runner gets records of files, and does the commit. An error that a user
can mend comes back as a value: Spark would make a page of text of it, and try again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

import attrs

from zbus.spark.archive.table import ArchiveFile
from zbus.spark.archive.writer import Shape, write_files
from zbus.spark.errors import SparkProblem
from zbus.spark.logs import Log, Span
from zbus.spark.source.arrows import record_batches

Opener = Callable[[], Log]
Item = TypeVar("Item")
Result = TypeVar("Result")

SLICES_PER_WORKER: Final = 4
"""In one round: more let workers be idle less, fewer lose less when the driver is killed."""


@attrs.frozen
class Task:
    """A range to archive."""

    span: Span
    start: int
    stop: int
    bytes: int  # about


@attrs.frozen
class Setting:
    """What all tasks of a run have in common. It travels to other machines."""

    opener: Opener
    root: str
    shape: Shape
    rate_bytes_s: float | None = None  # of each task


@attrs.frozen
class Done:
    """What became of a task: files, or a problem."""

    task: Task
    files: list[ArchiveFile] = attrs.Factory(list)
    problem: SparkProblem | None = None


class Engine(Protocol):
    """Runs the tasks."""

    @property
    def workers(self) -> int:
        """How many it does at a time now. That may change."""

    def each(
        self, function: Callable[[Item], list[Result]], items: list[Item]
    ) -> Iterator[list[Result]]:
        """What the function gives for each, as it is done, in any order."""


class Threads:
    """Here, in threads: decoding and compressing let go of the interpreter's lock."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def each(
        self, function: Callable[[Item], list[Result]], items: list[Item]
    ) -> Iterator[list[Result]]:
        if self.workers == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(function, items)


def archive_slice(tasks: list[Task], setting: Setting) -> list[Done]:
    """Do some tasks, one after another, with one connection."""
    done: list[Done] = []
    try:
        with setting.opener() as log:
            for task in tasks:
                raw = _throttled(log.raw(task.span, task.start, task.stop), setting.rate_bytes_s)
                batches = record_batches(raw, task.span, task.start, task.stop)
                files = write_files(Path(setting.root), setting.shape, task.span, batches)
                done.append(Done(task, files))
    except SparkProblem as problem:
        done.append(Done(tasks[len(done)], problem=problem))
    return done


def _throttled(
    pieces: Iterable[bytes | memoryview], rate_bytes_s: float | None
) -> Iterator[bytes | memoryview]:
    """The pieces, no faster than that."""
    begun = time.monotonic()
    count = 0
    for piece in pieces:
        count += len(piece)
        if rate_bytes_s is not None:
            # Before it is passed on: the holder of the last one does not ask again.
            time.sleep(max(0.0, begun + count / rate_bytes_s - time.monotonic()))
        yield piece


def slices(tasks: list[Task], bytes_max: int, workers: int) -> list[list[Task]]:
    """Tasks together as long as they are small: beginning one costs, and topics may be many."""
    total = sum(task.bytes for task in tasks)
    enough = max(1, min(bytes_max, total // max(1, workers)))
    made: list[list[Task]] = []
    size = enough
    for task in tasks:
        if size >= enough:
            made.append([])
            size = 0
        made[-1].append(task)
        size += max(1, task.bytes)
    return made
