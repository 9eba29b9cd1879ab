"""A replay is planned, and is written slice by slice.

What is replayed gets its bounds first. With `--checkpoint` the plan is kept there, and the same
command goes on where it was after a crash: each slice is a transaction that has the run and its
number.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import click

from zbus.spark import io as ends
from zbus.spark.commands import Ranged, option, options_of
from zbus.spark.errors import SparkProblem, UnknownTopic, Usage
from zbus.spark.logs import Span
from zbus.spark.replay import frames
from zbus.spark.replay.pacing import Slice, bucket_ms, check_targets, cut, due_s, parse_speed
from zbus.spark.source.location import Where
from zbus.spark.times import between_ms, bytes_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Emit = Callable[[str], None]
PLAN = "zbus-replay.json"
PUSHED = "spark.sql.python.filterPushdown.enabled"


@attrs.frozen(kw_only=True)
class Wanted(Ranged):
    """What is replayed, and how."""

    source: str = option(
        "--from DIR|TOPIC",
        "The directory of an archive, with a slash in it, or a topic.",
        default=attrs.NOTHING,
    )
    to: str = option(
        "--to TOPIC",
        "Where; {topic} is the topic that a message is of: '{topic}-replay'.",
        default=attrs.NOTHING,
    )
    names: str | None = option("--topics A,B", "Of an archive only these topics.")
    where: str | None = option("--where SQL", "Only rows that fulfil this.")
    keep_time: bool = option(
        "--keep-time", "What was delayed waits for its own time again.", default=False
    )
    speed_text: str = option(
        "--speed 10x|max", "Replay at the original pace, sped up by this factor.", default="max"
    )
    rate_text: str | None = option("--rate BYTES/s", "No more than that a second.")
    dedupe_id: bool = option(
        "--dedupe-id", "Of messages with one id only the first.", default=False
    )
    limit: int | None = option("--limit", "No more messages than that.", type=click.IntRange(min=1))
    force: bool = option("--force", "Even into the topic that they are of.", default=False)

    def check(self) -> Wanted:
        """Itself. Raises Usage."""
        if self.topics and not self.is_archive:
            raise Usage("--topics is of an archive: --from names the topic")
        between_ms(self.since, self.until)
        _ = self.speed, self.rate  # which raise it, too
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(name for name in (self.names or "").split(",") if name)

    @property
    def speed(self) -> float | None:
        return parse_speed(self.speed_text)

    @property
    def rate(self) -> int | None:
        return None if self.rate_text is None else bytes_s(self.rate_text)

    @property
    def is_archive(self) -> bool:
        """Names of topics have no slash."""
        return "/" in self.source


@attrs.frozen(kw_only=True)
class Kept:
    checkpoint: str | None = option(
        "--checkpoint DIR",
        "Keep the plan in this file, so that the same command resumes after a crash.",
    )


@attrs.frozen(kw_only=True)
class Plan:
    """What was found when a replay began."""

    run: str
    wanted: dict[str, Any]
    since_ms: int | None
    until_ms: int | None
    spans: list[list[Any]]  # of a topic: span, start, stop
    version: int | None  # of an archive
    messages: int
    bytes: int
    slices: list[Slice]


def require(
    where: Where, wanted: Wanted, sink: Where | None = None, checkpoint: str | None = None
) -> None:
    """All that is named is there: it is asked before a session begins. Raises SparkProblem."""
    _kept(checkpoint, wanted)
    if wanted.is_archive:
        from zbus.spark.archive.table import Archive

        archive = Archive(wanted.source)
        for topic in wanted.topics:
            archive.files(topic)
        there = list(wanted.topics) or archive.topics()
    else:
        try:
            there = ends.require(where, [wanted.source]).topics
        except UnknownTopic as error:
            if Path(wanted.source).is_dir():
                text = f"{error}; the directory of an archive has a slash: ./{wanted.source}"
                raise UnknownTopic(text) from error
            raise
    if wanted.where is None:  # else the topics of the messages are not known yet
        targets = check_targets(wanted.to, there, wanted.force)
        ends.require_targets(sink or where, targets.values())


def run(
    spark: SparkSession,
    where: Where,
    wanted: Wanted,
    emit: Emit,
    checkpoint: str | None = None,
    *,
    dry_run: bool = False,
    sink: Where | None = None,
) -> Plan:
    """Do it, or the rest of it. Topics are read from `where`, and written to `sink`, or there.
    Raises SparkProblem."""
    sink = sink or where
    try:
        with pushing(spark):
            plan = _kept(checkpoint, wanted)
            bounds = _bounds(where, wanted) if plan is None else _bounds_of(plan)
            rows = _rows(spark, where, wanted, bounds)
            there = bounds.found.topics if bounds.found is not None else frames.topics_of(rows)
            ends.require_targets(sink, check_targets(wanted.to, there, wanted.force).values())
            if plan is None:
                plan = _plan(rows, wanted, bounds)
                _keep(checkpoint, plan, dry_run)
            emit(f"run {plan.run}: {plan.messages:,} messages, {len(plan.slices)} slices")
            if not dry_run:
                _write(rows, sink, wanted, plan, emit)
                if checkpoint is None:
                    ends.forget(sink, _app(plan))
    except SparkProblem:
        raise
    except Exception as error:
        raise ends.problem_of(error) from error
    return plan


@contextmanager
def pushing(spark: SparkSession) -> Iterator[None]:
    """Meanwhile conditions are left to the source: a slice does not read what is of others."""
    before = spark.conf.get(PUSHED, "false")
    spark.conf.set(PUSHED, "true")
    try:
        yield
    finally:
        spark.conf.set(PUSHED, str(before))


class _Bounds(NamedTuple):
    """Of what is replayed: a range of a topic, or a version of an archive."""

    since_ms: int | None
    until_ms: int | None
    found: ends.Range | None
    version: int | None = None


def _bounds(where: Where, wanted: Wanted) -> _Bounds:
    since_ms, until_ms = between_ms(wanted.since, wanted.until)
    if not wanted.is_archive:
        found = ends.find_range(where, [wanted.source], since_ms, until_ms)
        return _Bounds(since_ms, until_ms, found)
    from zbus.spark.archive.table import Archive

    return _Bounds(since_ms, until_ms, None, Archive(wanted.source).version)


def _rows(spark: SparkSession, where: Where, wanted: Wanted, bounds: _Bounds) -> DataFrame:
    if bounds.found is not None:
        rows = ends.load(spark, where, bounds.found)
    else:
        from zbus.spark.archive.spark import open_archive

        rows = open_archive(spark, wanted.source, bounds.version, wanted.topics)
    return frames.chosen(
        rows,
        since_ms=bounds.since_ms,
        until_ms=bounds.until_ms,
        where=wanted.where,
        dedupe_id=wanted.dedupe_id,
        limit=wanted.limit,
    )


def _plan(rows: DataFrame, wanted: Wanted, bounds: _Bounds) -> Plan:
    times = frames.times(rows)
    slices: list[Slice] = []
    messages = size = 0
    if times is not None:
        messages, size, first_ms, last_ms = times
        slices = [Slice(first_ms, last_ms + 1, messages, size)]
        if wanted.speed is not None or wanted.rate is not None:
            width_ms = bucket_ms(first_ms, last_ms)
            buckets = frames.buckets(rows, width_ms)
            slices = cut(buckets, width_ms, wanted.speed, wanted.rate)
    found = bounds.found
    spans = [] if found is None else list(zip(found.spans, found.starts, found.stops, strict=True))
    return Plan(
        run=str(uuid.uuid4()),
        wanted=attrs.asdict(wanted),
        since_ms=bounds.since_ms,
        until_ms=bounds.until_ms,
        spans=[[list(span), start, stop] for span, start, stop in spans],
        version=bounds.version,
        messages=messages,
        bytes=size,
        slices=slices,
    )


def _write(rows: DataFrame, sink: Where, wanted: Wanted, plan: Plan, emit: Emit) -> None:
    begin_s = time.monotonic()
    written = 0
    for number, due in enumerate(due_s(plan.slices, wanted.speed, wanted.rate)):
        time.sleep(max(0.0, begin_s + due - time.monotonic()))
        one = plan.slices[number]
        some = rows if len(plan.slices) == 1 else frames.of_slice(rows, one)
        result = frames.messages(some, wanted.to, plan.run, wanted.keep_time)
        ends.write(result, sink, _app(plan), number)
        written += one.messages
        emit(f"{written:,} of {plan.messages:,} messages")


def _app(plan: Plan) -> str:
    return f"replay.{plan.run}"


# -- what is kept ---------------------------------------------------------------------------------


def _keep(checkpoint: str | None, plan: Plan, dry_run: bool) -> None:
    if checkpoint is None or dry_run:
        return
    path = Path(checkpoint, PLAN)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(attrs.asdict(plan, recurse=False), indent=1), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise Usage(f"--checkpoint {checkpoint} cannot be written: {error}") from error


def _kept(checkpoint: str | None, wanted: Wanted) -> Plan | None:
    """Raises Usage if another replay was begun there."""
    if checkpoint is None:
        return None
    path = Path(checkpoint, PLAN)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["slices"] = [Slice(*one) for one in document["slices"]]
        plan = Plan(**document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Usage(f"{path} cannot be read: {error}") from error
    now = json.loads(json.dumps(attrs.asdict(wanted)))
    flags = options_of(Wanted)
    changed = sorted(flags[name] for name in now if now[name] != plan.wanted.get(name))
    if changed:
        names = ", ".join(changed)
        raise Usage(f"--checkpoint {checkpoint} is of another replay ({names}): take a new one")
    return plan


def _bounds_of(plan: Plan) -> _Bounds:
    found = None
    if plan.spans:
        spans = tuple(Span(*span) for span, _, _ in plan.spans)
        starts, stops = ([each[at] for each in plan.spans] for at in (1, 2))
        found = ends.Range(spans, tuple(starts), tuple(stops))
    return _Bounds(plan.since_ms, plan.until_ms, found, plan.version)
