"""`zbus completion`: the Tab key in a shell, names of topics and groups included.

Names are asked of the broker that `--url` or `ZBUS_URL` names, with `ZBUS_TOKEN`. A person who
presses Tab must not wait for long or see errors: without a quick answer there are no names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import get_completion_class

from zbus import client
from zbus.cli.remote import command, json_option, url_option
from zbus.wire.responses import Response

PATIENCE_S = 0.5
NAMES_MAX = 1_000

Function = TypeVar("Function", bound=Callable[..., Any])


def _ask(context: click.Context, topic: str | None = None) -> list[str]:
    """Names of all topics, or of a topic's groups."""
    url = context.params.get("url") or os.environ.get("ZBUS_URL") or client.DEFAULT_URL
    ca = os.environ.get("ZBUS_CA") or None
    try:
        with client.connect(
            url,
            token=os.environ.get("ZBUS_TOKEN") or None,
            ca=ca,
            retries=0,
            timeout_s=PATIENCE_S,
            connect_timeout_s=PATIENCE_S,
        ) as bus:
            fields: dict[str, str | int | None] = {"cmd": "query", "topic": topic, "names": "1"}
            return bus.run(command(fields, _names))
    except (client.ZbusError, OSError, ValueError, msgspec.MsgspecError):
        return []


def _names(response: Response) -> list[str]:
    return msgspec.json.decode(response.body, type=list[str])


def complete_topic(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Topics that begin so."""
    return _begin(_ask(context), incomplete)


def complete_group(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Groups of the topic before it that begin so."""
    topic = context.params.get("topic")
    return _begin(_ask(context, topic), incomplete) if topic else []


def of_group(function: Function) -> Function:
    """Give a command a topic and perhaps a group, and the common options."""
    group = click.argument("group", required=False, shell_complete=complete_group)
    topic = click.argument("topic", shell_complete=complete_topic)
    return topic(group(json_option(url_option(function))))


def _begin(names: list[str], incomplete: str) -> list[str]:
    wanted = incomplete.lower()
    return sorted(name for name in names if name.lower().startswith(wanted))[:NAMES_MAX]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete zbus commands: eval "$(zbus completion bash)"."""
    complete = get_completion_class(shell)
    assert complete is not None  # the choices are those that click has
    root = context.find_root().command
    script = complete(root, {}, "zbus", "_ZBUS_COMPLETE")
    click.echo(script.source_template % script.source_vars())
