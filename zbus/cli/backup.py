"""`zbus backup` and `zbus restore`: a copy of the logs, made beside a running broker, and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from zbus.cli.verify import Cannot, data_dir_option
from zbus.journal.backup import BackupDamaged, Report, back_up
from zbus.journal.backup import restore as restore_files
from zbus.journal.files import OsFiles
from zbus.journal.ports import JournalDamage, JournalError

DIRECTORY = click.Path(file_okay=False, path_type=Path)


class Damaged(click.ClickException):
    """Stored bytes are not what was written; the text names the file."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        """Print the sentence alone."""
        click.echo(self.message, err=True)


@click.command(params=[data_dir_option("Folder of the logs.")])
@click.argument("directory", type=DIRECTORY)
def backup(data_dir: Path, directory: Path) -> None:
    """Copy what is new in the logs to DIRECTORY; the broker may be running."""
    report, seconds = _timed(
        lambda: back_up(OsFiles(), data_dir, directory, int(time.time() * 1000))
    )
    click.echo(
        f"{report.partitions} partitions: {report.copied} segments copied "
        f"({report.bytes} bytes), {report.kept} kept, {report.removed} old ones removed, "
        f"in {seconds:.1f} s"
    )


@click.command(params=[data_dir_option("Folder to be made; must be missing or empty.")])
@click.argument("directory", type=DIRECTORY)
def restore(data_dir: Path, directory: Path) -> None:
    """Make a new data directory of the backup in DIRECTORY."""
    report, seconds = _timed(lambda: restore_files(OsFiles(), directory, data_dir))
    click.echo(
        f"{report.partitions} partitions: {report.copied} segments restored "
        f"({report.bytes} bytes) in {seconds:.1f} s"
    )


def _timed(work: Callable[[], Report]) -> tuple[Report, float]:
    began = time.perf_counter()
    try:
        report = work()
    except (JournalDamage, BackupDamaged) as error:
        raise Damaged(str(error)) from None
    except (JournalError, OSError) as error:
        raise Cannot(str(error)) from None
    return report, time.perf_counter() - began
