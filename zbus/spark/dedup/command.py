"""`zbus spark dedup`: messages that are there more than once."""

from __future__ import annotations

import attrs
import click

from zbus.spark.commands import Common, emit, show, takes
from zbus.spark.dedup import run
from zbus.spark.dedup.run import Wanted


@click.command()
@takes(Wanted)
def dedup(common: Common, wanted: Wanted) -> None:
    """Find messages that are there more than once, and keep the first of each."""
    wanted.check()
    run.require(common.where(), wanted, common.sink())
    if common.dry_run:
        wanted = attrs.evolve(wanted, to=None, table=None, **run.NO_STREAM)
    name = common.name or f"dedup-{'-'.join(wanted.sources)}"
    show(run.run(common.session(), common.where(), wanted, name, emit, common.sink()), common)
