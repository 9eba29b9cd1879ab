"""A part is read: what runs in a task of Spark, wherever that is.

Connections are kept for as long as the process lives, for Spark uses its workers again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from zbus.spark.errors import DataLoss, UnknownTopic
from zbus.spark.logs import Log, Span
from zbus.spark.options import Wish
from zbus.spark.source.arrows import read
from zbus.spark.source.columns import VALUE
from zbus.spark.source.filters import Condition, select
from zbus.spark.source.location import Where
from zbus.spark.source.planning import Part
from zbus.spark.source.value import with_value


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
    more = ["body"] if VALUE in names and "body" not in names else []
    more += [column for column, _, _ in conditions if column not in names]
    wanted = [name for name in dict.fromkeys((*names, *more)) if name != VALUE]
    log = _log(wish.where)
    batches = read if wish.fail_on_data_loss else _read_on
    for batch in batches(log, *part, wanted):
        found = select(batch, conditions)
        if found.num_rows and VALUE in names:
            yield with_value(found, wish.value, names)
        elif found.num_rows:
            yield found.select(list(names)) if more else found


def _read_on(
    log: Log, span: Span, start: int, stop: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """What there is of a part; whatever goes before it is read, or meanwhile, is left out."""
    while (there := _there(log, span)) is not None:
        start, stop = max(start, there.first), min(stop, there.end)
        if start >= stop:
            return
        try:
            for batch in read(log, there, start, stop, names):
                start += batch.num_rows
                yield batch
            return
        except DataLoss:
            now = _there(log, span)
            if now is not None and now.first <= start:
                raise  # it is there, and cannot be read


def _there(log: Log, span: Span) -> Span | None:
    """The partition as it is by now; None if it is gone, or another."""
    try:
        spans = log.ends(span.topic)
    except UnknownTopic:
        return None
    return next((each for each in spans if each[1:3] == span[1:3]), None)
