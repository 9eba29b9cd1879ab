"""`zbus spark search`: find messages in an archive, in live topics, or in both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from zbus.spark.commands import Common, common_options
from zbus.spark.errors import NoSpark, Usage
from zbus.spark.search.results import LIMIT, Body

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from zbus.spark.search.job import Plan, Search
    from zbus.spark.search.results import Page

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS: Final = ("table", "jsonl", "csv", "parquet")
ENGINES: Final = ("auto", "local", "spark")

_PLACES: Final = (
    click.option("--in", "archive", metavar="DIR", help="Search this archive."),
    click.option("--live", is_flag=True,
        help="With --in: and what the log has behind the archive. Without: the log alone."),
    click.option("--topics", metavar="A,B", help="Only these topics."),
    click.option("--pattern", metavar="RE", help="Only topics whose whole name matches."),
)  # fmt: skip

_CONDITIONS: Final = (
    click.option("--id", "ids", multiple=True, metavar="ID", help="One of these ids."),
    click.option("--key", "keys", multiple=True, metavar="KEY", help="One of these keys."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="One of these tags."),
    click.option("--tag-filter", default="", metavar="FILTER",
        help="A filter as groups have them: eu.*;us.#"),
    click.option("--since", metavar="TIME",
        help="Stored then or later: 24h (ago), 2026-11-23T12:00Z, or epoch milliseconds."),
    click.option("--until", metavar="TIME", help="Stored before that."),
    click.option("--header", "headers", multiple=True, metavar="NAME=VALUE",
        help="With this header, and each of them."),
    click.option("--contains", multiple=True, metavar="TEXT",
        help="With this in the body, and each of them."),
    click.option("--regex", metavar="RE",
        help="Some of the body's text matches: RE2's expressions."),
    click.option("--json-path", "json_paths", multiple=True, metavar="PATH",
        help="The body is JSON and has something there: $.order.lines[0].sku"),
    click.option("--equals", multiple=True, metavar="VALUE",
        help="And it is this: one for each --json-path, in the same order."),
    click.option("--where", metavar="SQL",
        help="Spark's SQL over the columns: \"partition = 1 AND offset % 2 = 0\""),
)  # fmt: skip

_RESULTS: Final = (
    click.option("--limit", type=click.IntRange(0), default=LIMIT, show_default=True,
        help="Results of a page; 0: all."),
    click.option("--after", metavar="CURSOR", help="The next page: what the last one ended with."),
    click.option("--format", "form", type=click.Choice(FORMATS),
        help="How results are written; by default as a table, with --json as jsonl."),
    click.option("--out", metavar="FILE", help="Write them there instead of here."),
    click.option("--body", type=click.Choice([str(each) for each in Body]), default="head",
        show_default=True, help="How much of it: none, its first 256 bytes, or all."),
    click.option("--to-topic", metavar="TOPIC", help="Also produce the results into this topic."),
    click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True,
        help="Spark, or this process, which needs no Java; auto: Spark for SQL and for much."),
)  # fmt: skip


def _with(options: Iterable[Callable[[Any], Any]]) -> Callable[[Function], Function]:
    def wrap(function: Any) -> Any:  # noqa: ANN401 - the command's own
        for option in reversed(list(options)):
            function = option(function)
        return function

    return wrap


@click.command()
@_with((*_PLACES, *_CONDITIONS, *_RESULTS))
@common_options
def search(common: Common, **given: Any) -> None:  # noqa: ANN401 - the options above
    """Find messages in an archive, in live topics, or in both.

    All conditions have to be true; of --id, --key and --tag one of the values. Results are in the
    order of topic, partition and offset.
    """
    from zbus.spark.search.job import find, plan

    began_s = time.perf_counter()
    wanted = _search(common, given)
    _check_output(common, given)
    planned = plan(wanted)
    to_topic = given["to_topic"]
    if to_topic in planned.scope.topics:
        raise Usage(f"--to-topic {to_topic}: it is searched itself; name others with --topics")
    if common.dry_run:
        _print_plan(planned.document(wanted.conditions), common)
        return
    for note in () if common.as_json else planned.scope.notes:
        click.echo(f"zbus: {note}", err=True)
    page = find(wanted, planned, lambda: _session(common, given))
    _write(page, given, common)
    _print(page, planned, common, time.perf_counter() - began_s)


def _search(common: Common, given: dict[str, Any]) -> Search:
    from zbus.spark.search.conditions import read_conditions
    from zbus.spark.search.job import Engine, Search
    from zbus.spark.search.scope import Topics

    names = (
        "ids",
        "keys",
        "tags",
        "tag_filter",
        "since",
        "until",
        "headers",
        "contains",
        "regex",
        "json_paths",
        "equals",
        "where",
        "after",
    )
    topics = tuple(name for name in (given["topics"] or "").split(",") if name)
    if topics and given["pattern"] is not None:
        raise Usage("--topics and --pattern are two ways to say the same")
    if given["archive"] is not None and common.data_dir is not None and not given["live"]:
        raise Usage("--in alone searches the archive: add --live to search --data-dir, too")
    is_live = given["live"] or given["archive"] is None
    # An id goes into a topic as it was: the body is needed, whatever is shown of it.
    body = Body.FULL if given["to_topic"] else Body(given["body"])
    return Search(
        conditions=read_conditions(**{name: given[name] for name in names}),
        archive=given["archive"],
        where=common.where() if is_live else None,
        topics=Topics(topics, given["pattern"]),
        engine=Engine(given["engine"]),
        limit=given["limit"] or None,
        body=body,
    )


def _check_output(common: Common, given: dict[str, Any]) -> None:
    """Before anything is searched."""
    if given["to_topic"] is not None and common.data_dir is not None:
        raise Usage("--to-topic needs a broker: nothing is written into a data directory")
    if given["form"] == "parquet" and given["out"] is None and not common.dry_run:
        raise Usage("--format parquet needs --out FILE")


def _print_plan(document: dict[str, object], common: Common) -> None:
    if common.as_json:
        click.echo(msgspec.json.encode(document))
        return
    for name, value in document.items():
        click.echo(f"{name}: {value}")


def _session(common: Common, given: dict[str, Any]) -> SparkSession:
    try:
        return common.session()
    except NoSpark as problem:
        if given["where"] is not None:
            raise
        raise NoSpark(f"{problem}; --engine local does without") from problem


def _write(page: Page, given: dict[str, Any], common: Common) -> None:
    from zbus.spark.search.output import Format, write
    from zbus.spark.search.publish import Publisher
    from zbus.spark.search.results import shortened

    form = Format(given["form"] or ("jsonl" if common.as_json else "table"))
    shown = Body(given["body"])
    found: Iterable[pa.RecordBatch] = page
    if given["to_topic"] is not None:
        sent = Publisher(common.where(), given["to_topic"]).pass_on(page)
        found = (shortened(batch, shown) for batch in sent)
    write(found, form, given["out"], shown)


def _print(page: Page, plan: Plan, common: Common, seconds: float) -> None:
    """What there is to say about the results, beside them."""
    cursor = None if page.next is None else page.next.encode()
    if common.as_json:
        summary = {
            "results": page.rows,
            "after": cursor,
            "engine": str(plan.engine),
            "seconds": round(seconds, 3),
            "notes": plan.scope.notes,
        }
        click.echo(msgspec.json.encode(summary), err=True)
        return
    text = f"{page.rows} results in {seconds:.1f} s ({plan.engine})"
    click.echo(text if cursor is None else f"{text}; more: --after {cursor}", err=True)
