"""`zbus spark replay`: messages of an archive or a topic, into a topic."""

from __future__ import annotations

import click

from zbus.spark.commands import Common, common_options, say, show
from zbus.spark.errors import Usage
from zbus.units import parse_bytes


def _speed(text: str) -> float | None:
    """`10x`, or `max`. Raises Usage."""
    if text == "max":
        return None
    number = text.removesuffix("x")
    if not (number.isascii() and number.replace(".", "", 1).isdecimal() and len(number) < 10):
        raise Usage(f"--speed {text[:40]}: it is like 1x, 10x, 0.5x, or max")
    if not float(number) > 0:
        raise Usage("--speed must be more than 0")
    return float(number)


def _rate(text: str | None) -> int | None:
    found = None if text is None else parse_bytes(text.removesuffix("/s"))
    if text is not None and not found:
        raise Usage(f"--rate {text[:40]}: it is like 20MiB, bytes a second")
    return found


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
@click.option(
    "--since", metavar="TIME", help="Only what was stored then or later: 24h (ago), a time."
)
@click.option("--until", metavar="TIME", help="Only what was stored before that.")
@click.option("--where", "condition", metavar="SQL", help="Only rows that fulfil this.")
@click.option("--keep-time", is_flag=True, help="Store the time that it was stored at as a header.")
@click.option(
    "--speed",
    default="max",
    show_default=True,
    metavar="10x|max",
    help="As it came, so many times as fast.",
)
@click.option("--rate", metavar="BYTES/s", help="No more than that a second.")
@click.option("--dedupe-id", is_flag=True, help="Of messages with one id only the first.")
@click.option("--limit", type=click.IntRange(min=1), help="No more messages than that.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Keep the plan there: the same command goes on after a crash.",
)
@click.option("--force", is_flag=True, help="Even into the topic that they are of.")
@common_options  # fmt: skip
def replay(
    common: Common,
    source: str,
    to: str,
    since: str | None,
    until: str | None,
    condition: str | None,
    keep_time: bool,
    speed: str,
    rate: str | None,
    dedupe_id: bool,
    limit: int | None,
    checkpoint: str | None,
    force: bool,
) -> None:
    """Store messages again: in order, each once, with where they were in headers.

    Key, tag, id, headers and body are what they were.
    """
    from zbus.spark.replay import run

    wanted = run.Wanted(
        source=source,
        to=to,
        since=since,
        until=until,
        where=condition,
        keep_time=keep_time,
        dedupe_id=dedupe_id,
        limit=limit,
        speed=_speed(speed),
        rate=_rate(rate),
        force=force,
    )
    plan = run.run(common.session(), common.where(), wanted, say, checkpoint, common.dry_run)
    document = {"run": plan.run, "messages": plan.messages, "bytes": plan.bytes}
    show({**document, "slices": len(plan.slices), "planned": common.dry_run}, common)
