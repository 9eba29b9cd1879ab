"""Moving topics between the directory of one process and those of several: `zbus shard`.

    <data>/orders             one process
    <data>/shard=2/orders     several, and .shards says how many

A topic is a directory and moves by one rename, so it is in one place or in the other. While topics
move, `.shards.moving` says to how many shards: no broker starts, and the work goes on when it is
begun again. What else is in a directory belongs to the process that it was of, and is made anew:
its lock, identity, clock, history and landmarks. Without landmarks a start reads the newest
segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from zbus.storage.local import naming
from zbus.storage.local.directory import make_identity, remove_tree, take_directory
from zbus.storage.local.files import Files, make_directories
from zbus.storage.local.shards import (
    mark,
    marked_shards,
    possible_shards,
    shard_directory,
    shards_in,
)
from zbus.storage.port import JournalError
from zbus.storage.tools.verify import first_batch

_LEFT: Final = (
    naming.LOCK,
    naming.RESERVE,
    naming.LANDMARKS,
    naming.IDENTITY,
    naming.CLOCK,
    *naming.HISTORY,
)
"""Of a directory that no process has any more, or another one has."""


class Sharded(NamedTuple):
    """What was done."""

    topics: int  # that there are
    moved: int


def shard(
    files: Files, data_dir: Path, shards: int, shard_of: Callable[[str, int], int]
) -> Sharded:
    """Move each topic to where it is with so many shards; 1 = to the directory of one process.
    `shard_of` says of a name which shard it is in. Raises JournalError."""
    if not (data_dir.is_dir() and files.list(data_dir)):
        raise JournalError(f"{data_dir} is empty, or no directory")
    lock = take_directory(files, data_dir)
    locks = [lock]
    try:
        found = shards_in(files, data_dir)
        moving = shards_in(files, data_dir, naming.SHARDS_MOVING)
        if moving is None:
            marked_shards(files, data_dir)
        topics = list(_topics(files, data_dir))
        moves: list[tuple[Path, Path]] = []
        for topic in topics:
            number = shard_of(_topic_of(files, topic), shards)
            target = data_dir if shards == 1 else shard_directory(data_dir, number)
            if topic.parent != target:
                moves.append((topic, target))
        if moving is None and (found or 1) == shards and not moves:
            return Sharded(len(topics), 0)
        for each in _sources(files, data_dir)[1:]:
            locks.append(take_directory(files, each))  # noqa: PERF401 - each is let go of
        mark(files, data_dir, shards, naming.SHARDS_MOVING)
        for topic, target in moves:
            make_directories(files, target)
            files.rename(topic, target / topic.name)
            files.sync_directory(target)
            files.sync_directory(topic.parent)
        _tidy(files, data_dir, shards)
        return Sharded(len(topics), len(moves))
    finally:
        for file in locks:
            files.close(file)


def _sources(files: Files, data_dir: Path) -> list[Path]:
    """Where topics may be."""
    return [data_dir, *possible_shards(files, data_dir)]


def _topics(files: Files, data_dir: Path) -> Iterator[Path]:
    """The directories of all topics."""
    for source in _sources(files, data_dir):
        for name in sorted(files.list(source)):
            if naming.is_topic_directory(name):
                with suppress(NotADirectoryError):
                    files.list(source / name)
                    yield source / name


def _topic_of(files: Files, directory: Path) -> str:
    """Its name; a long one stands in its files alone. Raises JournalError."""
    name = naming.topic_of(directory.name)
    if name is not None:
        return name
    for partition in sorted(files.list(directory)):
        for segment in sorted(files.list(directory / partition)):
            found = first_batch(files, directory / partition / segment)
            if found is not None:
                return found[1]
    raise JournalError(f"{directory} does not say which topic it is of")


def _tidy(files: Files, data_dir: Path, shards: int) -> None:
    """All topics are in their places: say so, and leave nothing of processes that are no more."""
    used = [data_dir]
    used += [shard_directory(data_dir, number) for number in range(shards) if shards > 1]
    for directory in _sources(files, data_dir):
        for name in _LEFT:
            if (directory, name) != (data_dir, naming.LOCK):
                with suppress(FileNotFoundError):
                    files.remove(directory / name)
        if directory not in used and not files.list(directory):
            remove_tree(files, directory)
    files.sync_directory(data_dir)
    if shards > 1:
        for directory in used:
            make_directories(files, directory)
        mark(files, data_dir, shards)
    else:
        with suppress(FileNotFoundError):
            files.remove(data_dir / naming.SHARDS)
        make_identity(files, data_dir)
    files.remove(data_dir / naming.SHARDS_MOVING)
    files.sync_directory(data_dir)
