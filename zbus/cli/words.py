"""What the commands say: every failure in one form, and numbers with their nouns."""

from __future__ import annotations

import click
import msgspec

_JSON = f"{__name__}.json"


def keep_json(context: click.Context, _parameter: click.Parameter, wanted: bool) -> bool:
    """Callback of `--json`: errors are printed as JSON, too."""
    context.meta[_JSON] = wanted
    return wanted


def wants_json() -> bool:
    """The command that runs was given `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


class Failed(click.ClickException):
    """The command cannot do it; the sentence says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._as_json = wants_json()  # by the time it is shown no command runs any more

    def show(self, file: object = None) -> None:
        """Say it on stderr: in words, or as JSON."""
        if self._as_json:
            click.echo(msgspec.json.encode(self.document()), err=True)
        else:
            self.report()

    def report(self) -> None:
        """Print the sentence as all commands do, `serve` among them."""
        click.echo(f"zbus: {self.format_message()}", err=True)

    def document(self) -> dict[str, object]:
        """The same for programs."""
        return {"error": self.format_message(), "exit_code": self.exit_code}


class Cannot(Failed):
    """The work cannot be begun, or not go on."""

    exit_code = 3


class Nothing(Failed):
    """Nothing came in time, or nothing could be moved."""

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


def print_json(document: object) -> None:
    """One line of JSON on standard output."""
    click.echo(msgspec.json.encode(document))


def print_time(body: bytes, as_json: bool) -> None:
    """The broker's time, which is what many orders are answered with."""
    if as_json:
        print_json({"time_ms": int(body) if body.isdigit() and len(body) < 20 else None})
    else:
        click.echo(body, nl=not body.endswith(b"\n"))
