"""A data directory of several workers: a folder for each shard, and how many there are.

.shards      the number, decimal
shard=0 ...  data directories like any others
"""

from __future__ import annotations

from pathlib import Path

from zbus.server.exits import CannotStart
from zbus.storage.local import naming
from zbus.storage.local.files import OsFiles
from zbus.storage.port import JournalError
from zbus.storage.tools.sharding import mark, shards_in


def check_shards(data_dir: Path, workers: int) -> None:
    """Mark a new directory as one of so many shards, if there are several; raise CannotStart if it
    is another's."""
    files = OsFiles()
    try:
        found = shards_in(files, data_dir)
        moving = shards_in(files, data_dir, naming.SHARDS_MOVING)
    except JournalError as error:
        raise CannotStart(str(error)) from None
    if moving is not None:
        raise CannotStart(
            f"topics of {data_dir} are on their way to {moving} shards: run"
            f" `zbus shard {data_dir} --shards {moving}` again"
        )
    change = f"or change it with `zbus shard {data_dir} --shards {workers}`"
    if found is not None and found != workers:
        text = f"{data_dir} was made for {found} workers, not {workers}: start with --workers"
        raise CannotStart(f"{text} {found}, {change}")
    if found is not None or workers == 1:
        return
    if any(naming.is_topic_directory(each.name) and each.is_dir() for each in data_dir.iterdir()):
        text = f"{data_dir} was made by one process: start without --workers"
        raise CannotStart(f"{text}, {change}")
    mark(files, data_dir, workers)
