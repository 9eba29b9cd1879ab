"""The command `zbus`: start a broker, try it from a shell, put load on it.

Exit codes: 0 done, 1 the broker refused (its text is on stderr), 2 no broker could be reached or it
stopped talking, 3 nothing came in time (`consume`), all stayed (`redrive`) or the work cannot be
begun (`serve`, `verify`, `backup`, `restore`, `copy`, `shard`), 4 damage was found and repaired
(`verify --repair`), 64 the command was written wrong (64 is `EX_USAGE`, so that scripts can tell a
typing error from an absent broker), 130 interrupted. To commands that work on files, 1 means that
stored bytes are damaged.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from zbus import __version__
from zbus.cli.words import show_usage
from zbus.protocol.nearest import did_you_mean

__all__ = ["main"]

EXIT_USAGE = 64
EXIT_INTERRUPTED = 130


PLACES = {
    **dict.fromkeys(("produce", "consume", "get", "call"), "messages.commands"),
    **dict.fromkeys(("ack", "nack", "extend"), "messages.commands"),
    **dict.fromkeys(("list", "declare", "seek", "query", "remove", "empty"), "topics"),
    **dict.fromkeys(("pause", "resume"), "topics"),
    **dict.fromkeys(
        ("delete", "cancel", "fire", "reschedule", "redrive"), "messages.message_admin"
    ),
    **dict.fromkeys(("peek", "why"), "messages.message_admin"),
    **dict.fromkeys(("backup", "restore"), "backup"),
    **dict.fromkeys(("cluster", "move"), "cluster"),
    **{
        name: name
        for name in ("serve", "top", "verify", "completion", "copy", "shard", "token", "semq")
    },
    "import": "importing.command",
    "tail": "messages.tail",
    "doctor": "doctor",
    "bench": "bench.command",
    "spark": "zbus.spark.commands",
}
"""The module of each command, below this one or with its whole name. It is imported on its first
use: commands of a shell are short, and half of their time would go into what they do not need.
"""


FUNCTIONS = {"list": "list_names", "import": "import_"}
"""What a command is called there, if that is not its name: Python has a use for it."""


OTHERS_WORDS = {
    **dict.fromkeys(("publish", "send", "put", "add", "enqueue"), "produce"),
    **dict.fromkeys(("subscribe", "receive", "dequeue"), "consume"),
    **dict.fromkeys(("topics", "queues", "groups", "ls", "list_queues", "status"), "list --long"),
    **dict.fromkeys(("create", "create-topic", "create-queue", "bind"), "declare"),
    **dict.fromkeys(("describe", "show", "info", "stats"), "query"),
    **dict.fromkeys(("drop", "rm", "delete-topic", "delete-queue"), "remove"),
    **dict.fromkeys(("purge", "purge_queue"), "empty"),
    **dict.fromkeys(("reset-offsets", "rewind", "replay"), "seek"),
    **dict.fromkeys(("reject", "requeue"), "nack"),
    **dict.fromkeys(("watch", "follow", "monitor"), "tail"),
    **dict.fromkeys(("load", "migrate"), "import"),
    **dict.fromkeys(("start", "server", "run"), "serve"),
}
"""What a command is called elsewhere, by the words of other brokers."""


class _Commands(click.Group):
    """Finds commands in their modules, and gives usage errors an exit code of their own."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in PLACES and not (name.startswith("-") or ctx.resilient_parsing):
            other = OTHERS_WORDS.get(name.lower())
            hint = f"; did you mean {other}?" if other else did_you_mean(name, PLACES)
            ctx.fail(f"there is no command {name[:40]!a}{hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = PLACES.get(cmd_name)
        if place is None:
            return None
        module = import_module(place if place.startswith("zbus.") else f"zbus.cli.{place}")
        command = getattr(module, FUNCTIONS.get(cmd_name, cmd_name))
        assert isinstance(command, click.Command)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - handed on to click as it came
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            show_usage(error)
            raise click.exceptions.Exit(EXIT_USAGE) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            show_usage(error)
            raise click.exceptions.Exit(EXIT_USAGE) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # The reader (`head`) has seen enough. Nothing must be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="zbus")
@click.pass_context
def main(context: click.Context) -> None:
    """A message broker that anything able to speak HTTP can use."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
