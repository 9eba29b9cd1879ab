"""A plan is made, and is applied.

While a plan is applied, the group of the dead-letter topic is paused, so no other client is handed
what the plan names. Then, part by part: what is named is read, compared with the plan, put where it
goes in one transaction, and done in the group. The last part tells the audit topic, too. The
transaction has the plan's token and the number of the part: what is committed is not put again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from zbus.spark import io as ends
from zbus.spark.commands import FILE, Ranged, option
from zbus.spark.dlq import groups
from zbus.spark.dlq.journal import COMMITTED, DONE, FINISHED, PART, PAUSED, Journal
from zbus.spark.dlq.letters import COUNT
from zbus.spark.dlq.plan import (
    MESSAGES_MAX,
    REDRIVES_MAX,
    Action,
    Entry,
    Letter,
    Plan,
    choose,
    confirm,
    offsets_of,
    report,
)
from zbus.spark.errors import DataLoss, LostRace, SparkProblem, Usage
from zbus.spark.etl.mapping import SINK
from zbus.spark.etl.parsing import PREFIX
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from zbus.client.blocking import BlockingClient

COUNT_MAX: Final = 10_000
"""Messages of a plan, if nothing else is said."""

PART_S: Final = 5.0
"""At a rate, that many seconds of messages are one transaction."""

_PLACES: Final = "plan_partition int, plan_offset long, plan_id string, target string, redrives int"

Emit = Callable[[str], None]


@attrs.frozen(kw_only=True)
class Chosen(Ranged):
    """Which letters are looked at."""

    topic: str | None = option("--topic TOPIC", "The dead-letter topic.")
    condition: str | None = option(
        "--where SQL", "Only these: origin, group, reason, error, fingerprint, redrives, tag, ..."
    )

    @property
    def source(self) -> str:
        """The topic. Raises Usage."""
        if self.topic is None:
            raise Usage("missing source: --topic TOPIC")
        return self.topic


@attrs.frozen(kw_only=True)
class Wanted(Chosen):
    """What a plan is to be about, or which plan is applied."""

    path: Path = option(
        "--plan FILE",
        "Write the plan to this file; with --confirm, apply it.",
        default=attrs.NOTHING,
        type=FILE,
    )
    confirm: str | None = option("--confirm TOKEN", "Apply the plan with this token.")
    group: str | None = option("--group GROUP", "Of that topic, if it has several.")
    count_max: int = option(
        "--max",
        "No more messages than that.",
        default=COUNT_MAX,
        type=click.IntRange(1, MESSAGES_MAX),
    )
    audit: str | None = option("--audit TOPIC", "Topic that records the actions.")
    rate: int | None = option(
        "--rate N", "With --confirm: limit in messages per second.", type=click.IntRange(min=1)
    )
    to: str | None = None
    redrives_max: int = REDRIVES_MAX


@attrs.frozen(kw_only=True)
class Redriven(Wanted):
    """The same of what is sent back."""

    to: str | None = option("--to TOPIC", "Where; by default each goes where it comes from.")
    redrives_max: int = option(
        "--redrives-max",
        "Leave messages that were already redriven this many times.",
        default=REDRIVES_MAX,
        type=click.IntRange(min=1),
    )


def make(
    spark: SparkSession, where: Where, wanted: Wanted, action: Action, found: DataFrame
) -> Plan:
    """A plan of what was `found` (frame of `letters`). Raises SparkProblem."""
    with where.client() as bus:
        group = groups.group_of(bus, wanted.source, wanted.group)
        open_offsets = groups.ready(bus, wanted.source, group)
        _require_targets(bus, {name for name in (wanted.to, wanted.audit) if name is not None})
    columns = found.select("partition", "offset", "id", "origin", "redrives").toLocalIterator()
    entries, left = choose(
        (Letter(*row) for row in columns),
        action,
        open_offsets=open_offsets,
        to=wanted.to,
        count_max=wanted.count_max,
        redrives_max=wanted.redrives_max,
    )
    plan = Plan(
        action=action,
        topic=wanted.source,
        group=group,
        incarnations=_incarnations(where, wanted.source),
        entries=entries,
        where=wanted.condition,
        audit=wanted.audit,
        left=left,
        made_ms=round(time.time() * 1_000),
    )
    with where.client() as bus:
        _require_targets(bus, set(plan.targets()))
    return plan


def _require_targets(bus: BlockingClient, names: set[str]) -> None:
    """Raises UnknownTopic for one that is not there."""
    for name in sorted(names):
        bus.query(name)


def _incarnations(where: Where, topic: str) -> tuple[str, ...]:
    with where.open() as log:
        return tuple(span.incarnation for span in log.spans(topic))


def apply(
    spark: SparkSession,
    where: Where,
    plan: Plan,
    path: Path,
    token: str,
    emit: Emit,
    rate: int | None = None,
) -> None:
    """Do what a plan says, or the rest of it. `rate` is in messages a second. Raises SparkProblem:
    LostRace if its messages are not there any more, or another client has them."""
    confirm(plan, token)
    journal = Journal(path)
    if journal.has(DONE):
        emit("this plan was applied before: nothing to do")
        return
    if _incarnations(where, plan.topic) != plan.incarnations:
        raise DataLoss(f"the topic {plan.topic} was removed and made again since the plan was made")
    parts = _parts(plan, journal, rate)
    try:
        with where.client() as bus:
            _pause(bus, plan, journal)
            _require_ready(bus, plan, journal, parts)
            begin_s = time.monotonic()
            for number, part in enumerate(parts):
                if not journal.has(COMMITTED, number):
                    _wait(begin_s + number * PART_S if rate else begin_s)
                    _commit(spark, where, plan, part, number, number == len(parts) - 1)
                    journal.add(COMMITTED, number)
                if not journal.has(FINISHED, number):
                    offsets = offsets_of(part)
                    groups.finish(bus, plan.topic, plan.group, offsets)
                    journal.add(FINISHED, number)
                emit(f"{number + 1} of {len(parts)} parts: {len(part):,} messages")
            if journal.has(PAUSED):
                bus.resume(plan.topic, plan.group)
    except BaseException:
        _let_go_on(where, plan, journal, len(parts), emit)
        raise
    journal.add(DONE)
    ends.forget(where, _app(plan))


def _let_go_on(where: Where, plan: Plan, journal: Journal, parts: int, emit: Emit) -> None:
    """After a failure: resume groups for which nothing was done. If something is committed and not
    finished, the group would deliver it again: it stays paused until the plan is done."""
    if not journal.has(PAUSED):
        return
    why = "the broker cannot be asked"
    try:
        with where.client() as bus:
            last = groups.last_batch(bus, _app(plan))
            committed = (n for n in range(parts) if n <= last or journal.has(COMMITTED, n))
            if all(journal.has(FINISHED, number) for number in committed):
                bus.resume(plan.topic, plan.group)
                return
            why = "part of the plan is done, and would be handed out again"
    except SparkProblem:
        pass
    emit(
        f"group {plan.group} of {plan.topic} stays paused: {why}. The same command goes on with the"
        f" plan; to give it up: zbus resume {plan.topic} {plan.group}"
    )


def _app(plan: Plan) -> str:
    """Whose transactions these are."""
    return f"dlq.{plan.token}"


def _parts(plan: Plan, journal: Journal, rate: int | None) -> list[tuple[Entry, ...]]:
    """Of a plan, as it was applied first: the journal has their numbers."""
    size = journal.number(PART)
    if size is None:
        size = max(1, len(plan.entries) if rate is None else round(rate * PART_S))
        journal.add(PART, size)
    return [plan.entries[at : at + size] for at in range(0, len(plan.entries), size)]


def _pause(bus: BlockingClient, plan: Plan, journal: Journal) -> None:
    info = [each for each in bus.query(plan.topic).groups if each.name == plan.group]
    if not info:
        raise Usage(f"{plan.topic} has no group {plan.group} any more: make a new plan")
    if not info[0].paused:
        journal.add(PAUSED)
        bus.pause(plan.topic, plan.group)


def _require_ready(
    bus: BlockingClient, plan: Plan, journal: Journal, parts: Sequence[Sequence[Entry]]
) -> None:
    """What was not committed yet is still there for us."""
    ready = groups.ready(bus, plan.topic, plan.group)
    gone = [
        entry
        for number, part in enumerate(parts)
        if not journal.has(COMMITTED, number)
        for entry in part
        if entry.offset not in ready.get(entry.partition, ())
    ]
    if not gone:
        return
    first = gone[0]
    raise LostRace(
        f"{len(gone)} messages of the plan are done by now or with a consumer, the first at offset"
        f" {first.offset} of partition {first.partition}: make a new plan"
    )


def _wait(until_s: float) -> None:
    time.sleep(max(0.0, until_s - time.monotonic()))


def _commit(
    spark: SparkSession, where: Where, plan: Plan, part: Sequence[Entry], number: int, is_last: bool
) -> None:
    frames = []
    if plan.action == "redrive":
        frames.append(again(_named(spark, where, plan, part)))
    if is_last and plan.audit is not None:
        frames.append(audit(spark, plan.audit, report(plan, round(time.time() * 1_000))))
    if not frames:
        return
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    with ends.problems():
        ends.write(rows, where, _app(plan), number)


def _named(spark: SparkSession, where: Where, plan: Plan, part: Sequence[Entry]) -> DataFrame:
    """The messages of a part of a plan. Raises DataLoss if they are others, or not there."""
    from pyspark.sql import functions as F

    there = ends.find_range(where, [plan.topic])
    rows = ends.load(spark, where, _narrowed(there, part))
    places = spark.createDataFrame([tuple(entry) for entry in part], _PLACES)
    same = (F.col("partition") == F.col("plan_partition")) & (
        F.col("offset") == F.col("plan_offset")
    )
    found = rows.join(F.broadcast(places), same)
    right = found.where(F.col("id") == F.col("plan_id")).count()
    if right != len(part):
        raise DataLoss(
            f"{len(part) - right} messages of the plan are not in {plan.topic} any more, or are"
            " others: make a new plan"
        )
    return found


def _narrowed(there: ends.Range, part: Sequence[Entry]) -> ends.Range:
    """From the first to the last that is named, in each partition."""
    starts, stops = [], []
    for span in there.spans:
        offsets = [entry.offset for entry in part if entry.partition == span.partition]
        if offsets and (min(offsets) < span.first or max(offsets) >= span.end):
            raise DataLoss(f"{span.topic} has offsets {span.first} to {span.end}: make a new plan")
        starts.append(min(offsets, default=span.first))
        stops.append(max(offsets, default=span.first - 1) + 1)
    return ends.Range(there.spans, tuple(starts), tuple(stops))


def again(found: DataFrame) -> DataFrame:
    """Dead letters as they are sent back, in order: without what they died of, and with how often
    they were. `found` has `target` and `redrives` beside the columns of a message."""
    from pyspark.sql import functions as F

    own = F.map_filter("headers", lambda name, _: ~_is_of_death(name))
    nothing = F.create_map().cast("map<string,string>")
    counted = F.create_map(F.lit(COUNT), F.col("redrives").cast("string"))
    columns = {
        "topic": F.col("target"),
        "key": F.col("key"),
        "tag": F.col("tag"),
        "id": F.col("id"),
        "headers": F.map_concat(F.coalesce(own, nothing), counted),
        "deliver_at": F.lit(None).cast("timestamp"),
        "body": F.coalesce("body", F.lit(b"")),
    }
    ordered = found.orderBy("partition", "offset")
    return ordered.select(*(columns[name].alias(name) for name in SINK))


def _is_of_death(name: Column) -> Column:
    from pyspark.sql import functions as F

    begins = F.startswith(name, F.lit("dead_")) | F.startswith(name, F.lit(PREFIX))
    return begins | (name == COUNT)


def audit(spark: SparkSession, topic: str, document: dict[str, Any]) -> DataFrame:
    """What was done, as a message."""
    from zbus.spark.etl.mapping import DDL

    body = json.dumps(document, ensure_ascii=False).encode()
    known = {"topic": topic, "key": document["topic"], "tag": document["action"], "body": body}
    return spark.createDataFrame([tuple(known.get(name) for name in SINK)], DDL)
