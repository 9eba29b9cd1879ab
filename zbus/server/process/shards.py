"""A data directory of several workers: a folder for each shard, and how many there are.

.shards      the number, decimal
shard-0 ...  data directories like any others
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zbus.server.exits import CannotStart
from zbus.storage.local import naming
from zbus.storage.local.files import OsFiles, write_whole
from zbus.wire.numbers import parse_number

MARK: Final = ".shards"
SHARDS_MAX: Final = 256
_UNFINISHED: Final = ".shards.new"


def shards_in(data_dir: Path) -> int | None:
    """How many shards a directory has; None = it was made by one process, or is empty. Raises
    CannotStart if that cannot be read."""
    try:
        data = (data_dir / MARK).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    count = parse_number(data.strip(), SHARDS_MAX)
    if not count:
        raise CannotStart(f"{data_dir / MARK} does not say how many shards there are")
    return count


def check_shards(data_dir: Path, workers: int) -> None:
    """Mark a new directory as one of so many shards, if there are several; raise CannotStart if it
    is another's."""
    found = shards_in(data_dir)
    if (found or 1) == workers == 1 or found == workers:
        return
    if found is not None:
        raise CannotStart(
            f"{data_dir} was made for {found} workers, not {workers}: start with --workers {found},"
            " or with another directory"
        )
    if any(naming.is_topic_directory(each.name) and each.is_dir() for each in data_dir.iterdir()):
        raise CannotStart(
            f"{data_dir} was made by one process: start without --workers, or with another"
            " directory"
        )
    write_whole(OsFiles(), data_dir / MARK, data_dir / _UNFINISHED, b"%d\n" % workers)
