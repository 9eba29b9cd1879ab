"""Whether a server may have so many workers, and whether its data directory is for them."""

from __future__ import annotations

from pathlib import Path

from zbus.config import Config
from zbus.server.exits import CannotStart
from zbus.storage.local.files import OsFiles, make_directories, reason
from zbus.storage.local.shards import (
    find_shards,
    has_topics,
    mark,
    refuse_moving,
    shard_directory,
    shards_in,
)
from zbus.storage.port import JournalError


def check_workers(config: Config) -> None:
    """Raise CannotStart if there cannot be several with these options."""
    if config.workers > 1 and config.engine != "files" and config.shards == 1:
        raise CannotStart("--workers with NATS servers needs --shards: each process owns some")
    if config.shards > 1 and config.engine == "files":
        text = "--shards is for NATS servers; with files there are as many as --workers"
        raise CannotStart(text)


def check_shards(data_dir: Path, workers: int) -> None:
    """Raise CannotStart if the directory is there, and is not one for so many workers."""
    files = OsFiles()
    if not data_dir.is_dir():
        return
    try:
        refuse_moving(files, data_dir)
        found = shards_in(files, data_dir)
        is_of_one = found is None and workers > 1 and has_topics(files, data_dir)
        if found in (None, workers) and not is_of_one:
            find_shards(files, data_dir)
            return
    except JournalError as error:
        raise CannotStart(str(error)) from None
    except OSError as error:
        raise CannotStart(f"cannot read {data_dir}: {reason(error, data_dir)}") from None
    text = f"{data_dir} was made for {found} workers, not {workers}: start with --workers {found}"
    if is_of_one:
        text = f"{data_dir} was made by one process: start without --workers"
    raise CannotStart(f"{text}, or change it with `zbus shard {data_dir} --shards {workers}`")


def take_shards(data_dir: Path, workers: int) -> None:
    """Mark a new directory as one of so many shards. Raises CannotStart, as `check_shards` does."""
    check_shards(data_dir, workers)
    files = OsFiles()
    if shards_in(files, data_dir) is None:
        for number in range(workers):  # first: if one of them is missing later, it was lost
            make_directories(files, shard_directory(data_dir, number))
        mark(files, data_dir, workers)
