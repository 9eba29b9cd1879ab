"""The stream of the format `zbus` (pipeline, 5.2).

Spark keeps where it is in its checkpoint, and that is the truth. One reader lives beside the driver
for as long as the query runs. `initialOffset` is asked for more than once before the first batch is
committed, and Spark does not keep it: so what depends on the moment, `latest` or a time, is pinned
in the broker under the name of the query, and comes from there after a restart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from zbus.client.errors import Conflict, ZbusError
from zbus.spark.errors import DataLoss, Usage
from zbus.spark.logs import Log, Span
from zbus.spark.options import LATEST, Wish
from zbus.spark.source.filters import tags_condition
from zbus.spark.source.location import Where
from zbus.spark.source.lockstep import require_timely, together
from zbus.spark.source.planning import (
    Offsets,
    Part,
    find_ends,
    find_spans,
    keep,
    limit,
    next_of,
    offsets_of,
    planned,
    reached,
    read_offsets,
    require_meant,
    resolve,
    show_offsets,
    split,
    to_read,
)
from zbus.spark.source.reading import Task, read_part

log = logging.getLogger("zbus")

LOOK_S: Final = 0.05
IDLE_S: Final = 0.2
"""Spark asks a hundred times a second whether there is more: the broker is asked less often, and
less than that when nothing has come since the last time."""

PINS: Final = "spark.start."
"""Begins the names of the topics that hold where a query has begun."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, wish: Wish, names: tuple[str, ...]) -> None:
        place = LATEST if wish.start is None else wish.start
        moves = place == LATEST or not isinstance(place, int | dict)
        if moves and wish.where.path is not None:
            text = "files are streamed from startingOffsets earliest or from offsets by topic"
            raise Usage(f"{text}: a start that depends on the moment is kept in a broker")
        if moves and (wish.name or wish.group) is None:
            text = "a stream from latest or from a time needs the option queryName (or group)"
            raise Usage(f"{text}: its start is kept under that name until the first batch is done")
        self._wish = wish
        self._names = names
        self._place = place
        self._pin = (wish.name or wish.group) if moves else None
        self._initial: Offsets | None = None
        self._target: Offsets | None = None  # of Trigger.AvailableNow
        self._log: Log | None = None
        self._spans: list[Span] = []
        self._look_s = 0.0  # when the next look is due
        self._waiting_since_s: float | None = None
        self._prepared = False

    # -- where it is ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = self._begin()
        return show_offsets(self._initial)

    def _begin(self) -> Offsets:
        log = self._opened()
        spans = find_ends(log, self._wish)
        if self._pin is None:
            return offsets_of(spans, resolve(log, spans, self._place))
        pinned = read_pin(self._wish.where, self._pin)
        if pinned is None:
            found = offsets_of(spans, resolve(log, spans, self._place, self._wish.start_strict))
            pinned = pin(self._wish.where, self._pin, found)
        return pinned

    def prepareForTriggerAvailableNow(self) -> None:
        spans = find_ends(self._opened(), self._wish)
        self._target = offsets_of(spans, [span.end for span in spans])

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._wish.trigger_rows_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = read_offsets(start)
        require_meant(self._wish, begin)
        parts = self._ready(self._look(begin), begin)
        if self._wish.trigger_bytes_max is not None and any(
            part.start < part.stop for part in parts
        ):
            self._spans = find_spans(self._opened(), self._wish, begin)
            parts = self._ready(self._spans, begin)
        whole, parts = parts, self._bounded(parts, isinstance(limit, ReadAllAvailable))
        if self._wish.in_step_ms is not None:
            parts = together(self._opened(), whole, parts)
            if begin != self._initial:  # something was read
                require_timely(self._opened(), parts, self._wish.in_step_ms)
        return show_offsets(reached(parts)) if parts else start

    def _ready(self, spans: list[Span], begin: Offsets) -> list[Part]:
        parts = to_read(spans, begin, self._wish.fail_on_data_loss)
        return parts if self._target is None else [_until(part, self._target) for part in parts]

    def _bounded(self, parts: list[Part], all_of_it: bool) -> list[Part]:
        wish = self._wish
        ready = sum(part.stop - part.start for part in parts)
        least = wish.trigger_rows_min if self._target is None else None
        if least is not None and 0 < ready < least:
            now_s = time.monotonic()
            since_s = self._waiting_since_s = self._waiting_since_s or now_s
            if now_s - since_s < wish.trigger_delay_ms / 1_000:
                return [part._replace(stop=part.start) for part in parts]
        self._waiting_since_s = None
        bounds = wish.trigger_rows_max, wish.trigger_bytes_max
        if all_of_it and bounds[0] is None and bounds[1] is None:
            return parts
        return limit(parts, *bounds)

    def reportLatestOffset(self) -> dict[str, Any]:
        spans = self._spans or self._look({})
        return show_offsets(offsets_of(spans, [span.end for span in spans]))

    # -- parts ----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = read_offsets(start), read_offsets(end)
        fail = self._wish.fail_on_data_loss
        require_meant(self._wish, begin)
        spans = find_spans(self._opened(), self._wish, stop)
        parts = planned(spans, begin, stop, fail)
        return [Task(part) for part in split(keep(parts, fail), self._wish)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._wish, partition.value, self._names, tags_condition(self._wish))

    def commit(self, end: dict[str, Any]) -> None:
        """Everybody sees in the broker how far the query is. The checkpoint stays the truth."""
        if self._wish.group is not None:
            mirror(self._wish.where, self._wish.group, read_offsets(end))

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the executors has no connection."""
        return {**self.__dict__, "_log": None}

    # -- the log ----------------------------------------------------------------------------------

    def _opened(self) -> Log:
        if self._log is None:
            self._log = self._wish.where.open()
        return self._log

    def _look(self, known: Offsets) -> list[Span]:
        if time.monotonic() >= self._look_s:
            spans = find_ends(self._opened(), self._wish, known)
            pause_s = IDLE_S if spans == self._spans else LOOK_S
            self._spans = spans
            self._look_s = time.monotonic() + pause_s
        return self._spans


def _until(part: Part, target: Offsets) -> Part:
    """Not more than there was when the query began."""
    stop = min(part.stop, next_of(target, part.span, part.start))
    return part._replace(stop=max(part.start, stop))


# -- in the broker --------------------------------------------------------------------------------


def read_pin(where: Where, name: str) -> Offsets | None:
    """Where the query of that name has begun, if it has."""
    with where.client() as bus:
        if f"{PINS}{name}" not in bus.server().topics:
            return None
        topic = bus.query(f"{PINS}{name}")
        found = bus.read(f"{PINS}{name}", count=1)
    if not found and topic.message_depth:
        raise DataLoss(
            f"where the query {name} has begun was dropped by the retention of {PINS}{name}: remove"
            " that topic, and it begins anew"
        )
    return read_offsets(msgspec.json.decode(found[0].body)) if found else None


def pin(where: Where, name: str, offsets: Offsets) -> Offsets:
    """Keep where the query of that name begins, unless it has begun already. Gives what is kept."""
    body = msgspec.json.encode(show_offsets(offsets))
    with where.client() as bus, suppress(Conflict):
        # A broker may have limits for topics that have none of their own.
        bus.declare(f"{PINS}{name}", retention_ms=0, retention_bytes=0, retention_count=0)
        bus.produce(f"{PINS}{name}", body, expected_offset=0)
    kept = read_pin(where, name)
    return offsets if kept is None else kept


def mirror(where: Where, group: str, offsets: Offsets) -> bool:
    """Move a consumer group of each topic to what has been read; says whether all were moved.
    Where it is not possible the next batch says it again."""
    moved = True
    with where.client() as bus:
        for topic, (_, ends) in offsets.items():
            try:
                bus.declare(topic, group)
                for partition, end in enumerate(ends):
                    bus.seek(topic, group, end, partition=partition)
            except ZbusError as error:
                moved = False
                about = {"topic": topic, "group": group, "error": str(error)}
                log.warning("group is not moved to what was read", extra=about)
    return moved
