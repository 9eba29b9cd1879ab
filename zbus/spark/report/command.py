"""`zbus spark report`: tables, and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zbus.spark.commands import Common, common_options, emit, show
from zbus.spark.errors import Usage
from zbus.spark.report.files import backlogs_before, write_tables
from zbus.spark.report.inputs import Input, Wanted


@click.command()
@click.option("--topics", metavar="A,B", help="These topics.")
@click.option("--pattern", metavar="RE", help="The topics whose whole name matches.")
@click.option("--from", "archive", metavar="DIR", help="Read an archive instead.")
@click.option(
    "--since", default="24h", show_default=True, metavar="TIME", help="24h (ago), or a time."
)
@click.option("--until", metavar="TIME", help="Messages stored before this time; default: now.")
@click.option("--bucket", default="1h", show_default=True, metavar="TIME", help="5m, 1h, 1d, ...")
@click.option(
    "--out",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The page.",
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the tables there as Parquet and CSV. Backlogs of reports before are kept.",
)
@click.option("--groups/--no-groups", default=None, help="Ask the broker how far groups are.")
@click.option(
    "--sent-header",
    metavar="NAME",
    help="A header with the producer's time, epoch ms: how long it took until it was stored.",
)
@click.option("--show-keys", is_flag=True, help="The keys of most messages, too.")
@common_options  # fmt: skip
def report(common: Common, **options: Any) -> None:  # noqa: ANN401 - options
    """Report traffic, sizes, backlogs and what is unusual: one page that works offline, tables."""
    wanted = Wanted.of(common, **options)
    found = Input(common, wanted)
    if common.dry_run:
        show({"topics": found.topics, "since": wanted.since_ms, "out": str(wanted.out)}, common)
        return
    made = found.report()
    if wanted.data is not None:
        made.backlog = backlogs_before(wanted.data) + made.backlog
        write_tables(made, wanted.data)
    from zbus.spark.report.page import page, sentences

    try:
        wanted.out.parent.mkdir(parents=True, exist_ok=True)
        wanted.out.write_text(page(made), encoding="utf-8", errors="replace")
    except OSError as error:
        raise Usage(f"--out {wanted.out} cannot be written: {error}") from error
    if common.as_json:
        show({"out": str(wanted.out), "summary": sentences(made), "notes": made.notes}, common)
        return
    for text in (*sentences(made), *made.notes):
        click.echo(text)
    emit(f"the page is {wanted.out}")
