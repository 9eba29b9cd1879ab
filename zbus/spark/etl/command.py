"""`zbus spark etl`: messages through a query, into a topic or into files."""

from __future__ import annotations

from pathlib import Path

import click

from zbus.spark.commands import FILE, Common, emit, show, takes
from zbus.spark.etl.job import Job, merge, read_file


@click.command()
@click.argument("file", required=False, type=FILE)
@takes(Job)
def etl(common: Common, job: Job, file: Path | None) -> None:
    """Put messages through a query: each result is stored once.

    FILE has the same options as TOML. Rows that cannot be parsed are kept, with reason and place,
    in a topic of their own. It is counted that nothing gets lost between.
    """
    from zbus.spark.etl import run

    job = merge(job, {} if file is None else read_file(file))
    name = common.name or f"etl-{'-'.join(job.sources)}"
    run.require(common.where(), job, common.sink())
    if common.dry_run:
        show(run.check(common.session(), common.where(), job, name), common)
        return
    done = run.run(common.session(), common.where(), job, name, emit, common.sink())
    show(done.document(), common)
    done.require_whole()
