"""`zbus spark archive`: topics as a Delta table, and what keeps that in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import attrs
import click
import msgspec
from click.core import ParameterSource

from zbus.spark.archive.commit import Committer
from zbus.spark.archive.job import Job, Report
from zbus.spark.archive.lock import NoLock, RetentionLock
from zbus.spark.archive.table import Archive, local_directory
from zbus.spark.archive.tasks import Threads
from zbus.spark.archive.writer import BLOOM, LEVEL, Shape
from zbus.spark.commands import Common, names, option, takes
from zbus.spark.errors import Unreachable, Unverified, Usage
from zbus.spark.etl.following import interrupted_by_sigterm
from zbus.spark.progress import Watched, bar
from zbus.spark.times import bytes_s, duration_ms, moment_ms, size_bytes

if TYPE_CHECKING:
    from zbus.spark.archive.tasks import Engine

THREADS: Final = 2


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.frozen(kw_only=True)
class Topics:
    """Of an archive."""

    topics: str | None = option("--topics A,B", "Only these topics.")


@attrs.frozen(kw_only=True)
class Reading(Topics):
    """How files of an archive are read."""

    threads: int = option(
        "--threads", "How many files at a time.", default=THREADS, type=click.IntRange(1)
    )


@attrs.frozen(kw_only=True)
class Wanted:
    """What is archived, and how."""

    to: str | None = option("--to DIR", "Where the archive is; it is made if it is not there.")
    topics: str | None = option("--topics A,B", "These topics.")
    pattern: str | None = option("--pattern RE", "The topics whose whole name matches.")
    until: str = option(
        "--until now|TIME",
        "Archive what was stored before that: 24h (ago), RFC 3339, or epoch milliseconds.",
        default="now",
    )
    once: bool = option(
        "--once", "Archive what there is, and end. This is the default.", default=False
    )
    interval: str | None = option("--interval TIME", "Archive again and again, with such pauses.")
    file_bytes: str = option(
        "--file-bytes SIZE", "Messages of a file, as they are stored; about.", default="256MiB"
    )
    bloom: str = option(
        "--bloom COLUMNS", "Columns with Bloom filters; empty: none.", default="id,key"
    )
    level: int = option(
        "--level",
        "Of zstd: 1 is quicker, and files are larger.",
        default=LEVEL,
        type=click.IntRange(1, 19),
    )
    rate: str | None = option(
        "--rate SIZE/s", "Read no more than that a second from the log, all in all."
    )
    allow_loss: bool = option(
        "--allow-loss",
        "Go on if messages were removed before they were archived, or a topic was made again.",
        default=False,
    )
    retention_lock: bool = option(
        "--retention-lock",
        "The broker's retention removes nothing that is not archived yet.",
        default=False,
    )
    engine: str = option(
        "--engine",
        "Tasks of Spark, or threads of this process, which need no Java.",
        default="spark",
        type=click.Choice(("spark", "local")),
    )
    threads: int = option(
        "--threads", "Of --engine local.", default=THREADS, type=click.IntRange(1)
    )

    def job(self, common: Common) -> Job:
        """Raises Usage."""
        if not self.to:
            raise Usage("missing target: --to DIR")
        if self.once and self.interval is not None:
            raise Usage("--once and --interval are two things")
        columns = names(self.bloom)
        if not set(columns) <= set(BLOOM):
            raise Usage(f"--bloom {self.bloom}: only {' and '.join(BLOOM)} can have Bloom filters")
        file_bytes = size_bytes(self.file_bytes, "--file-bytes")
        root = local_directory(self.to)
        return Job(
            opener=common.where().open,
            root=root,
            target=Committer(root),
            engine=self._engine(common),
            topics=names(self.topics),
            pattern=self.pattern,
            until_ms=None if self.until == "now" else moment_ms(self.until, "--until"),
            allow_loss=self.allow_loss,
            shape=Shape(file_bytes=file_bytes, bloom=columns, level=self.level),
            rate_bytes_s=None if self.rate is None else bytes_s(self.rate),
            lock=RetentionLock(common.where(), root) if self.retention_lock else NoLock(),
            now_ms=_now_ms,
        )

    def _engine(self, common: Common) -> Engine:
        if self.engine == "local" or common.dry_run:  # a plan needs no Spark
            return Threads(self.threads)
        from zbus.spark.archive.spark import SparkEngine

        return SparkEngine(common.session)


@click.group(invoke_without_command=True)
@takes(Wanted)
def archive(common: Common, wanted: Wanted) -> None:
    """Archive topics as a Delta table: each offset once, whatever is killed.

    A second archiver of the same topic loses the race and ends with exit code 4. The archive says
    itself where to go on.
    """
    if (subcommand := click.get_current_context().invoked_subcommand) is not None:
        _require_no_options(click.get_current_context(), subcommand)
        return
    job = wanted.job(common)
    pause_ms = None if wanted.interval is None else duration_ms(wanted.interval, "--interval", 0)
    if common.dry_run:
        _print(job.plan(), common, planned=True)
        return
    if pause_ms is None:
        _run(job, common)
        return
    with suppress(KeyboardInterrupt), interrupted_by_sigterm():
        while True:
            try:
                _run(job, common)
            except Unreachable as problem:
                click.echo(f"zbus: {problem}; trying again", err=True)
            time.sleep(pause_ms / 1_000)


def _run(job: Job, common: Common) -> None:
    with bar(common, "archived", of_bytes=True) as progress:
        done = attrs.evolve(job, progress=progress).run()
    _print(done, common)


def _require_no_options(context: click.Context, subcommand: str) -> None:
    """What stands before a subcommand would be of no effect. Raises Usage."""
    for each in context.command.params:
        if context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE:
            raise Usage(
                f"{each.opts[0]} stands before {subcommand}, and would not count: options of"
                f" {subcommand} come behind it, and those of archiving alone are not for it"
            )


def _print(report: Report, common: Common, *, planned: bool = False) -> None:
    if common.as_json:
        click.echo(msgspec.json.encode({"planned": planned, **report.document()}))
        return
    for lane in report.lanes:
        place = f"{lane.topic}, partition {lane.partition}"
        if lane.recreated:
            click.echo(f"{place}: the topic was made again; its offsets begin at 0", err=True)
        for gap in lane.gaps:
            click.echo(f"{place}: offsets {gap.start} to {gap.end}: {gap.reason}", err=True)
        what = "would be archived" if planned else f"in {lane.files} files, {lane.bytes} bytes"
        click.echo(f"{place}: offsets {lane.start} to {lane.end}, {lane.messages} messages {what}")
    if not report.lanes:
        click.echo("there is nothing new")


def _documents(found: list[Any]) -> bytes:
    return msgspec.json.encode([each._asdict() for each in found])


@archive.command()
@click.argument("directory")
@click.option("--quick", is_flag=True, help="Look at table and footers alone; read no message.")
@click.option("--live", is_flag=True, help="Compare with the log, as far as it still goes.")
@takes(Reading)
def verify(common: Common, reading: Reading, directory: str, quick: bool, live: bool) -> None:
    """Read an archive again: table, files, checksums. Exit code 5 if anything is wrong."""
    from zbus.spark.archive.verify import verify as check

    archive = Archive(directory)
    with ExitStack() as stack:
        log = stack.enter_context(common.where().open()) if live else None
        engine = Watched(Threads(reading.threads), stack.enter_context(bar(common, "verified")))
        found = check(archive, engine, names(reading.topics), quick=quick, log=log)
    if common.as_json:
        click.echo(msgspec.json.encode(attrs.asdict(found)))
    else:
        click.echo(
            f"{found.messages} messages in {found.files} files of {found.lanes} partitions"
            + (f"; {found.compared} compared with the log, {found.gone} not in it" * live)
        )
        for wrong in found.wrong:
            click.echo(wrong, err=True)
    if found.wrong:
        raise Unverified(f"{directory}: {len(found.wrong)} things are wrong")


@archive.command()
@click.argument("directory")
@click.option("--file-bytes", default="256MiB", show_default=True, metavar="SIZE",
    help="Size of a file; about.",
)  # fmt: skip
@takes(Reading)
def compact(common: Common, reading: Reading, directory: str, file_bytes: str) -> None:
    """Make few large files of many small ones. The small ones go when they are vacuumed."""
    from zbus.spark.archive.upkeep import compact as merge

    with bar(common, "compacted") as progress:
        found = merge(
            Archive(directory),
            Watched(Threads(reading.threads), progress),
            size_bytes(file_bytes, "--file-bytes"),
            names(reading.topics),
            dry_run=common.dry_run,
        )
    if common.as_json:
        click.echo(_documents(found))
        return
    for each in found:
        place = f"{each.topic}, partition {each.partition}"
        click.echo(f"{place}: {each.files_before} files, now {each.files}")
    if not found:
        click.echo("there is nothing to compact")


@archive.command()
@click.argument("directory")
@click.option("--older-than", default="24h", show_default=True, metavar="TIME",
    help="More than any run and any reader takes; whole hours, rounded up.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Even if that is less than an hour.")
@takes()
def vacuum(common: Common, directory: str, older_than: str, force: bool) -> None:
    """Remove files that the table does not need, and what runs that were killed have left."""
    from zbus.spark.archive.upkeep import AGE_MS_LEAST
    from zbus.spark.archive.upkeep import vacuum as remove

    age_ms = duration_ms(older_than, "--older-than", 0)
    if age_ms < AGE_MS_LEAST and not force:
        raise Usage(
            "--older-than is less than 1h: what an archiver has just written might be removed;"
            " --force if none runs"
        )
    found = remove(Archive(directory), age_ms, dry_run=common.dry_run)
    if common.as_json:
        click.echo(msgspec.json.encode({"data": found}))
        return
    click.echo(f"{len(found)} files {'would be removed' if common.dry_run else 'removed'}")


@archive.command()
@click.argument("directory")
@click.option("--lag", is_flag=True, help="Ask the log how far the archive is behind.")
@click.option("--files", is_flag=True, help="Print the paths of all committed files alone.")
@takes(Topics)
def info(common: Common, chosen: Topics, directory: str, lag: bool, files: bool) -> None:
    """Say what is archived: messages, files, times, gaps."""
    if files:
        _print_files(directory, names(chosen.topics), common)
        return
    from zbus.spark.archive.upkeep import info as ask

    archive = Archive(directory)
    with ExitStack() as stack:
        log = stack.enter_context(common.where().open()) if lag else None
        found = ask(archive, names(chosen.topics), log)
    if common.as_json:
        click.echo(msgspec.json.encode(found))
        return
    for each in found:
        click.echo(
            f"{each['topic']}, partition {each['partition']}: {each['messages']} messages up to"
            f" offset {each['end']}, {each['files']} files, {each['bytes']} bytes"
            + (f", {each['lag']} behind" if lag else "")
        )
        for gap in each["gaps"]:
            click.echo(f"  offsets {gap['start']} to {gap['end']}: {gap['reason']}")


def _print_files(directory: str, topics: Sequence[str], common: Common) -> None:
    found = Archive(directory).files(*topics)
    if common.as_json:
        click.echo(_documents(found))
        return
    for file in found:
        click.echo(file.path)


@archive.command()
@click.argument("directory")
@click.option("--before", required=True, metavar="YYYY-MM-DD", help="Days before this one, in UTC.")
@takes(Topics)
def expire(common: Common, chosen: Topics, directory: str, before: str) -> None:
    """Take old days out. Their files go when they are vacuumed."""
    from zbus.spark.archive.upkeep import expire as take_out

    try:
        day = date.fromisoformat(before).isoformat()
    except ValueError:
        raise Usage(f"--before {before!r} is not a day of the form YYYY-MM-DD") from None
    found = take_out(Archive(directory), day, names(chosen.topics), dry_run=common.dry_run)
    if common.as_json:
        click.echo(_documents(found))
        return
    for each in found:
        click.echo(
            f"{each.topic}, partition {each.partition}: {each.messages} messages in {each.files}"
            f" files {'would be' if common.dry_run else 'were'} taken out"
        )
    if not found:
        click.echo(f"there is nothing before {day}")
