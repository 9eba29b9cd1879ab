"""A part is read: what runs in a task of Spark, wherever that is.

Connections are kept for as long as the process lives, for Spark uses its workers again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from zbus.spark.arrows import read
from zbus.spark.errors import Usage
from zbus.spark.filters import Condition, select
from zbus.spark.logs import Log
from zbus.spark.options import Wish
from zbus.spark.planning import Part
from zbus.spark.where import Where


class Task(InputPartition):
    """A part on its way to an executor."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)


_logs: dict[tuple[int, Where], Log] = {}


def _log(where: Where) -> Log:
    """Of this process: workers are used again for later tasks."""
    key = os.getpid(), where
    found = _logs.get(key)
    if found is None:
        found = _logs[key] = where.open()
    return found


def close_logs() -> None:
    """Those of this process: for programs that are no workers of Spark."""
    while _logs:
        _logs.popitem()[1].close()


def read_part(
    wish: Wish, part: Part | None, names: Sequence[str], conditions: Sequence[Condition]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part that fulfil the conditions. None is how Spark says that there is none."""
    if part is None:
        return
    more = [column for column, _, _ in conditions if column not in names]
    wanted = [*names, *dict.fromkeys(more)]
    log = _log(wish.where)
    for each in _readable(wish, log, part):
        for batch in read(log, each.span, each.start, each.stop, wanted):
            found = select(batch, conditions)
            if found.num_rows:
                yield found.select(list(names)) if more else found


def _readable(wish: Wish, log: Log, part: Part) -> Iterator[Part]:
    """What there is of a part by now. Whatever has gone since is data loss, or left out."""
    if wish.fail_on_data_loss:
        yield part
        return
    try:
        spans = log.spans(part.span.topic)
    except Usage:
        return
    for span in spans:
        if (span.partition, span.incarnation) == (part.span.partition, part.span.incarnation):
            start = max(part.start, span.first)
            if start < min(part.stop, span.end):
                yield Part(span, start, min(part.stop, span.end))
