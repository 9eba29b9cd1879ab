"""`zbus verify`: is every stored byte what was written, and what can be done where it is not."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from zbus.cli.words import Cannot, Damaged, counted
from zbus.server.exits import CannotStart
from zbus.storage.local.files import OsFiles, reason
from zbus.storage.port import JournalDamage, JournalError
from zbus.storage.tools.checkup import Checkup, as_json, check_up, data_bytes, describe
from zbus.storage.tools.manifest import BackupCheckup, BackupDamaged, backup_as_json, check_backup

if TYPE_CHECKING:
    from rich.progress import Progress

EXIT_DAMAGED = 1
EXIT_REPAIRED = 4

SHOW_EVERY_BYTES = 4 << 20
SPEED_FROM_S = 0.5


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


@contextmanager
def storage_failures() -> Iterator[None]:
    """Turn what reading and writing stored bytes raises into what a command ends with."""
    try:
        yield
    except (JournalDamage, BackupDamaged) as error:
        raise Damaged(str(error)) from None
    except (JournalError, CannotStart) as error:
        raise Cannot(str(error)) from None
    except OSError as error:
        raise Cannot(reason(error)) from None


@click.command(params=[data_dir_option("Folder of the logs.")])
@click.option(
    "--repair", is_flag=True, help="Move what cannot be served to quarantine/; delete nothing."
)
@click.option(
    "--backup",
    "target",
    type=click.Path(file_okay=False, path_type=Path),
    help="Check this backup instead; the broker may be running.",
)
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
def verify(data_dir: Path, repair: bool, target: Path | None, as_document: bool) -> None:
    """Check every stored batch of a broker that is stopped, or every file of a backup."""
    if target is not None and repair:
        raise click.UsageError("--repair works on logs, not on a backup: make the backup again")
    began = time.perf_counter()
    with storage_failures(), Bar() as bar:
        if target is not None:
            result: Checkup | BackupCheckup = check_backup(OsFiles(), target, bar.add)
        else:
            bar.total = data_bytes(OsFiles(), data_dir) if data_dir.is_dir() else 0
            result = check_up(OsFiles(), data_dir, repair, bar.add)
    seconds = time.perf_counter() - began
    if as_document:
        document = as_json(result) if isinstance(result, Checkup) else backup_as_json(result)
        document |= {"bytes": bar.read, "seconds": round(seconds, 3)}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    elif isinstance(result, Checkup):
        _print(result, repair, bar.read, seconds)
    else:
        _print_backup(result, bar.read, seconds)
    if isinstance(result, Checkup):
        sys.exit(EXIT_DAMAGED if result.left else EXIT_REPAIRED if result.repaired else 0)
    sys.exit(EXIT_DAMAGED if result.damaged else 0)


class Bar:
    """How much is done, shown on a terminal only; for a `with`."""

    def __init__(self) -> None:
        self.read = 0
        self.total: int | None = None  # unknown
        self._shown = 0
        self._bar = _progress() if sys.stderr.isatty() else None

    def __enter__(self) -> Bar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def add(self, count: int) -> None:
        """This many bytes more were read."""
        self.read += count
        if self._bar and self.read - self._shown >= SHOW_EVERY_BYTES:
            self._shown = self.read
            self._bar.update(self._bar.task_ids[0], completed=self.read, total=self.total)


def _progress() -> Progress:
    from rich.console import Console  # here: they take half of a start
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("", total=None)
    return bar


def _print(result: Checkup, repair: bool, read: int, seconds: float) -> None:
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
                    f"{segment.path}: its first batch does not name the last batch of the segment "
                    "before it; this is harmless if a segment without messages was replaced"
                )
            if segment.lost_before:
                lost = counted(segment.lost_before, "message")
                notes.append(f"{segment.path}: {lost} lost to earlier damage")
        notes += [
            f"{path}: an unfinished file, which the broker removes"
            for path in lane.unfinished_files
        ]
        notes += [f"{path}: does not belong to this log" for path in lane.other_files]
        for line in [*(f"damage: {line}" for line in describe(lane)), *notes]:
            click.echo(line)
    for path in result.other_files:
        click.echo(f"{path}: does not belong to any log")
    segments = [segment for lane in result.lanes for segment in lane.segments]
    messages = sum(segment.messages for segment in segments)
    shards = "" if result.shards == 1 else f"{counted(result.shards, 'shard')}, "
    click.echo(
        f"{shards}{counted(len(result.lanes), 'partition')}, {counted(len(segments), 'segment')}, "
        f"{counted(messages, 'message')}, {_speed(read, seconds)}"
    )
    if result.quarantine is not None:
        click.echo(f"the removed parts are in {result.quarantine}")
    if result.left and repair:
        for line in result.left:
            click.echo(f"left: {line}")
        click.echo("not all could be repaired")
    elif result.left:
        click.echo("damaged")
    else:
        click.echo("repaired" if result.repaired else "all in order")


def _print_backup(result: BackupCheckup, read: int, seconds: float) -> None:
    for line in result.damaged:
        click.echo(f"damage: {line}")
    click.echo(f"{counted(len(result.manifest.segments), 'segment')}, {_speed(read, seconds)}")
    click.echo("damaged" if result.damaged else "all in order")


def _speed(read: int, seconds: float) -> str:
    text = f"{counted(read, 'byte')} in {seconds:.1f} s"
    # Of less, it would tell how long a start takes.
    return f"{text} ({read / seconds / 1e9:.2f} GB/s)" if seconds >= SPEED_FROM_S else text
