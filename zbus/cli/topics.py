"""Topics and groups: `list`, `declare`, `seek`, `query`, `remove`, `empty`, `pause`, `resume`."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, BinaryIO

import click
import msgspec

from zbus.cli.completion import complete_group, complete_topic, of_group
from zbus.cli.parameters import sent, takes
from zbus.cli.remote import ask, json_option, opened, request, url_option
from zbus.cli.words import print_json, print_time
from zbus.documents import NOT_JSON
from zbus.protocol.parameters import DECLARE, EMPTY, SEEK
from zbus.wire.responses import Response

_NOT_TAKEN = (
    "proxy group_name_auto partition group_start_offset group_start_msgid group_start_time schema"
)
"""Parameters of a declare that are older words, or for programs; and what is a file here."""


@click.command()
@of_group
@takes(DECLARE, without=_NOT_TAKEN)
@click.option(
    "--schema",
    type=click.File("rb", lazy=False),
    help="A file with the JSON Schema that bodies have to fit; - is standard input.",
)
@click.option("--no-schema", is_flag=True, help="Bodies are not checked any more.")
def declare(
    topic: str,
    group: str | None,
    as_json: bool,
    url: str,
    schema: BinaryIO | None,
    no_schema: bool,
    **wanted: Any,  # noqa: ANN401 - options
) -> None:
    """Create TOPIC (and GROUP), or change the given options; print the result.

    A GROUP that exists stays where it is: `zbus seek` moves it.
    """
    body = b"" if schema is None else schema.read()
    said = sent(DECLARE, {**wanted, "schema": "none" if no_schema else schema and "body"})
    asked = {"cmd": "declare", "topic": topic, "consume_group": group, **said}
    _print_json(request(url, asked, body), as_json)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", shell_complete=complete_group)
@takes(SEEK)
@json_option
@url_option
def seek(
    topic: str,
    group: str,
    as_json: bool,
    url: str,
    **where: Any,  # noqa: ANN401 - options
) -> None:
    """Move GROUP to another position and print its state. Outstanding leases are dropped."""
    _print_json(ask(url, "seek", topic, group, **where), as_json)


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def query(topic: str | None, group: str | None, as_json: bool, url: str) -> None:
    """Print the state of the broker, of TOPIC, or of its GROUP, as JSON."""
    _print_json(ask(url, "query", topic, group), as_json)


@click.command(name="list")
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.option(
    "-l", "--long", is_flag=True, help="A table: topics, their groups, the backlog of each."
)
@json_option
@url_option
def list_names(topic: str | None, long: bool, as_json: bool, url: str) -> None:
    """Print the names of all topics, or of the groups of TOPIC, one on a line."""
    if long:
        _print_table(topic, as_json, url)
        return
    reply = ask(url, "query", topic, names=1)
    if as_json:
        click.echo(reply.body)
        return
    for name in msgspec.json.decode(reply.body, type=list[str]):
        click.echo(name)


_OF_LIST = ["topic", "group", "messages", "lag", "leased", "delayed", "consumers"]


def _print_table(topic: str | None, as_json: bool, url: str) -> None:
    from zbus.cli.top import rows_of  # here: no other of these commands needs it

    with opened(url) as bus:
        topics = [bus.query(topic)] if topic else bus.query().topics.values()
    rows = sorted(rows_of(topics, {}, 0), key=attrgetter("topic", "group"))
    lines = [[str(getattr(row, name)) for name in _OF_LIST] for row in rows]
    if as_json:
        print_json([{name: getattr(row, name) for name in _OF_LIST} for row in rows])
        return
    widths = [max(map(len, column)) for column in zip(_OF_LIST, *lines, strict=True)]
    for line in (_OF_LIST, *lines):
        cells = zip(line, widths, _OF_LIST, strict=True)
        padded = [
            cell.ljust(width) if name in _OF_LIST[:2] else cell.rjust(width)
            for cell, width, name in cells
        ]
        click.echo("  ".join(padded).rstrip())


@click.command()
@of_group
def remove(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Delete TOPIC with all its messages, or only its GROUP."""
    print_time(ask(url, "remove", topic, group).body, as_json)


@click.command()
@of_group
@takes(EMPTY, "keep_leased")
def empty(topic: str, group: str | None, as_json: bool, url: str, **kept: bool | None) -> None:
    """Drop all messages of TOPIC, or all that GROUP has still to get."""
    print_time(ask(url, "empty", topic, group, **sent(EMPTY, kept)).body, as_json)


@click.command()
@of_group
def pause(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Hold the deliveries of GROUP back; print it as JSON."""
    _print_json(ask(url, "pause", topic, group), as_json)


@click.command()
@of_group
def resume(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Go on with the deliveries of GROUP; print it as JSON."""
    _print_json(ask(url, "resume", topic, group), as_json)


def _print_json(reply: Response, as_json: bool) -> None:
    """One line of it; or for people, indented. What is no JSON is shown as it is."""
    if as_json:
        click.echo(reply.body)
        return
    try:
        click.echo(msgspec.json.format(reply.body, indent=2))
    except NOT_JSON:
        click.echo(reply.body)
