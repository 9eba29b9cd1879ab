"""`zbus spark replay`: messages of an archive or a topic, into a topic."""

from __future__ import annotations

from typing import Any

import click

from zbus.spark.commands import Common, common_options, emit, range_options, show
from zbus.spark.replay.pacing import parse_speed
from zbus.spark.times import bytes_s


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    metavar="DIR|TOPIC",
    help="The directory of an archive, with a slash in it, or a topic.",
)
@click.option(
    "--to",
    required=True,
    metavar="TOPIC",
    help="Where; {topic} is the topic that a message is of: '{topic}-replay'.",
)
@click.option("--topics", metavar="A,B", help="Of an archive only these topics.")
@range_options
@click.option("--where", "condition", metavar="SQL", help="Only rows that fulfil this.")
@click.option("--keep-time", is_flag=True, help="What was delayed waits for its own time again.")
@click.option(
    "--speed",
    default="max",
    show_default=True,
    metavar="10x|max",
    help="Replay at the original pace, sped up by this factor.",
)
@click.option("--rate", metavar="BYTES/s", help="No more than that a second.")
@click.option("--dedupe-id", is_flag=True, help="Of messages with one id only the first.")
@click.option("--limit", type=click.IntRange(min=1), help="No more messages than that.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Keep the plan in this file, so that the same command resumes after a crash.",
)
@click.option("--force", is_flag=True, help="Even into the topic that they are of.")
@common_options
def replay(
    common: Common,
    topics: str | None,
    condition: str | None,
    speed: str,
    rate: str | None,
    checkpoint: str | None,
    **options: Any,  # noqa: ANN401 - options
) -> None:
    """Store messages again: in order, each once, with where they were in headers.

    Key, tag, id, headers and body are what they were.
    """
    from zbus.spark.replay import run

    wanted = run.Wanted(
        topics=tuple(name for name in (topics or "").split(",") if name),
        where=condition,
        speed=parse_speed(speed),
        rate=None if rate is None else bytes_s(rate),
        **options,
    ).check()
    run.require(common.where(), wanted, common.sink(), checkpoint)
    plan = run.run(
        common.session(),
        common.where(),
        wanted,
        emit,
        checkpoint,
        dry_run=common.dry_run,
        sink=common.sink(),
    )
    document = {"run": plan.run, "messages": plan.messages, "bytes": plan.bytes}
    show({**document, "slices": len(plan.slices), "planned": common.dry_run}, common)
