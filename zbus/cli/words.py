"""What the commands say: every failure in one form, and numbers with their nouns."""

from __future__ import annotations

import click


class Failed(click.ClickException):
    """The command cannot do it; the sentence says why."""

    def show(self, file: object = None) -> None:
        """Print the sentence as all commands do, `serve` among them."""
        click.echo(f"zbus: {self.format_message()}", err=True)


class Cannot(Failed):
    """The work cannot be begun, or not go on."""

    exit_code = 3


class Damaged(Failed):
    """Stored bytes are not what was written; the text names the file."""

    exit_code = 1


def show_usage(error: click.UsageError) -> None:
    """Say that a command was written wrong, and how it is written."""
    context = error.ctx
    if context is not None:
        click.echo(context.get_usage(), err=True)
        help = f"{context.command_path} {context.help_option_names[0]}"
        click.echo(f"Try '{help}' for help.\n", err=True)
    click.echo(f"zbus: {error.format_message()}", err=True)


def counted(number: int, noun: str) -> str:
    """Give `1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
