"""All commands of the shell, by name."""

from __future__ import annotations

import click

from zbus.cli import PLACES, main


def _command(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


COMMANDS = {name: _command(name) for name in sorted(PLACES)}
