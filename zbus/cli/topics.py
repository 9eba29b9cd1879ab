"""Topics and groups: `list`, `declare`, `seek`, `query`, `remove`, `empty`, `pause`, `resume`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from zbus.cli.completion import complete_group, complete_topic, of_group
from zbus.cli.parameters import sent, takes
from zbus.cli.remote import Remote, Reply, json_option, url_option
from zbus.cli.words import print_time
from zbus.documents import NOT_JSON
from zbus.protocol.parameters import DECLARE, EMPTY, SEEK

_NOT_TAKEN = "proxy group_name_auto partition group_start_offset group_start_msgid group_start_time"
"""Parameters of a declare that are older words, or for programs."""


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@takes(DECLARE, without=_NOT_TAKEN)
@json_option
@url_option
def declare(
    topic: str,
    group: str | None,
    as_json: bool,
    url: str,
    **wanted: Any,  # noqa: ANN401 - options
) -> None:
    """Create TOPIC (and GROUP), or change the given options; print the result.

    A GROUP that exists stays where it is: `zbus seek` moves it.
    """
    fields = {"cmd": "declare", "topic": topic, "consume_group": group}
    with Remote(url) as remote:
        reply = remote.request({**fields, **sent(DECLARE, wanted)})
    _print_json(reply, as_json)


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
    fields = {"cmd": "seek", "topic": topic, "consume_group": group}
    with Remote(url) as remote:
        reply = remote.request({**fields, **where})
    _print_json(reply, as_json)


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.argument("group", required=False, shell_complete=complete_group)
@json_option
@url_option
def query(topic: str | None, group: str | None, as_json: bool, url: str) -> None:
    """Print the state of the broker, of TOPIC, or of its GROUP, as JSON."""
    with Remote(url) as remote:
        reply = remote.request({"cmd": "query", "topic": topic, "consume_group": group})
    _print_json(reply, as_json)


@click.command(name="list")
@click.argument("topic", required=False, shell_complete=complete_topic)
@json_option
@url_option
def list_names(topic: str | None, as_json: bool, url: str) -> None:
    """Print the names of all topics, or of the groups of TOPIC, one on a line."""
    with Remote(url) as remote:
        reply = remote.request({"cmd": "query", "topic": topic, "names": 1})
    if as_json:
        click.echo(reply.body)
        return
    for name in msgspec.json.decode(reply.body, type=list[str]):
        click.echo(name)


@click.command()
@of_group
def remove(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Delete TOPIC with all its messages, or only its GROUP."""
    print_time(_answer("remove", topic, group, url).body, as_json)


@click.command()
@of_group
@takes(EMPTY, "keep_leased")
def empty(topic: str, group: str | None, as_json: bool, url: str, **kept: bool | None) -> None:
    """Drop all messages of TOPIC, or all that GROUP has still to get."""
    print_time(_answer("empty", topic, group, url, **sent(EMPTY, kept)).body, as_json)


@click.command()
@of_group
def pause(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Hold the deliveries of GROUP back; print it as JSON."""
    _print_json(_answer("pause", topic, group, url), as_json)


@click.command()
@of_group
def resume(topic: str, group: str | None, as_json: bool, url: str) -> None:
    """Go on with the deliveries of GROUP; print it as JSON."""
    _print_json(_answer("resume", topic, group, url), as_json)


def _answer(word: str, topic: str, group: str | None, url: str, **more: str | int) -> Reply:
    with Remote(url) as remote:
        return remote.request({"cmd": word, "topic": topic, "consume_group": group, **more})


def _print_json(reply: Reply, as_json: bool) -> None:
    """One line of it; or for people, indented. What is no JSON is shown as it is."""
    if as_json:
        click.echo(reply.body)
        return
    try:
        click.echo(msgspec.json.format(reply.body, indent=2))
    except NOT_JSON:
        click.echo(reply.body)
