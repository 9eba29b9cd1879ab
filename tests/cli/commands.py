"""All commands of the shell, by name."""

from __future__ import annotations

import click

from zbus.cli import PLACES, main


def _command(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


COMMANDS = {name: _command(name) for name in sorted(PLACES)}


def _leaves(name: str, command: click.Command) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {name: command}
    inner = [_leaves(f"{name} {word}", each) for word, each in command.commands.items()]
    return {name: each for leaves in inner for name, each in leaves.items()}


LEAVES = {name: leaf for word in COMMANDS for name, leaf in _leaves(word, COMMANDS[word]).items()}
"""Those that do something: of a group its commands, as `semq run`."""
