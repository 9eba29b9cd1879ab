"""`zbus spark dlq`: what died, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zbus.spark import io as ends
from zbus.spark.commands import Common, common_options, emit, range_options, show
from zbus.spark.dlq.plan import MESSAGES_MAX, REDRIVES_MAX, Action, Plan, read, write
from zbus.spark.dlq.plan import confirm as require_token
from zbus.spark.errors import Usage
from zbus.spark.times import between_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = TypeVar("Function", bound=Callable[..., Any])

COUNT_MAX = 10_000

_OF_PLANS = {
    "since": "--since",
    "until": "--until",
    "condition": "--where",
    "group": "--group",
    "to": "--to",
    "audit": "--audit",
    "count_max": "--max",
    "redrives_max": "--redrives-max",
}


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
    from zbus.spark.dlq.letters import letters

    between = between_ms(since, until)
    ends.require(common.where(), [_named(topic)])
    found = ends.find_range(common.where(), [_named(topic)], *between)
    rows = letters(ends.load(common.session(), common.where(), found))
    try:
        return rows if condition is None else rows.where(condition)
    except Exception as error:
        raise ends.problem_of(error, "--where") from error


def _named(topic: str | None) -> str:
    """Raises Usage."""
    if topic is None:
        raise Usage("missing source: --topic TOPIC")
    return topic


@dlq.command()
@_chosen
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an HTML page, too.",
)
@click.option("--show-bodies", is_flag=True, help="The first bytes of samples, too.")
@common_options
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
    if out is not None and not common.dry_run:
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
            help="With --confirm: limit in messages per second."),
        click.option("--audit", metavar="TOPIC", help="Topic that records the actions."),
        click.option("--max", "count_max", type=click.IntRange(1, MESSAGES_MAX),
            default=COUNT_MAX, show_default=True, help="No more messages than that."),
        click.option("--group", metavar="GROUP", help="Of that topic, if it has several."),
        click.option("--confirm", metavar="TOKEN", help="Apply the plan with this token."),
        click.option("--plan", "path", required=True, metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the plan to this file; with --confirm, apply it."),
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
    help="Leave messages that were already redriven this many times.",
)
@common_options
def redrive(common: Common, **options: Any) -> None:  # noqa: ANN401 - options
    """Send dead letters back, in two steps."""
    _act(common, "redrive", **options)


@dlq.command()
@_planned
@common_options
def drop(common: Common, **options: Any) -> None:  # noqa: ANN401 - options
    """Drop dead letters, in two steps."""
    _act(common, "drop", to=None, redrives_max=REDRIVES_MAX, **options)


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

    ends.require_new(out, "--out")
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
    from zbus.spark.dlq import apply, groups

    if common.data_dir is not None:
        raise Usage(f"dlq {action} is done in a broker: leave --data-dir out")
    if confirm is not None:
        plan = read(path)
        if plan.action != action:
            raise Usage(f"{path} is a plan to {plan.action}, and not to {action}")
        _require_nothing_else(topic, plan)
        require_token(plan, confirm)
        if not common.dry_run:
            apply.apply(common.session(), common.where(), plan, path, confirm, emit, rate)
        _print(plan, common, done=not common.dry_run)
        return
    if rate is not None:
        raise Usage("--rate belongs to --confirm TOKEN: a plan is only written")
    if path.exists() and not common.dry_run:
        raise Usage(f"the plan file {path} exists already: name another one")
    ends.require(common.where(), [_named(topic)])
    with groups.client(common.where()) as bus:
        groups.group_of(bus, _named(topic), group)
    found = _letters(common, topic, since, until, condition)
    wanted = apply.Wanted(
        topic=_named(topic),
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
    _print(plan, common, done=False)
    if not common.as_json and not common.dry_run:
        click.echo(f"to do it: zbus spark dlq {action} --plan {path} --confirm {plan.token}")


def _require_nothing_else(topic: str | None, plan: Plan) -> None:
    """A plan is done as it is: what would change it is refused. Raises Usage."""
    if topic is not None and topic.lower() != plan.topic.lower():
        raise Usage(f"the plan is of {plan.topic}, and not of {topic}")
    context = click.get_current_context()
    for name, option in _OF_PLANS.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise Usage(f"{option} is said when a plan is made: this one is done as it is")


def _print(plan: Plan, common: Common, done: bool) -> None:
    targets = dict(sorted(plan.targets().items()))
    document = {"action": plan.action, "done": done, "messages": len(plan.entries)}
    show({**document, "targets": targets, "left": dict(plan.left), "token": plan.token}, common)
