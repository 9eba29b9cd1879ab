"""`zbus tail`: follow a topic without disturbing anybody, or as a group."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from zbus import client
from zbus.cli.completion import complete_topic
from zbus.cli.remote import command, json_option, opened, url_option
from zbus.cli.show import Reader, as_json
from zbus.client import Delivery, Request
from zbus.client.messages import number
from zbus.core.filters import compile_filter

POLL_S = 0.2
READ_COUNT = 200


def end_of(topic: str, partition: int) -> Request[int]:
    """The next offset of a partition."""
    fields: dict[str, str | int | None] = {
        **{"cmd": "read", "topic": topic},
        **{"partition": partition, "bytes": 1},
    }
    return command(fields, lambda response: number(response.fields, b"end"), timeout_s=30)


class Follower:
    """Looks at the log again and again. It is no reader of the topic: nothing changes by it."""

    def __init__(self, bus: client.BlockingClient, topic: str, start: str, last: int) -> None:
        self._bus = bus
        self._topic = topic
        count = bus.query(topic)["partitionCount"]
        self._next = [self._place(partition, start, last) for partition in range(count)]

    def _place(self, partition: int, start: str, last: int) -> int | None:
        """Where to begin; None is the oldest there is."""
        if start == "begin":
            return None
        if start != "end":
            return int(start)
        return max(0, self._bus.run(end_of(self._topic, partition)) - last)

    def look(self) -> Iterator[Delivery]:
        """What has come since the last look."""
        for partition, offset in enumerate(self._next):
            for message in self._read(partition, offset):
                self._next[partition] = message.offset + 1
                yield message

    def _read(self, partition: int, offset: int | None) -> list[Delivery]:
        read = self._bus.read
        try:
            return read(self._topic, partition=partition, offset=offset, count=READ_COUNT)
        except client.NotFound:
            # The log may not reach back so far any more, or not yet that far.
            if offset is None:
                raise
            end = self._bus.run(end_of(self._topic, partition))
            if offset >= end:
                return []
            return read(self._topic, partition=partition, count=READ_COUNT)


def _messages(
    bus: client.BlockingClient, topic: str, group: str | None, start: str, last: int
) -> Iterator[Delivery]:
    if group is not None:
        with bus.consume(topic, group) as messages:
            yield from messages
        return
    follower = Follower(bus, topic, start, last)
    while True:
        found = 0
        for message in follower.look():
            found += 1
            yield message
        if not found:
            time.sleep(POLL_S)


def _start(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value in ("begin", "end") or (value.isascii() and value.isdigit() and len(value) <= 18):
        return value
    raise click.BadParameter("it is begin, end or an offset")


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--from", "start", default="end", callback=_start, help="begin, end or an offset.")
@click.option("--last", type=click.IntRange(min=0), default=0, help="And so many before the end.")
@click.option("--filter", "pattern", default="", help='Tags to show: "a.*;b.#".')
@click.option("--group", help="Consume as this group, and acknowledge what was shown.")
@click.option("--count", type=click.IntRange(min=0), default=0, help="Stop after so many.")
@json_option
@url_option
def tail(
    topic: str,
    start: str,
    last: int,
    pattern: str,
    group: str | None,
    count: int,
    as_json: bool,
    url: str,
) -> None:
    """Print what comes to TOPIC, as it comes."""
    passes = compile_filter(pattern)
    reader = Reader()
    shown = 0
    with opened(url) as bus:
        for message in _messages(bus, topic, group, start, last):
            if passes is not None and not passes(message.tag.encode()):
                continue
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
