"""`zbus spark replay`: messages of an archive or a topic, into a topic."""

from __future__ import annotations

import click

from zbus.spark.commands import Common, emit, show, takes
from zbus.spark.replay import run
from zbus.spark.replay.run import Kept, Wanted


@click.command()
@takes(Wanted, Kept)
def replay(common: Common, wanted: Wanted, kept: Kept) -> None:
    """Store messages again: in order, each once, with where they were in headers.

    Key, tag, id, headers and body are what they were.
    """
    run.require(common.where(), wanted.check(), common.sink(), kept.checkpoint)
    plan = run.run(
        common.session(),
        common.where(),
        wanted,
        emit,
        kept.checkpoint,
        dry_run=common.dry_run,
        sink=common.sink(),
    )
    document = {"run": plan.run, "messages": plan.messages, "bytes": plan.bytes}
    show({**document, "slices": len(plan.slices), "planned": common.dry_run}, common)
