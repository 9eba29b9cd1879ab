"""`zbus completion`: the Tab key in a shell, names of topics and groups included.

Names are asked of the broker that `--url` or `ZBUS_URL` names, with `ZBUS_TOKEN`. Whoever presses
Tab must not wait for long and must not be told of errors: without a quick answer there are none.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import get_completion_class

from zbus import client

PATIENCE_S = 0.5
NAMES_MAX = 1_000


def _ask(context: click.Context, *names: str) -> dict[str, Any]:
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
            return bus.query(*names)
    except (client.ZbusError, OSError, ValueError):
        return {}


def complete_topic(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Topics that begin so."""
    return _begin(_ask(context).get("topicTable", {}), incomplete)


def complete_group(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Groups of the topic before it that begin so."""
    topic = context.params.get("topic")
    groups = _ask(context, topic).get("consumeGroupList", []) if topic else []
    return _begin([group["groupName"] for group in groups], incomplete)


def _begin(names: Any, incomplete: str) -> list[str]:  # noqa: ANN401 - any collection of text
    wanted = incomplete.lower()
    return sorted(name for name in names if name.lower().startswith(wanted))[:NAMES_MAX]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete zbus commands: eval "$(zbus completion bash)"."""
    complete = get_completion_class(shell)
    assert complete is not None  # the choices are those that click has
    root = context.find_root().command
    script = complete(root, {}, "zbus", "_ZBUS_COMPLETE")
    click.echo(script.source_template % script.source_vars())
