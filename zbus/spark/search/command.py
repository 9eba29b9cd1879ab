"""`zbus spark search`: find messages in an archive, in live topics, or in both."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs
import click
import msgspec

from zbus.spark.commands import Common, names, option, takes
from zbus.spark.errors import NoSpark, Usage
from zbus.spark.search.conditions import Wanted
from zbus.spark.search.job import Engine, Plan, Search, find, plan
from zbus.spark.search.output import Format, write
from zbus.spark.search.results import LIMIT, Body, Page, shortened
from zbus.spark.search.scope import Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@attrs.frozen(kw_only=True)
class Places:
    """Where to search."""

    archive: str | None = option("--in DIR", "Search this archive.")
    live: bool = option(
        "--live",
        "With --in: and what the log has behind the archive. Without: the log alone.",
        default=False,
    )
    topics: str | None = option("--topics A,B", "Only these topics.")
    pattern: str | None = option("--pattern RE", "Only topics whose whole name matches.")


@attrs.frozen(kw_only=True)
class Results:
    """How many, and what becomes of them."""

    limit: int = option(
        "--limit", "Results of a page; 0: all.", default=LIMIT, type=click.IntRange(0)
    )
    form: str | None = option(
        "--format",
        "How results are written; by default as a table, with --json as jsonl.",
        type=click.Choice([str(each) for each in Format]),
    )
    out: str | None = option("--out FILE", "Write them there instead of here.")
    body: str = option(
        "--body",
        "How much of it: none, its first 256 bytes, or all.",
        default=str(Body.HEAD),
        type=click.Choice([str(each) for each in Body]),
    )
    to_topic: str | None = option("--to-topic TOPIC", "Also produce the results into this topic.")
    engine: str = option(
        "--engine",
        "Spark, or this process, which needs no Java; auto: Spark for SQL and for much.",
        default=str(Engine.AUTO),
        type=click.Choice([str(each) for each in Engine]),
    )

    def check(self, common: Common) -> None:
        """Before anything is searched. Raises Usage."""
        if self.to_topic is not None and common.data_dir is not None:
            raise Usage("--to-topic needs a broker: nothing is written into a data directory")
        if self.form == "parquet" and self.out is None and not common.dry_run:
            raise Usage("--format parquet needs --out FILE")


@click.command()
@takes(Places, Wanted, Results)
def search(common: Common, places: Places, wanted: Wanted, results: Results) -> None:
    """Find messages in an archive, in live topics, or in both.

    All conditions have to be true; of --id, --key and --tag one of the values. Results are in the
    order of topic, partition and offset.
    """
    began_s = time.perf_counter()
    search = _search(common, places, wanted, results)
    results.check(common)
    planned = plan(search)
    if results.to_topic in planned.scope.topics:
        raise Usage(
            f"--to-topic {results.to_topic}: it is searched itself; name others with --topics"
        )
    if common.dry_run:
        _print_plan(planned.document(search.conditions), common)
        return
    for note in () if common.as_json else planned.scope.notes:
        click.echo(f"zbus: {note}", err=True)
    page = find(search, planned, lambda: _session(common, wanted))
    _write(page, results, common)
    _print(page, planned, common, time.perf_counter() - began_s)


def _search(common: Common, places: Places, wanted: Wanted, results: Results) -> Search:
    topics = names(places.topics)
    if topics and places.pattern is not None:
        raise Usage("--topics and --pattern are two ways to say the same")
    if places.archive is not None and common.data_dir is not None and not places.live:
        raise Usage("--in alone searches the archive: add --live to search --data-dir, too")
    is_live = places.live or places.archive is None
    return Search(
        conditions=wanted.read(),
        archive=places.archive,
        where=common.where() if is_live else None,
        topics=Topics(topics, places.pattern),
        engine=Engine(results.engine),
        limit=results.limit or None,
        # What goes into a topic is as it was: the body is needed, whatever is shown of it.
        body=Body.FULL if results.to_topic else Body(results.body),
    )


def _print_plan(document: dict[str, object], common: Common) -> None:
    if common.as_json:
        click.echo(msgspec.json.encode(document))
        return
    for name, value in document.items():
        click.echo(f"{name}: {value}")


def _session(common: Common, wanted: Wanted) -> SparkSession:
    try:
        return common.session()
    except NoSpark as problem:
        if wanted.where is not None:
            raise
        raise NoSpark(f"{problem}; --engine local does without") from problem


def _write(page: Page, results: Results, common: Common) -> None:
    form = Format(results.form or ("jsonl" if common.as_json else "table"))
    shown = Body(results.body)
    found: Iterable[pa.RecordBatch] = page
    if results.to_topic is not None:
        from zbus.spark.search.publish import Publisher

        sent = Publisher(common.where(), results.to_topic).pass_on(page)
        found = (shortened(batch, shown) for batch in sent)
    write(found, form, results.out, shown)


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
