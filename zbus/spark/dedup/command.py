"""`zbus spark dedup`: messages that are there more than once."""

from __future__ import annotations

import attrs
import click

from zbus.spark.commands import Common, common_options, say, show
from zbus.spark.errors import Usage


@click.command()
@click.option("--from", "sources", multiple=True, metavar="TOPIC", help="Read it; may be repeated.")
@click.option(
    "--by",
    default="id",
    show_default=True,
    metavar="COLUMNS",
    help="What makes two messages the same: id, key, tag, body_hash, ... with commas.",
)
@click.option(
    "--since", metavar="TIME", help="Only what was stored then or later: 24h (ago), a time."
)
@click.option("--until", metavar="TIME", help="Only what was stored before that.")
@click.option("--to", metavar="TOPIC", help="Store what is left there.")
@click.option("--table", metavar="DIR", help="Write the table of duplicates as Parquet files.")
@click.option("--checkpoint", metavar="DIR", help="Go on for ever, and here after a restart.")
@click.option(
    "--window",
    default="24 hours",
    show_default=True,
    metavar="TIME",
    help="Of a stream: how long a message is remembered.",
)
@click.option("--once", is_flag=True, help="End when all that was there at the start is done.")
@common_options  # fmt: skip
def dedup(
    common: Common,
    sources: tuple[str, ...],
    by: str,
    since: str | None,
    until: str | None,
    to: str | None,
    table: str | None,
    checkpoint: str | None,
    window: str,
    once: bool,
) -> None:
    """Find messages that are there more than once, and keep the first of each."""
    from zbus.spark.dedup import run

    columns = tuple(word.strip() for word in by.split(",") if word.strip())
    wanted = run.Wanted(
        sources=sources,
        by=columns,
        since=since,
        until=until,
        to=to,
        table=table,
        checkpoint=checkpoint,
        window=window,
        once=once,
    ).check()
    if common.dry_run:
        if checkpoint is not None:
            raise Usage("--dry-run is of a range: leave --checkpoint out")
        wanted = attrs.evolve(wanted, to=None, table=None)
    name = common.name or f"dedup-{'-'.join(sources)}"
    show(run.run(common.session(), common.where(), wanted, name, say), common)
