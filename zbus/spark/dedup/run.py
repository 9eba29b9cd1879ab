"""Duplicates are found in a range, or kept out of a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import attrs

from zbus.spark import io as ends
from zbus.spark.commands import option
from zbus.spark.dedup import frames
from zbus.spark.errors import Unverified, refuse
from zbus.spark.etl import history, mapping
from zbus.spark.etl.following import batches
from zbus.spark.etl.pace import Pace
from zbus.spark.source.location import Where
from zbus.spark.times import between_ms, duration_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORE: Final = "spark.sql.streaming.stateStore.providerClass"

_WINDOW_MS_MAX: Final = (1 << 40) - 1  # of the option `inStep`

Emit = Callable[[str], None]


@attrs.frozen(kw_only=True)
class Wanted(Pace):
    """What is looked at, and what becomes of it."""

    sources: tuple[str, ...] = option("--from TOPIC", "Read it; may be repeated.", default=())
    by: str = option(
        "--by COLUMNS",
        "What makes two messages the same, with commas: id, key, tag, body_hash, header.NAME.",
        default="id",
    )
    to: str | None = option("--to TOPIC", "Topic that receives the messages without duplicates.")
    table: str | None = option("--table DIR", "Write the table of duplicates as Parquet files.")
    window: str = option(
        "--window TIME", "Of a stream: how long a message is remembered.", default="24h"
    )

    def check(self) -> Wanted:
        """Itself. Raises Usage."""
        streams = self.checkpoint is not None
        loops = [name for name in self.sources if self.to and name.lower() == self.to.lower()]
        refuse(
            [
                (not self.sources, "missing source: --from TOPIC"),
                (bool(loops), f"{', '.join(loops)} would be read and written"),
                (streams and self.to is None, "a stream needs --to TOPIC"),
                (
                    streams and self.table is not None,
                    "--table is of a range: leave --checkpoint out",
                ),
            ]
        )
        self.check_pace()
        duration_ms(self.window, "--window")
        frames.parse_by(self.by)
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of `by`. Raises Usage."""
        return frames.parse_by(self.by)


NO_STREAM: Final[dict[str, Any]] = {
    each.name: each.default for each in attrs.fields(Pace) if each.name not in ("since", "until")
}
"""What makes a range of it."""


def require(where: Where, wanted: Wanted, sink: Where | None = None) -> None:
    """All that is named is there, or is not: asked before a session begins. Raises SparkProblem."""
    if wanted.table is not None:
        ends.require_new(wanted.table, "--table")
    ends.require(where, wanted.sources)
    if wanted.to is not None:
        ends.require_targets(sink or where, [wanted.to])


def run(
    spark: SparkSession,
    where: Where,
    wanted: Wanted,
    name: str,
    emit: Emit,
    sink: Where | None = None,
) -> dict[str, Any]:
    """Do it; what was found, as JSON has it. Raises SparkProblem."""
    wanted.check()
    with ends.problems():
        if wanted.checkpoint is None:
            return _range(spark, where, sink or where, wanted, emit)
        return _stream(spark, where, sink or where, wanted, name, emit)


def _range(
    spark: SparkSession, where: Where, sink: Where, wanted: Wanted, emit: Emit
) -> dict[str, Any]:
    from pyspark.sql import functions as F

    there = ends.find_range(where, wanted.sources, *between_ms(wanted.since, wanted.until))
    rows = ends.load(spark, where, there)
    found = frames.duplicates(rows, wanted.columns).persist()
    try:
        sums = found.agg(F.count(F.lit(1)), F.sum(F.col("count") - 1), F.max("gap_ms")).collect()[0]
        known, dropped, gap_ms = sums[0], sums[1] or 0, sums[2]
        emit(f"{there.messages:,} messages, {known:,} of them more than once, {dropped:,} too many")
        if wanted.table is not None:
            found.write.mode("errorifexists").parquet(wanted.table)
        if wanted.to is not None:
            left = frames.clean(rows, found).orderBy("topic", "partition", "offset")
            ends.write(messages(left, wanted.to), sink)
    finally:
        found.unpersist()
    return {
        "messages": there.messages,
        "repeated": known,
        "dropped": dropped,
        "longest_gap_ms": gap_ms,
        "written": there.messages - dropped if wanted.to is not None else 0,
    }


def messages(rows: DataFrame, to: str) -> DataFrame:
    """As the sink is given them: as they were, but due at once."""
    return mapping.messages(rows.select("key", "tag", "id", "headers", "body"), to)


def _stream(
    spark: SparkSession, where: Where, sink: Where, wanted: Wanted, name: str, emit: Emit
) -> dict[str, Any]:
    assert wanted.checkpoint is not None
    assert wanted.to is not None
    spark.conf.set(STORE, ROCKSDB)
    first = history.first(spark, wanted.checkpoint, where, wanted.sources, wanted.since)
    window_ms = min(duration_ms(wanted.window, "--window"), _WINDOW_MS_MAX)
    options = {**first.options(), **wanted.source_options(), "inStep": f"{window_ms}ms"}
    rows = ends.load_stream(spark, where, wanted.sources, options)
    left = messages(frames.within(rows, wanted.columns, wanted.window), wanted.to)
    facts = {
        "--from": ", ".join(sorted(wanted.sources)),
        "--by": ",".join(wanted.columns),
        "--window": wanted.window,
        "--to": wanted.to,
    }
    history.agree(spark, wanted.checkpoint, facts, first)
    writer = wanted.writer(left, name).format(ends.FORMAT).options(**ends.where_options(sink))
    read = 0
    with closing(batches(writer.start(), where, wanted.group)) as progresses:
        for progress in progresses:
            require_none_dropped(progress)
            if progress.numInputRows:
                read += progress.numInputRows
                state = sum(each.numRowsTotal for each in progress.stateOperators)
                count = f"{progress.numInputRows:,} read, {state:,} remembered"
                emit(f"batch {progress.batchId}: {count}")
    return {"messages": read}


def require_none_dropped(progress: Any) -> None:  # noqa: ANN401 - of Spark
    """The source ensures that nothing comes too late; if something does, raise Unverified."""
    dropped = sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
    if dropped:
        raise Unverified(
            f"batch {progress.batchId}: Spark has dropped {dropped:,} messages that were older than"
            " --window behind others: read them again with a new checkpoint and a longer --window"
        )
