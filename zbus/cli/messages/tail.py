"""`zbus tail`: follow a topic without disturbing anybody, or as a group."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from zbus import client
from zbus.cli.completion import complete_topic
from zbus.cli.messages import show
from zbus.cli.remote import command, json_option, opened, url_option
from zbus.cli.units import NON_NEGATIVE
from zbus.client import Delivery, Request
from zbus.client.messages import number
from zbus.client.positions import Start, encode_start
from zbus.core.model.filters import compile_filter


def end_of(topic: str, partition: int) -> Request[int]:
    """The next offset of a partition."""
    fields: dict[str, str | int | None] = {
        **{"cmd": "read", "topic": topic},
        **{"partition": partition, "bytes": 1},
    }
    return command(fields, lambda response: number(response.fields, b"end"), timeout_s=30)


def _place(bus: client.BlockingClient, topic: str, start: Start, last: int) -> Start:
    """Where to begin in each partition."""
    if not last or start not in ("latest", "end"):
        return start
    partitions = range(bus.query(topic).partitions)
    return [max(0, bus.run(end_of(topic, partition)) - last) for partition in partitions]


def _messages(
    bus: client.BlockingClient,
    topic: str,
    group: str | None,
    start: Start | None,
    pattern: str,
) -> Iterator[Delivery]:
    if group is None:
        with bus.watch(topic, start, filter=pattern) as watched:
            yield from watched
    else:
        passes = compile_filter(pattern)
        with bus.consume(topic, group) as consumed:
            for message in consumed:
                if passes is None or passes(message.tag.encode()):
                    yield message


def _start(_context: click.Context, _parameter: click.Parameter, value: str) -> Start:
    start = int(value) if value.isascii() and value.isdigit() and len(value) <= 18 else value
    try:
        encode_start(start)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return start


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--from",
    "start",
    default="latest",
    callback=_start,
    help="Where to start: earliest, latest, an offset, or a time: 2027-01-15T08:00:00Z.",
)
@click.option(
    "--last",
    type=NON_NEGATIVE,
    default=0,
    help="First show the last N messages of each partition.",
    metavar="N",
)
@click.option("--filter", "pattern", default="", help='Tags to show: "a.*;b.#".')
@click.option(
    "--group", help="Consume as this group, and acknowledge each message once it is shown."
)
@click.option("--count", type=NON_NEGATIVE, default=0, help="Stop after this many messages.")
@click.option("-v", "--verbose", is_flag=True, help="Print each message's headers, too.")
@json_option
@url_option
def tail(
    topic: str,
    start: Start,
    last: int,
    pattern: str,
    group: str | None,
    count: int,
    verbose: bool,
    as_json: bool,
    url: str,
) -> None:
    """Print the messages of TOPIC as they come."""
    reader = show.Reader(verbose)
    shown = 0
    with opened(url) as bus:
        place = _place(bus, topic, start, last) if group is None else None
        for message in _messages(bus, topic, group, place, pattern):
            if as_json:
                sys.stdout.buffer.write(show.as_json(message))
                sys.stdout.buffer.flush()
            else:
                reader.show(message)
            shown += 1
            if shown == count:
                break
