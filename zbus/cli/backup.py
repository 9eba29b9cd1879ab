"""`zbus backup` and `zbus restore`: a copy of the logs, made beside a running broker, and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from zbus.cli.verify import data_dir_option, storage_failures
from zbus.cli.words import counted
from zbus.storage.local.files import OsFiles
from zbus.storage.tools.backup import Report, back_up
from zbus.storage.tools.backup import restore as restore_files

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command(params=[data_dir_option("Folder of the logs.")])
@click.argument("directory", type=DIRECTORY)
@click.option("--replace", is_flag=True, help="Overwrite a backup of another data directory.")
def backup(data_dir: Path, directory: Path, replace: bool) -> None:
    """Copy the logs to DIRECTORY, only what is new; the broker may be running.

    Those of several workers are one backup: name their common folder.
    """
    time_ms = int(time.time() * 1000)
    report, seconds = _timed(
        lambda: back_up(OsFiles(), data_dir, directory, time_ms, replace=replace)
    )
    click.echo(
        f"{_what(report)}: {counted(report.copied, 'segment')} copied "
        f"({counted(report.bytes, 'byte')}), {report.kept} kept, {report.removed} removed, "
        f"in {seconds:.1f} s"
    )


@click.command(params=[data_dir_option("Folder to make; it must be missing or empty.")])
@click.argument("directory", type=DIRECTORY)
def restore(data_dir: Path, directory: Path) -> None:
    """Make a new data directory from the backup in DIRECTORY.

    It is for as many workers as the one that was copied.
    """
    report, seconds = _timed(lambda: restore_files(OsFiles(), directory, data_dir))
    click.echo(
        f"{_what(report)}: {counted(report.copied, 'segment')} restored "
        f"({counted(report.bytes, 'byte')}) in {seconds:.1f} s"
    )


def _what(report: Report) -> str:
    text = counted(report.partitions, "partition")
    return text if report.shards == 1 else f"{text} in {counted(report.shards, 'shard')}"


def _timed(work: Callable[[], Report]) -> tuple[Report, float]:
    began = time.perf_counter()
    with storage_failures():
        report = work()
    return report, time.perf_counter() - began
