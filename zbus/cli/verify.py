"""`zbus verify`: is every stored byte what was written, and what can be done where it is not."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from zbus.journal.checkup import Checkup, as_json, check_up, data_bytes, describe
from zbus.journal.files import OsFiles
from zbus.journal.ports import JournalError

EXIT_DAMAGED = 1
EXIT_CANNOT = 3
EXIT_REPAIRED = 4

SHOW_EVERY_BYTES = 4 << 20


def data_dir_option(help: str) -> click.Option:
    """The option `--data-dir` of the commands that work on files."""
    return click.Option(
        ["--data-dir"],
        type=click.Path(path_type=Path),
        default=Path("data"),
        show_default=True,
        envvar="ZBUS_DATA_DIR",
        show_envvar=True,
        help=help,
    )


class Cannot(click.ClickException):
    """The work cannot be done; the text says why."""

    exit_code = EXIT_CANNOT

    def show(self, file: object = None) -> None:
        """Print the sentence alone."""
        click.echo(self.message, err=True)


@click.command(params=[data_dir_option("Folder of the logs.")])
@click.option("--repair", is_flag=True, help="Take out what cannot be served; delete nothing.")
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
def verify(data_dir: Path, repair: bool, as_document: bool) -> None:
    """Check every stored batch of a broker that is stopped."""
    files = OsFiles()
    bar = Progress(
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    began = time.perf_counter()
    try:
        with bar:
            read = shown = 0
            task = bar.add_task("", total=data_bytes(files, data_dir) if data_dir.is_dir() else 0)

            def progress(count: int) -> None:
                nonlocal read, shown
                read += count
                if read - shown >= SHOW_EVERY_BYTES:
                    shown = read
                    bar.update(task, completed=read)

            result = check_up(files, data_dir, repair, progress)
    except (JournalError, OSError) as error:
        raise Cannot(str(error)) from None
    seconds = time.perf_counter() - began
    if as_document:
        document = as_json(result) | {"bytes": read, "seconds": round(seconds, 3)}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        _say(result, repair, read, seconds)
    sys.exit(EXIT_DAMAGED if result.left else EXIT_REPAIRED if result.repaired else 0)


def _say(result: Checkup, repair: bool, read: int, seconds: float) -> None:
    for lane in result.lanes:
        notes = []
        for segment in lane.segments:
            if segment.unfinished is not None:
                size = segment.bytes - segment.unfinished.start
                notes.append(
                    f"{segment.path} at byte {segment.unfinished.start}: an unfinished write "
                    f"of {size} bytes, which the broker cuts off"
                )
            if not segment.linked:
                notes.append(
                    f"{segment.path}: names another batch as before it than the segment before "
                    "ends with; right if it took the place of one without messages"
                )
            if segment.lost_before:
                notes.append(
                    f"{segment.path}: {segment.lost_before} messages were lost to damage earlier"
                )
        notes += [f"{path}: never finished; the broker clears it" for path in lane.unfinished_files]
        notes += [f"{path}: not a part of the log" for path in lane.other_files]
        for line in [*(f"damage: {line}" for line in describe(lane)), *notes]:
            click.echo(line)
    for path in result.other_files:
        click.echo(f"{path}: not a part of any log")
    segments = [segment for lane in result.lanes for segment in lane.segments]
    click.echo(
        f"{len(result.lanes)} partitions, {len(segments)} segments, "
        f"{sum(segment.messages for segment in segments)} messages, {read} bytes "
        f"in {seconds:.1f} s ({read / max(seconds, 1e-9) / 1e9:.2f} GB/s)"
    )
    if result.quarantine is not None:
        click.echo(f"what was taken out is in {result.quarantine}")
    if result.left and repair:
        for line in result.left:
            click.echo(f"left: {line}")
        click.echo("not all could be repaired")
    elif result.left:
        click.echo("damaged")
    else:
        click.echo("repaired" if result.repaired else "all in order")
