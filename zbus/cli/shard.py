"""`zbus shard`: make a data directory one of another number of processes."""

from __future__ import annotations

from pathlib import Path

import click

from zbus.cli.verify import storage_failures
from zbus.cli.words import counted
from zbus.protocol.places import shard_of
from zbus.storage.local.files import OsFiles
from zbus.storage.local.shards import SHARDS_MAX
from zbus.storage.tools.sharding import shard as move_topics


@click.command()
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option(
    "--shards",
    type=click.IntRange(1, SHARDS_MAX),
    required=True,
    help="Processes that it is to be for; 1: one, as without --workers.",
)
def shard(data_dir: Path, shards: int) -> None:
    """Move the topics of DATA_DIR to where a server of so many processes has them.

    No broker may run there. Nothing is copied; if it is interrupted, run it again.
    """
    with storage_failures():
        done = move_topics(OsFiles(), data_dir, shards, shard_of)
    click.echo(f"{counted(done.topics, 'topic')} in {counted(shards, 'shard')}, {done.moved} moved")
