"""`zbus spark dlq`: what died, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click
from click.core import ParameterSource

from zbus.spark import io as ends
from zbus.spark.commands import FILE, Common, emit, option, options_of, show, takes
from zbus.spark.dlq.apply import Chosen, Redriven, Wanted
from zbus.spark.dlq.plan import Action, Plan, read, write
from zbus.spark.dlq.plan import confirm as require_token
from zbus.spark.errors import Usage
from zbus.spark.page import write as write_page
from zbus.spark.times import between_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_CONFIRMING = ("path", "confirm", "topic", "rate")
"""What is said when a plan is applied. The rest belongs to the plan."""


@attrs.frozen(kw_only=True)
class Reported(Chosen):
    """What a report is about, and where it goes."""

    out: Path | None = option("--out FILE", "Write an HTML page, too.", type=FILE)
    show_bodies: bool = option("--show-bodies", "The first bytes of samples, too.", default=False)


@attrs.frozen(kw_only=True)
class Exported(Chosen):
    """What is exported, and where it goes."""

    out: str = option("--out DIR", "Parquet files are written there.", default=attrs.NOTHING)


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back or drop them, in two steps.

    `redrive` and `drop` write a plan with the exact messages; the same command with --plan and
    --confirm does what it says, once.
    """


def _letters(common: Common, chosen: Chosen) -> DataFrame:
    from zbus.spark.dlq.letters import letters

    between = between_ms(chosen.since, chosen.until)
    ends.require(common.where(), [chosen.source])
    found = ends.find_range(common.where(), [chosen.source], *between)
    rows = letters(ends.load(common.session(), common.where(), found))
    with ends.problems("--where"):
        return rows if chosen.condition is None else rows.where(chosen.condition)


@dlq.command()
@takes(Reported)
def report(common: Common, wanted: Reported) -> None:
    """Group dead letters by where they come from and why they died."""
    from zbus.spark.dlq import letters, page

    summary = letters.summary(_letters(common, wanted), 200 * wanted.show_bodies)
    groups = summary.toArrow().to_pylist()
    if wanted.out is not None and not common.dry_run:
        write_page(page.page(wanted.source, groups), wanted.out)
    if common.as_json:
        show(groups, common)
        return
    for line in page.lines(wanted.source, groups):
        click.echo(line)


@dlq.command()
@takes(Redriven)
def redrive(common: Common, wanted: Redriven) -> None:
    """Send dead letters back, in two steps."""
    _act(common, "redrive", wanted)


@dlq.command()
@takes(Wanted)
def drop(common: Common, wanted: Wanted) -> None:
    """Drop dead letters, in two steps."""
    _act(common, "drop", wanted)


@dlq.command()
@takes(Exported)
def export(common: Common, wanted: Exported) -> None:
    """Write dead letters with what is known of them as Parquet files."""
    ends.require_new(wanted.out, "--out")
    found = _letters(common, wanted)
    if common.dry_run:
        show({"messages": found.count()}, common)
        return
    with ends.problems():
        found.write.mode("errorifexists").parquet(wanted.out)
    count = common.session().read.parquet(wanted.out).count()
    show({"messages": count, "out": wanted.out}, common)


def _act(common: Common, action: Action, wanted: Wanted) -> None:
    from zbus.spark.dlq import apply, groups

    where, path = common.where(), wanted.path
    if common.data_dir is not None:
        raise Usage(f"dlq {action} is done in a broker: leave --data-dir out")
    if wanted.confirm is not None:
        plan = read(path)
        if plan.action != action:
            raise Usage(f"{path} is a plan to {plan.action}, and not to {action}")
        _require_nothing_else(wanted, plan)
        require_token(plan, wanted.confirm)
        if not common.dry_run:
            token, rate = wanted.confirm, wanted.rate
            apply.apply(common.session(), where, plan, path, token, emit, rate)
        _print(plan, common, done=not common.dry_run)
        return
    if wanted.rate is not None:
        raise Usage("--rate belongs to --confirm TOKEN: a plan is only written")
    if path.exists() and not common.dry_run:
        raise Usage(f"the plan file {path} exists already: name another one")
    ends.require(where, [wanted.source])
    with where.client() as bus:
        groups.group_of(bus, wanted.source, wanted.group)
    found = _letters(common, wanted)
    plan = apply.make(common.session(), where, wanted, action, found)
    if not common.dry_run:
        write(plan, path)
    _print(plan, common, done=False)
    if not common.as_json and not common.dry_run:
        click.echo(f"to do it: zbus spark dlq {action} --plan {path} --confirm {plan.token}")


def _require_nothing_else(wanted: Wanted, plan: Plan) -> None:
    """A plan is done as it is: what would change it is refused. Raises Usage."""
    if wanted.topic is not None and wanted.topic.lower() != plan.topic.lower():
        raise Usage(f"the plan is of {plan.topic}, and not of {wanted.topic}")
    context = click.get_current_context()
    for name, flag in options_of(type(wanted)).items():
        said = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if said and name not in _OF_CONFIRMING:
            raise Usage(f"{flag} is said when a plan is made: this one is done as it is")


def _print(plan: Plan, common: Common, done: bool) -> None:
    targets = dict(sorted(plan.targets().items()))
    document = {"action": plan.action, "done": done, "messages": len(plan.entries)}
    show({**document, "targets": targets, "left": dict(plan.left), "token": plan.token}, common)
