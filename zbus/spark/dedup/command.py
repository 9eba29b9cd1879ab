"""`zbus spark dedup`: messages that are there more than once."""

from __future__ import annotations

from typing import Any

import attrs
import click

from zbus.spark.commands import Common, common_options, emit, range_options, show, stream_options
from zbus.spark.dedup.frames import parse_by


@click.command()
@click.option("--from", "sources", multiple=True, metavar="TOPIC", help="Read it; may be repeated.")
@click.option(
    "--by",
    default="id",
    show_default=True,
    metavar="COLUMNS",
    help="What makes two messages the same, with commas: id, key, tag, body_hash, header.NAME.",
)
@range_options
@click.option("--to", metavar="TOPIC", help="Topic that receives the messages without duplicates.")
@click.option("--table", metavar="DIR", help="Write the table of duplicates as Parquet files.")
@click.option(
    "--window",
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Of a stream: how long a message is remembered.",
)
@stream_options
@common_options
def dedup(common: Common, by: str, **options: Any) -> None:  # noqa: ANN401 - options
    """Find messages that are there more than once, and keep the first of each."""
    from zbus.spark.dedup import run

    wanted = run.Wanted(by=parse_by(by), **options).check()
    run.require(common.where(), wanted, common.sink())
    if common.dry_run:
        wanted = attrs.evolve(wanted, to=None, table=None, **run.NO_STREAM)
    name = common.name or f"dedup-{'-'.join(wanted.sources)}"
    show(run.run(common.session(), common.where(), wanted, name, emit, common.sink()), common)
