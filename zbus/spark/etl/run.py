"""An etl job, as a range or as a stream.

Into topics, results and bad rows are one frame, which the sink writes in one transaction. Into
files, each batch is a directory, and its bad rows a transaction before that; both are there once,
however often Spark does the batch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import attrs

from zbus.spark import io as ends
from zbus.spark.errors import Unverified
from zbus.spark.etl import files, history, mapping, query
from zbus.spark.etl.counting import Counts
from zbus.spark.etl.following import batches
from zbus.spark.etl.job import Job
from zbus.spark.source.location import Where
from zbus.spark.source.planning import read_offsets
from zbus.spark.times import between_ms

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

_RESULT: Final = "_result"
_BAD: Final = "_bad"

Emit = Callable[[str], None]


@attrs.frozen
class Done:
    """What a job has done."""

    counts: Counts
    batches: int
    problems: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"batches": self.batches, **self.counts.document(), "problems": list(self.problems)}

    def require_whole(self) -> None:
        """Raises Unverified."""
        if self.problems:
            raise Unverified("; ".join(self.problems))


def require(where: Where, job: Job, sink: Where | None = None) -> None:
    """All topics are there: it is asked before a session begins. Raises SparkProblem."""
    ends.require(where, job.sources)
    if job.targets:
        ends.require_targets(sink or where, job.targets)


def run(
    spark: SparkSession, where: Where, job: Job, name: str, emit: Emit, sink: Where | None = None
) -> Done:
    """Do it. Topics are read from `where`, and written to `sink`, or there. Raises
    SparkProblem."""
    do = _batch if job.checkpoint is None else _stream
    with ends.problems():
        return do(spark, where, sink or where, job, name, emit)


def check(spark: SparkSession, where: Where, job: Job, name: str) -> Any:  # noqa: ANN401 - JSON
    """What would be done, without doing it: the columns of the results. Raises Usage."""
    found = _range(where, job)
    outcome = query.apply(spark, ends.load(spark, where, found), job, name, _uncounted)
    written = outcome.results if job.files else mapping.messages(outcome.results, job.to)
    return {
        "messages": found.messages,
        "topics": found.topics,
        "columns": dict(outcome.results.dtypes),
        "written": written.columns,
        "by_row": outcome.by_row,
    }


# -- a range --------------------------------------------------------------------------------------


def _range(where: Where, job: Job) -> ends.Range:
    return ends.find_range(where, job.sources, *between_ms(job.since, job.until))


def _batch(spark: SparkSession, where: Where, sink: Where, job: Job, name: str, emit: Emit) -> Done:
    observations: dict[str, Observation] = {}

    def observe(rows: DataFrame, what: str, *columns: Column) -> DataFrame:
        from pyspark.sql import Observation

        observations[what] = Observation(what)
        return rows.observe(observations[what], *columns)

    found = _range(where, job)
    outcome = query.apply(spark, ends.load(spark, where, found), job, name, observe)
    if job.files is None:
        ends.write(_one_frame(outcome, job), sink)
    else:
        files.check(outcome.results.columns)
        if outcome.bad is not None:
            ends.write(outcome.bad, sink)
        files.write(spark, job.files, uuid.uuid4().hex[:8], 0, outcome.results)
    metrics = {what: row for what, each in observations.items() if (row := _row_of(each))}
    counts = query.counts_of(metrics, outcome.by_row, found.messages, outcome.bad is not None)
    emit(str(counts))
    return Done(counts, 1, tuple(counts.problems()))


def _row_of(observation: Observation) -> dict[str, Any] | None:
    """What was observed; None if Spark has left it out of the plan."""
    from py4j.protocol import Py4JJavaError

    try:
        return observation.get
    except Py4JJavaError:
        return None


def _one_frame(outcome: query.Outcome, job: Job) -> DataFrame:
    """Results and bad rows as messages."""
    written = mapping.messages(outcome.results, job.to)
    return written if outcome.bad is None else written.unionByName(outcome.bad)


# -- a stream -------------------------------------------------------------------------------------


def _stream(
    spark: SparkSession, where: Where, sink: Where, job: Job, name: str, emit: Emit
) -> Done:
    assert job.checkpoint is not None
    first = history.first(spark, job.checkpoint, where, job.sources, job.since)
    options = {**first.options(), **job.source_options()}
    rows = ends.load_stream(spark, where, job.sources, options)
    outcome = query.apply(spark, rows, job, name, _observed)
    if job.files is None:
        frame = _one_frame(outcome, job)
    else:
        files.check(outcome.results.columns)
        frame = _marked(outcome)
    history.agree(spark, job.checkpoint, query.facts(job), first, job.allow_change)
    writer = job.writer(frame, name).outputMode(job.mode)
    if job.files is None and job.mode == "append":
        started = writer.format(ends.FORMAT).options(**ends.where_options(sink)).start()
    else:  # Spark has no streams that update what Python writes
        each = _Batch(spark, sink, job.files, job.checkpoint, outcome.bad is not None)
        started = writer.foreachBatch(each).start()
    return _followed(batches(started, where, job.group), outcome, emit)


def _observed(rows: DataFrame, what: str, *columns: Column) -> DataFrame:
    return rows.observe(what, *columns)


def _uncounted(rows: DataFrame, _what: str, *_columns: Column) -> DataFrame:
    return rows


def _marked(outcome: query.Outcome) -> DataFrame:
    """Results and bad rows as one frame, a struct each."""
    from pyspark.sql import functions as F

    results = outcome.results.select(F.struct("*").alias(_RESULT))
    if outcome.bad is None:
        return results
    bad = outcome.bad.select(F.struct("*").alias(_BAD))
    return results.unionByName(bad, allowMissingColumns=True)


@attrs.frozen
class _Batch:
    """What is done with a batch of messages, or of `_marked` for files."""

    spark: SparkSession
    sink: Where
    root: str | None  # of files
    checkpoint: str
    has_bad: bool

    def __call__(self, rows: DataFrame, batch: int) -> None:
        query_id = history.query_id(self.spark, self.checkpoint)
        own = history.digest({"query": query_id})[:8]
        if self.root is None:
            ends.write(rows, self.sink, f"etl.{query_id}", batch)
            return
        if not self.has_bad:
            files.write(self.spark, self.root, own, batch, rows.select(f"{_RESULT}.*"))
            return
        kept = rows.persist()
        try:
            bad = kept.where(f"{_BAD} is not null").select(f"{_BAD}.*")
            ends.write(bad, self.sink, f"etl.{query_id}", batch)
            results = kept.where(f"{_RESULT} is not null").select(f"{_RESULT}.*")
            files.write(self.spark, self.root, own, batch, results)
        finally:
            kept.unpersist()


def _followed(found: Generator[Any, None, None], outcome: query.Outcome, emit: Emit) -> Done:
    """Wait for the end, and judge each batch when it is done: one that is not whole is the last."""
    total, count, problems = Counts(offsets=0, by_row=outcome.by_row), 0, []
    with closing(found) as progresses:
        for progress in progresses:
            counts = _counts(progress, outcome)
            count += 1
            total += counts
            about = f"batch {progress.batchId}"
            problems += [f"{about}: {problem}" for problem in counts.problems()]
            emit("; ".join([f"{about}: {counts}", *problems]))
            if problems:
                break
    if count > 1:
        emit(f"{count:,} batches: {total}")
    return Done(total, count, tuple(problems))


def _counts(progress: Any, outcome: query.Outcome) -> Counts:  # noqa: ANN401 - of Spark
    metrics = {name: row.asDict() for name, row in progress.observedMetrics.items()}
    offsets = _read_between(progress.sources[0].startOffset, progress.sources[0].endOffset)
    counts = query.counts_of(metrics, outcome.by_row, offsets, outcome.bad is not None)
    late = sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
    return attrs.evolve(counts, late=late)


def _read_between(start: Any, end: Any) -> int | None:  # noqa: ANN401 - of Spark
    """How many messages are between two positions of a source; None if it is not said."""
    both_offsets = _decoded(start), _decoded(end)
    if None in both_offsets:
        return None  # the first batch of a checkpoint
    before, after = (read_offsets(each) for each in both_offsets)
    total = 0
    for topic, (incarnation, stops) in after.items():
        known, begins = before.get(topic, ("", []))
        if known != incarnation or len(begins) != len(stops):
            return None
        total += sum(stops) - sum(begins)
    return total


def _decoded(both_offsets: Any) -> Any:  # noqa: ANN401 - text or JSON, as the version of Spark has it
    return json.loads(both_offsets) if isinstance(both_offsets, str) else both_offsets
