"""`zbus tail`: follow a topic without disturbing anybody, or as a group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

import click

from zbus import client
from zbus.cli.completion import complete_topic
from zbus.cli.remote import command, json_option, opened, url_option
from zbus.cli.show import Reader, as_json
from zbus.client import Delivery, Request
from zbus.client.messages import number
from zbus.client.watching import Start
from zbus.core.filters import compile_filter


def end_of(topic: str, partition: int) -> Request[int]:
    """The next offset of a partition."""
    fields: dict[str, str | int | None] = {
        **{"cmd": "read", "topic": topic},
        **{"partition": partition, "bytes": 1},
    }
    return command(fields, lambda response: number(response.fields, b"end"), timeout_s=30)


def _place(
    bus: client.BlockingClient, topic: str, start: Start | datetime, last: int
) -> Start | datetime:
    """Where to begin in each partition."""
    if isinstance(start, datetime) or start == "begin" or (start == "end" and not last):
        return start
    partitions = range(bus.query(topic).partitions)
    if isinstance(start, int):
        return [start for _ in partitions]
    return [max(0, bus.run(end_of(topic, partition)) - last) for partition in partitions]


def _messages(
    bus: client.BlockingClient,
    topic: str,
    group: str | None,
    start: Start | datetime | None,
    pattern: str,
) -> Iterator[Delivery]:
    if group is None:
        since_ms = None
        if isinstance(start, datetime):
            since_ms, start = round(start.timestamp() * 1000), None
        with bus.watch(topic, start, start_time_ms=since_ms, filter=pattern) as watched:
            yield from watched
    else:
        passes = compile_filter(pattern)
        with bus.consume(topic, group) as consumed:
            for message in consumed:
                if passes is None or passes(message.tag.encode()):
                    yield message


def _start(_context: click.Context, _parameter: click.Parameter, value: str) -> Start | datetime:
    if value == "begin":
        return "begin"
    if value == "end":
        return "end"
    if value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
        if moment.timestamp() >= 0:
            return moment
    except (ValueError, OverflowError):
        pass
    text = "it must be begin, end, an offset or a time such as 2027-01-31T08:00"
    raise click.BadParameter(text)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--from",
    "start",
    default="end",
    callback=_start,
    help="Start at begin, end, an offset or a time (local, or with a zone).",
)
@click.option(
    "--last", type=click.IntRange(min=0), default=0, help="Start so many messages before the end."
)
@click.option("--filter", "pattern", default="", help='Tags to show: "a.*;b.#".')
@click.option("--group", help="Consume as this group, and acknowledge what was shown.")
@click.option("--count", type=click.IntRange(min=0), default=0, help="Stop after so many.")
@json_option
@url_option
def tail(
    topic: str,
    start: Start | datetime,
    last: int,
    pattern: str,
    group: str | None,
    count: int,
    as_json: bool,
    url: str,
) -> None:
    """Print the messages of TOPIC as they come."""
    reader = Reader()
    shown = 0
    with opened(url) as bus:
        place = _place(bus, topic, start, last) if group is None else None
        for message in _messages(bus, topic, group, place, pattern):
            if as_json:
                write_json(message)
            else:
                reader.show(message)
            shown += 1
            if shown == count:
                break


def write_json(message: Delivery) -> None:
    sys.stdout.buffer.write(as_json(message))
    sys.stdout.buffer.flush()
