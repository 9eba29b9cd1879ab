"""`zbus spark etl`: messages through a query, into a topic or into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zbus.spark.commands import Common, common_options, emit, range_options, show, stream_options
from zbus.spark.etl.job import MODES, PARSERS, merge, read_file


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--from", "sources", multiple=True, metavar="TOPIC", help="Read it; may be repeated.")
@click.option("--sql", metavar="QUERY", help="SQL query over the view `input`.")
@click.option(
    "--transform",
    metavar="PKG.MOD:FN",
    help="Function of a DataFrame, applied after the query.",
)
@click.option("--parse", type=click.Choice(PARSERS), help="What bodies are: the column `value`.")
@click.option("--schema", metavar="DDL", help="Of what is parsed: 'carrier string, delay int'.")
@click.option("--delimiter", default=",", show_default=True, help="Of csv.")
@click.option("--event-time", metavar="EXPR", help="A row's time; by default `timestamp`.")
@click.option("--watermark", metavar="TIME", help="How late a row may be: '10 minutes'.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="append",
    show_default=True,
    help="Of a stream with aggregates.",
)
@click.option("--to", metavar="TOPIC", help="Where results go.")
@click.option("--route", is_flag=True, help="Route each result by its column `topic`.")
@click.option("--files", metavar="DIR", help="Results go into Parquet files.")
@click.option("--bad-rows", metavar="TOPIC", help="Where goes what cannot be parsed.")
@range_options
@stream_options
@click.option("--allow-change", is_flag=True, help="Go on with another query on this checkpoint.")
@common_options
def etl(common: Common, file: Path | None, **options: Any) -> None:  # noqa: ANN401 - options
    """Put messages through a query: each result is stored once.

    FILE has the same options as TOML. Rows that cannot be parsed are kept, with reason and place,
    in a topic of their own. It is counted that nothing gets lost between.
    """
    from zbus.spark.etl import run

    job = merge(options, {} if file is None else read_file(file))
    name = common.name or f"etl-{'-'.join(job.sources)}"
    run.require(common.where(), job, common.sink())
    if common.dry_run:
        show(run.check(common.session(), common.where(), job, name), common)
        return
    done = run.run(common.session(), common.where(), job, name, emit, common.sink())
    show(done.document(), common)
    done.require_whole()
