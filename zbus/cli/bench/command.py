"""`zbus bench` on the command line: options in, a progress bar, a report out."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from zbus.cli.bench.options import MODES, Options
from zbus.cli.bench.run import Progress, run_load
from zbus.cli.remote import given_access, url_option
from zbus.cli.units import POSITIVE, SIZE, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command()
@click.argument("mode", type=click.Choice(MODES), default="produce")
@click.option(
    "-c",
    "--connections",
    type=POSITIVE,
    default=32,
    show_default=True,
    help="Connections that are open at once.",
)
@click.option(
    "-n",
    "--messages",
    type=POSITIVE,
    default=100_000,
    show_default=True,
    help="Stop after this many messages.",
)
@click.option(
    "-b",
    "--body-bytes",
    type=SIZE,
    default=128,
    show_default=True,
    help="Size of a message's body.",
)
@click.option(
    "--pipeline",
    type=POSITIVE,
    default=1,
    show_default=True,
    help="Requests sent together on a connection.",
)
@click.option(
    "--unique-ids/--no-unique-ids",
    default=True,
    show_default=True,
    help="Whether each request has an id of its own.",
)
@click.option("--batch", type=POSITIVE, default=1, show_default=True, help="Messages per request.")
@click.option(
    "--durability",
    type=click.Choice(["memory", "os", "disk"]),
    default=None,
    help="Of a new topic: what a produce waits for.",
)
@click.option("--topic", default="bench", show_default=True, help="Topic that is used.")
@click.option("--group", default="", help="Group to consume as; default: named like the topic.")
@click.option(
    "--partitions", type=POSITIVE, default=None, help="Declare the topic with this many partitions."
)
@click.option(
    "--seconds",
    type=Seconds(least=0),
    default=0.0,
    help="Stop after this time; a plain number is seconds.",
)
@click.option(
    "--processes",
    type=POSITIVE,
    default=1,
    show_default=True,
    help="Number of processes that make load.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write the report to this file as JSON; - is standard output.",
)
@url_option
def bench(json_file: Path | None, **given: Any) -> None:  # noqa: ANN401 - the fields of Options
    """Put load on a broker and measure it.

    Each connection sends --pipeline requests at once, and the next ones when all of them have been
    answered. The latency of a request counts from the sending of these requests.
    """
    given["token"] = given_access().get("token")
    options = Options(**{name: value for name, value in given.items() if value is not None})
    with _progress_bar(options) as progress:
        report = run_load(options, progress)
    if json_file is not None:
        shown = attrs.asdict(options, filter=lambda option, _: option.name != "token")
        document = report.as_json(shown)
        with click.open_file(str(json_file), "wb") as out:
            out.write(document)
    if json_file is None or str(json_file) != "-":
        click.echo(report.as_text())
    if report.errors:
        sys.exit(1)


@contextmanager
def _progress_bar(options: Options) -> Iterator[Progress]:
    """A bar on stderr for each phase; nothing if that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _phase, _messages: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    # Drawn from the generator's own thread ten times a second: a drawing thread would take its
    # turns at the generator's expense.
    with Bars(console=Console(stderr=True), auto_refresh=False, transient=True) as bars:
        tasks = {
            name: bars.add_task(name, total=options.messages, start=False)
            for name in options.phases
        }

        def show(phase: str, messages: int) -> None:
            bars.start_task(tasks[phase])
            bars.update(tasks[phase], completed=messages, refresh=True)

        yield show
