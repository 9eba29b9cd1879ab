"""`zbus spark report`: tables, and one page."""

from __future__ import annotations

import click

from zbus.spark.commands import Common, emit, show, takes
from zbus.spark.io import problems
from zbus.spark.page import write as write_page
from zbus.spark.report.files import backlogs_before, write_tables
from zbus.spark.report.inputs import Input, Wanted
from zbus.spark.report.page import page, sentences


@click.command()
@takes(Wanted)
def report(common: Common, wanted: Wanted) -> None:
    """Report traffic, sizes, backlogs and what is unusual: one page that works offline, tables."""
    found = Input(common, wanted)
    if common.dry_run:
        show({"topics": found.topics, "since": wanted.since_ms, "out": str(wanted.out)}, common)
        return
    with problems():
        made = found.report()
    if wanted.data is not None:
        made.backlog = backlogs_before(wanted.data) + made.backlog
        write_tables(made, wanted.data)
    write_page(page(made), wanted.out)
    if common.as_json:
        show({"out": str(wanted.out), "summary": sentences(made), "notes": made.notes}, common)
        return
    for text in (*sentences(made), *made.notes):
        click.echo(text)
    emit(f"the page is {wanted.out}")
