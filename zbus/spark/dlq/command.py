"""`zbus spark dlq`: what died, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zbus.spark.commands import Common, common_options, range_options, say, show
from zbus.spark.dlq.plan import REDRIVES_MAX, Action, Plan, read, write
from zbus.spark.errors import Usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = TypeVar("Function", bound=Callable[..., Any])

COUNT_MAX = 10_000


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back or drop them, in two steps.

    `redrive` and `drop` write a plan with the exact messages; the same command with --plan and
    --confirm does what it says, once.
    """


def _chosen(function: Function) -> Function:
    for option in (
        click.option("--where", "condition", metavar="SQL",
            help="Only these: origin, group, reason, error, fingerprint, redrives, tag, ..."),
        range_options,
        click.option("--topic", metavar="TOPIC", help="The dead-letter topic."),
    ):  # fmt: skip
        function = option(function)
    return function


def _letters(
    common: Common, topic: str | None, since: str | None, until: str | None, condition: str | None
) -> DataFrame:
    from zbus.spark import ends
    from zbus.spark.dlq.letters import letters

    if topic is None:
        raise Usage("say which dead letters: --topic TOPIC")
    since_ms = None if since is None else ends.time_ms(since, "--since")
    until_ms = None if until is None else ends.time_ms(until, "--until")
    found = ends.find_range(common.where(), [topic], since_ms, until_ms)
    rows = letters(ends.load(common.session(), common.where(), found))
    try:
        return rows if condition is None else rows.where(condition)
    except Exception as error:
        raise ends.problem_of(error, "--where") from error


@dlq.command()
@_chosen
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an HTML page, too.",
)
@click.option("--show-bodies", is_flag=True, help="The first bytes of samples, too.")
@common_options  # fmt: skip
def report(
    common: Common,
    topic: str | None,
    since: str | None,
    until: str | None,
    condition: str | None,
    out: Path | None,
    show_bodies: bool,
) -> None:
    """Group dead letters by where they come from and why they died."""
    from zbus.spark.dlq import letters, page

    found = _letters(common, topic, since, until, condition)
    rows = [
        row.asDict(recursive=True) for row in letters.summary(found, 200 * show_bodies).collect()
    ]
    document = page.document(rows)
    if out is not None:
        try:
            out.write_text(page.page(str(topic), document), encoding="utf-8")
        except OSError as error:
            raise Usage(f"--out {out} cannot be written: {error}") from error
    if common.as_json:
        show(document, common)
        return
    for line in page.lines(str(topic), document):
        click.echo(line)


def _planned(function: Function) -> Function:
    for option in (
        click.option("--rate", type=click.IntRange(min=1), metavar="N",
            help="No more than so many messages a second."),
        click.option("--audit", metavar="TOPIC", help="A topic that is told what was done."),
        click.option("--max", "count_max", type=click.IntRange(min=1), default=COUNT_MAX,
            show_default=True, help="No more messages than that."),
        click.option("--group", metavar="GROUP", help="Of that topic, if it has several."),
        click.option("--confirm", metavar="TOKEN", help="Do what the plan with this token says."),
        click.option("--plan", "path", required=True, metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write a plan there; with --confirm, do what it says."),
    ):  # fmt: skip
        function = option(function)
    return _chosen(function)


@dlq.command()
@_planned
@click.option("--to", metavar="TOPIC", help="Where; by default each goes where it comes from.")
@click.option(
    "--redrives-max",
    type=click.IntRange(min=1),
    default=REDRIVES_MAX,
    show_default=True,
    help="What was sent back so often stays.",
)
@common_options  # fmt: skip
def redrive(common: Common, **said: Any) -> None:  # noqa: ANN401 - options
    """Send dead letters back, in two steps."""
    _act(common, "redrive", **said)


@dlq.command()
@_planned
@common_options
def drop(common: Common, **said: Any) -> None:  # noqa: ANN401 - options
    """Drop dead letters, in two steps."""
    _act(common, "drop", to=None, redrives_max=REDRIVES_MAX, **said)


@dlq.command()
@_chosen
@click.option("--out", required=True, metavar="DIR", help="Parquet files are written there.")
@common_options
def export(
    common: Common,
    topic: str | None,
    since: str | None,
    until: str | None,
    condition: str | None,
    out: str,
) -> None:
    """Write dead letters with what is known of them as Parquet files."""
    from zbus.spark import ends

    found = _letters(common, topic, since, until, condition)
    if common.dry_run:
        show({"messages": found.count()}, common)
        return
    try:
        found.write.mode("errorifexists").parquet(out)
    except Exception as error:
        raise ends.problem_of(error) from error
    show({"messages": common.session().read.parquet(out).count(), "out": out}, common)


def _act(
    common: Common,
    action: Action,
    *,
    path: Path,
    confirm: str | None,
    topic: str | None,
    since: str | None,
    until: str | None,
    condition: str | None,
    group: str | None,
    to: str | None,
    audit: str | None,
    count_max: int,
    redrives_max: int,
    rate: int | None,
) -> None:
    from zbus.spark.dlq import apply

    if confirm is not None:
        plan = read(path)
        if plan.action != action:
            raise Usage(f"{path} is a plan to {plan.action}, and not to {action}")
        if not common.dry_run:
            apply.apply(common.session(), common.where(), plan, path, confirm, say, rate)
        _tell(plan, common, done=not common.dry_run)
        return
    found = _letters(common, topic, since, until, condition)
    wanted = apply.Wanted(
        topic=str(topic),
        group=group,
        where=condition,
        to=to,
        audit=audit,
        count_max=count_max,
        redrives_max=redrives_max,
    )
    plan = apply.make(common.session(), common.where(), wanted, action, found)
    if not common.dry_run:
        write(plan, path)
    _tell(plan, common, done=False)
    if not common.as_json and not common.dry_run:
        click.echo(f"to do it: zbus spark dlq {action} --plan {path} --confirm {plan.token}")


def _tell(plan: Plan, common: Common, done: bool) -> None:
    targets = dict(sorted(plan.targets().items()))
    document = {"action": plan.action, "done": done, "messages": len(plan.entries)}
    show({**document, "targets": targets, "left": dict(plan.left), "token": plan.token}, common)
