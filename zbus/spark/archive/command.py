"""`zbus spark archive`: topics as a Delta table, and what keeps that in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click
import msgspec
from click.core import ParameterSource

from zbus.spark.archive.job import Job, Report
from zbus.spark.archive.writer import LEVEL
from zbus.spark.commands import Common, common_options
from zbus.spark.errors import Unreachable, Unverified, Usage
from zbus.spark.etl.following import interrupted_by_sigterm
from zbus.spark.progress import Watched, bar
from zbus.spark.times import moment_ms
from zbus.units import parse_bytes, parse_ms

if TYPE_CHECKING:
    from zbus.spark.archive.table import Archive
    from zbus.spark.archive.tasks import Engine

Function = TypeVar("Function", bound=Callable[..., Any])

THREADS: Final = 2
_RATE_SUFFIX: Final = "/s"


class _Amount(click.ParamType[int]):
    """A size, a duration or a rate."""

    def __init__(self, name: str, parse: Callable[[str], int | None], like: str) -> None:
        self.name = name
        self._parse = parse
        self._like = like

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        found = value if isinstance(value, int) else self._parse(str(value))
        if found is None:
            self.fail(f"{str(value)[:40]!r} is not of the form {self._like}", param, ctx)
        return found


SIZE: Final = _Amount("size", parse_bytes, "256MiB")
DURATION: Final = _Amount("time", parse_ms, "30s, 1h or 7d")
RATE: Final = _Amount(
    "rate", lambda text: parse_bytes(text.removesuffix(_RATE_SUFFIX)), "20MiB or 20MiB/s"
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]


def _topics_option(function: Function) -> Function:
    return click.option("--topics", metavar="A,B", help="Only these topics.")(function)


def _engine_options(function: Function) -> Function:
    function = click.option(
        "--threads", type=click.IntRange(1), default=THREADS, show_default=True,
        help="Of --engine local.",
    )(function)  # fmt: skip
    return click.option(
        "--engine", type=click.Choice(("spark", "local")), default="spark", show_default=True,
        help="Tasks of Spark, or threads of this process, which need no Java.",
    )(function)  # fmt: skip


def _local_engine_option(function: Function) -> Function:
    return click.option(
        "--threads", type=click.IntRange(1), default=THREADS, show_default=True,
        help="How many files at a time.",
    )(function)  # fmt: skip


def _engine(common: Common, name: str, threads: int) -> Engine:
    if name == "local":
        from zbus.spark.archive.tasks import Threads

        return Threads(threads)
    from zbus.spark.archive.spark import SparkEngine

    return SparkEngine(common.session)


def _open(directory: str) -> Archive:
    """Raises Usage if it is none."""
    from zbus.spark.archive.table import Archive

    return Archive(directory)


@click.group(invoke_without_command=True)
@click.option("--to", metavar="DIR", help="Where the archive is; it is made if it is not there.")
@click.option("--topics", metavar="A,B", help="These topics.")
@click.option("--pattern", metavar="RE", help="The topics whose whole name matches.")
@click.option("--until", default="now", show_default=True, metavar="now|TIME",
    help="Archive what was stored before that: 24h (ago), RFC 3339, or epoch milliseconds.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Archive what there is, and end. This is the default.")
@click.option("--interval", type=DURATION, help="Archive again and again, with such pauses.")
@click.option("--file-bytes", type=SIZE, default="256MiB", show_default=True,
    help="Messages of a file, as they are stored; about.",
)  # fmt: skip
@click.option("--bloom", default="id,key", show_default=True, metavar="COLUMNS",
    help="Columns with Bloom filters; empty: none.",
)  # fmt: skip
@click.option("--level", type=click.IntRange(1, 19), default=LEVEL, show_default=True,
    help="Of zstd: 1 is quicker, and files are larger.",
)  # fmt: skip
@click.option("--rate", type=RATE, help="Read no more than that a second from the log, all in all.")
@click.option("--allow-loss", is_flag=True,
    help="Go on if messages were removed before they were archived, or a topic was made again.",
)  # fmt: skip
@click.option("--retention-lock", is_flag=True,
    help="The broker's retention removes nothing that is not archived yet.",
)  # fmt: skip
@_engine_options
@common_options
def archive(common: Common, **options: Any) -> None:  # noqa: ANN401
    """Archive topics as a Delta table: each offset once, whatever is killed.

    A second archiver of the same topic loses the race and ends with exit code 4. The archive says
    itself where to go on.
    """
    if (subcommand := click.get_current_context().invoked_subcommand) is not None:
        _require_no_options(click.get_current_context(), subcommand)
        return
    if not options["to"]:
        raise Usage("missing target: --to DIR")
    if options["once"] and options["interval"] is not None:
        raise Usage("--once and --interval are two things")
    job = _job(common, **options)
    if common.dry_run:
        _print(job.plan(), common, planned=True)
        return
    if options["interval"] is None:
        _run(job, common)
        return
    with suppress(KeyboardInterrupt), interrupted_by_sigterm():
        while True:
            try:
                _run(job, common)
            except Unreachable as problem:
                click.echo(f"zbus: {problem}; trying again", err=True)
            time.sleep(options["interval"] / 1_000)


def _run(job: Job, common: Common) -> None:
    with bar(common, "archived", of_bytes=True) as progress:
        done = attrs.evolve(job, progress=progress).run()
    _print(done, common)


def _require_no_options(context: click.Context, subcommand: str) -> None:
    """What stands before a subcommand would be of no effect. Raises Usage."""
    for option in context.command.params:
        if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
            raise Usage(
                f"{option.opts[0]} stands before {subcommand}, and would not count: options of"
                f" {subcommand} come behind it, and those of archiving alone are not for it"
            )


def _job(
    common: Common,
    *,
    to: str,
    topics: str | None,
    pattern: str | None,
    until: str,
    file_bytes: int,
    bloom: str,
    level: int,
    rate: int | None,
    allow_loss: bool,
    retention_lock: bool,
    engine: str,
    threads: int,
    once: bool,
    interval: int | None,
) -> Job:
    from zbus.spark.archive.commit import Committer
    from zbus.spark.archive.lock import NoLock, RetentionLock
    from zbus.spark.archive.table import local_directory
    from zbus.spark.archive.tasks import Threads
    from zbus.spark.archive.writer import BLOOM, Shape

    columns = _names(bloom)
    if not set(columns) <= set(BLOOM):
        raise Usage(f"--bloom {bloom}: only {' and '.join(BLOOM)} can have Bloom filters")
    if file_bytes < 1 or rate == 0:
        raise Usage("--file-bytes and --rate must be more than 0")
    root = local_directory(to)
    return Job(
        opener=common.where().open,
        root=root,
        target=Committer(root),
        # A plan needs no Spark.
        engine=Threads(1) if common.dry_run else _engine(common, engine, threads),
        topics=_names(topics),
        pattern=pattern,
        until_ms=None if until == "now" else moment_ms(until, "--until"),
        allow_loss=allow_loss,
        shape=Shape(file_bytes=file_bytes, bloom=tuple(columns), level=level),
        rate_bytes_s=rate,
        lock=RetentionLock(common.where(), root) if retention_lock else NoLock(),
        now_ms=_now_ms,
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
@_topics_option
@click.option("--quick", is_flag=True, help="Look at table and footers alone; read no message.")
@click.option("--live", is_flag=True, help="Compare with the log, as far as it still goes.")
@_local_engine_option
@common_options
def verify(
    common: Common, directory: str, topics: str | None, quick: bool, live: bool, threads: int
) -> None:
    """Read an archive again: table, files, checksums. Exit code 5 if anything is wrong."""
    from zbus.spark.archive.tasks import Threads
    from zbus.spark.archive.verify import verify as check

    archive = _open(directory)
    with ExitStack() as stack:
        log = stack.enter_context(common.where().open()) if live else None
        engine = Watched(Threads(threads), stack.enter_context(bar(common, "verified")))
        found = check(archive, engine, _names(topics), quick=quick, log=log)
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
@_topics_option
@click.option("--file-bytes", type=SIZE, default="256MiB", show_default=True,
    help="Size of a file; about.",
)  # fmt: skip
@_local_engine_option
@common_options
def compact(
    common: Common, directory: str, topics: str | None, file_bytes: int, threads: int
) -> None:
    """Make few large files of many small ones. The small ones go when they are vacuumed."""
    from zbus.spark.archive.tasks import Threads
    from zbus.spark.archive.upkeep import compact as merge

    with bar(common, "compacted") as progress:
        found = merge(
            _open(directory),
            Watched(Threads(threads), progress),
            file_bytes,
            _names(topics),
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
@click.option("--older-than", type=DURATION, default="24h", show_default=True,
    help="More than any run and any reader takes; whole hours, rounded up.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Even if that is less than an hour.")
@common_options
def vacuum(common: Common, directory: str, older_than: int, force: bool) -> None:
    """Remove files that the table does not need, and what runs that were killed have left."""
    from zbus.spark.archive.upkeep import AGE_MS_LEAST
    from zbus.spark.archive.upkeep import vacuum as remove

    if older_than < AGE_MS_LEAST and not force:
        raise Usage(
            "--older-than is less than 1h: what an archiver has just written might be removed;"
            " --force if none runs"
        )
    found = remove(_open(directory), older_than, dry_run=common.dry_run)
    if common.as_json:
        click.echo(msgspec.json.encode({"data": found}))
        return
    click.echo(f"{len(found)} files {'would be removed' if common.dry_run else 'removed'}")


@archive.command()
@click.argument("directory")
@_topics_option
@click.option("--lag", is_flag=True, help="Ask the log how far the archive is behind.")
@click.option("--files", is_flag=True, help="Print the paths of all committed files alone.")
@common_options
def info(common: Common, directory: str, topics: str | None, lag: bool, files: bool) -> None:
    """Say what is archived: messages, files, times, gaps."""
    if files:
        _print_files(directory, _names(topics), common)
        return
    from zbus.spark.archive.upkeep import info as ask

    archive = _open(directory)
    with ExitStack() as stack:
        log = stack.enter_context(common.where().open()) if lag else None
        found = ask(archive, _names(topics), log)
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


def _print_files(directory: str, topics: list[str], common: Common) -> None:
    found = _open(directory).files(*topics)
    if common.as_json:
        click.echo(_documents(found))
        return
    for file in found:
        click.echo(file.path)


@archive.command()
@click.argument("directory")
@_topics_option
@click.option("--before", required=True, metavar="YYYY-MM-DD", help="Days before this one, in UTC.")
@common_options
def expire(common: Common, directory: str, topics: str | None, before: str) -> None:
    """Take old days out. Their files go when they are vacuumed."""
    from zbus.spark.archive.upkeep import expire as take_out

    try:
        day = date.fromisoformat(before).isoformat()
    except ValueError:
        raise Usage(f"--before {before!r} is not a day of the form YYYY-MM-DD") from None
    found = take_out(_open(directory), day, _names(topics), dry_run=common.dry_run)
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
