"""Moving topics between the directory of one process and those of several: `zbus shard`.

    <data>/orders             one process
    <data>/shard=2/orders     several, and .shards says how many

A topic is a directory and moves by one rename, so it is in one place or in the other. While topics
move, `.shards.moving` says to how many shards: no broker starts, and the work goes on when it is
begun again. What else is in a directory belongs to the process that it was of, and is made anew:
its lock, identity, clock and landmarks. Without landmarks a start reads the newest segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from zbus.storage.local import naming
from zbus.storage.local.directory import make_identity, remove_tree, take_directory
from zbus.storage.local.files import Files, make_directories, opened, write_whole
from zbus.storage.port import JournalError
from zbus.storage.tools.verify import first_batch

SHARDS_MAX: Final = 256
_DIGITS_MAX: Final = 3
_LEFT: Final = (naming.LOCK, naming.RESERVE, naming.LANDMARKS, naming.IDENTITY, naming.CLOCK)
"""Of a directory that no process has any more, or another one has."""


class Sharded(NamedTuple):
    """What was done."""

    topics: int  # that there are
    moved: int


def shard_directory(data_dir: Path, shard: int) -> Path:
    """Where a shard is, in a directory of several. No topic has a directory of such a name."""
    return data_dir / f"shard={shard}"


def shards_in(files: Files, data_dir: Path, name: str = naming.SHARDS) -> int | None:
    """How many shards a directory has; None = it was made by one process, or is empty. Raises
    JournalError if that cannot be read."""
    try:
        with opened(files, data_dir / name, "read") as file:
            text = files.read(file, 10, 0).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not (0 < len(text) <= _DIGITS_MAX and text.isdigit() and 0 < int(text) <= SHARDS_MAX):
        raise JournalError(f"{data_dir / name} does not say how many shards there are")
    return int(text)


def mark(files: Files, data_dir: Path, shards: int, name: str = naming.SHARDS) -> None:
    """Say how many shards a directory has."""
    write_whole(files, data_dir / name, data_dir / naming.SHARDS_UNFINISHED, b"%d\n" % shards)


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
        if moving is None and (found or 1) == shards:
            return Sharded(sum(1 for _ in _topics(files, data_dir)), 0)
        for each in _sources(files, data_dir)[1:]:
            locks.append(take_directory(files, each))  # noqa: PERF401 - each is let go of
        mark(files, data_dir, shards, naming.SHARDS_MOVING)
        topics = moved = 0
        for directory in list(_topics(files, data_dir)):
            name = _topic_of(files, directory)
            target = data_dir if shards == 1 else shard_directory(data_dir, shard_of(name, shards))
            topics += 1
            if directory.parent != target:
                make_directories(files, target)
                files.rename(directory, target / directory.name)
                files.sync_directory(target)
                files.sync_directory(directory.parent)
                moved += 1
        _tidy(files, data_dir, shards)
        return Sharded(topics, moved)
    finally:
        for file in locks:
            files.close(file)


def _sources(files: Files, data_dir: Path) -> list[Path]:
    """Where topics may be."""
    names = set(files.list(data_dir))
    shards = [shard_directory(data_dir, number) for number in range(SHARDS_MAX)]
    return [data_dir, *(each for each in shards if each.name in names)]


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
    for directory in _sources(files, data_dir):
        for name in _LEFT:
            if (directory, name) != (data_dir, naming.LOCK):
                with suppress(FileNotFoundError):
                    files.remove(directory / name)
        is_used = directory == data_dir or (
            shards > 1
            and directory in [shard_directory(data_dir, number) for number in range(shards)]
        )
        if not is_used and not files.list(directory):
            remove_tree(files, directory)
    files.sync_directory(data_dir)
    if shards > 1:
        mark(files, data_dir, shards)
    else:
        with suppress(FileNotFoundError):
            files.remove(data_dir / naming.SHARDS)
        make_identity(files, data_dir)
    files.remove(data_dir / naming.SHARDS_MOVING)
    files.sync_directory(data_dir)
