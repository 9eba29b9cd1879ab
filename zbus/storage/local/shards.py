"""A data directory of several processes: one directory for each, and how many there are.

    <data>/.shards            the number, decimal
    <data>/shard=2/orders     directories like those of one process

What works on stored logs goes through `find_shards`, whoever made the directory.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from zbus.storage.local import naming
from zbus.storage.local.directory import read_identity
from zbus.storage.local.files import Files, opened, write_whole
from zbus.storage.port import JournalError

SHARDS_MAX: Final = 256
_DIGITS_MAX: Final = 3


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


def refuse_moving(files: Files, data_dir: Path) -> None:
    """Raise JournalError if topics are between two shapes of a directory."""
    moving = shards_in(files, data_dir, naming.SHARDS_MOVING)
    if moving is not None:
        raise JournalError(
            f"topics of {data_dir} are on their way to {moving} shards: run"
            f" `zbus shard {data_dir} --shards {moving}` again"
        )


def possible_shards(files: Files, data_dir: Path) -> list[Path]:
    """The directories of shards that are there, whether they are in use or not."""
    names = set(files.list(data_dir))
    numbers = [number for number in range(SHARDS_MAX) if f"shard={number}" in names]
    return [shard_directory(data_dir, number) for number in numbers]


def marked_shards(files: Files, data_dir: Path) -> list[Path]:
    """The directories of the shards that it was made for; none if one process made it. Raises
    JournalError if one is missing."""
    count = shards_in(files, data_dir)
    shards = [shard_directory(data_dir, number) for number in range(count or 0)]
    there = possible_shards(files, data_dir)
    for each in shards:
        if each not in there:
            text = f"{data_dir} was made for {count} workers, and {each} is missing"
            raise JournalError(f"{text}: put it back, or restore a backup")
    return shards


def find_shards(files: Files, data_dir: Path) -> list[Path]:
    """The directories with topics, by the numbers of their shards; of one process it is `data_dir`
    itself. Raises JournalError if they are not those that the directory was made for, and OSError
    if it cannot be read."""
    refuse_moving(files, data_dir)
    count = shards_in(files, data_dir)
    shards = marked_shards(files, data_dir)
    there = possible_shards(files, data_dir)
    made = "one process" if count is None else f"{count} workers"
    others = [data_dir] if shards else []
    for each in [*others, *there]:
        if each not in shards and has_topics(files, each):
            raise JournalError(
                f"{data_dir} was made for {made}, and {each} has topics: `zbus shard {data_dir}"
                f" --shards {count or 'NUMBER'}` puts them where they belong"
            )
    return shards or [data_dir]


def has_topics(files: Files, directory: Path) -> bool:
    """Whether there are topics in it, of one process or in its shard."""
    for name in files.list(directory):
        if naming.is_topic_directory(name):
            with suppress(NotADirectoryError):
                files.list(directory / name)
                return True
    return False


def identity_of(files: Files, data_dir: Path) -> str:
    """The random id of the data; of several processes it is made of theirs. Empty if there is
    none."""
    found = [read_identity(files, each) for each in find_shards(files, data_dir)]
    if len(found) == 1 or not all(found):
        return found[0] if len(found) == 1 else ""
    return sha256("".join(found).encode()).hexdigest()[: len(found[0])]
