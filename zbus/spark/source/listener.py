"""How far a streaming query is behind, and its consumer group brought up to date.

Spark tells a source that a batch is done only when the next one is planned, and of the last batch
of a run never. So the runner of a query may listen to its progress instead:

    spark.streams.addListener(Lag(Where(broker="127.0.0.1:15555"), group="billing"))
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from zbus.spark.errors import Usage
from zbus.spark.source.location import Where
from zbus.spark.source.planning import Offsets, read_offsets
from zbus.spark.source.stream import mirror

log = logging.getLogger("zbus")

Told = Callable[[str, dict[str, int]], object]
"""The query's name, and by topic how many messages are not read yet."""


class Lag(StreamingQueryListener):
    """`group` is moved after each batch, and then `report_lag` is called with the lag; by default
    that is logged."""

    def __init__(
        self, where: Where | None = None, group: str | None = None, report_lag: Told | None = None
    ) -> None:
        self._where = where
        self._group = group
        self._report_lag = report_lag or _log
        self._owed: dict[str, Offsets] = {}  # by run: an end that the group could not be moved to

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.report(event.progress)

    def report(self, progress: Any) -> None:  # noqa: ANN401 - StreamingQueryProgress
        """What a batch has done. Who follows a query itself calls this, and needs no listener."""
        name = progress.name or str(progress.id)
        for source in progress.sources:
            end, latest = offsets_in(source.endOffset), offsets_in(source.latestOffset)
            if end is None:
                continue
            if self._where is not None and self._group is not None:
                moved = mirror(self._where, self._group, end)
                self._owed[str(progress.runId)] = {} if moved else end
            self._report_lag(name, lag_of(end, latest or end))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        end = self._owed.pop(str(event.runId), None)
        if end and self._where is not None and self._group is not None:
            mirror(self._where, self._group, end)  # nothing does it later


def offsets_in(text: Any) -> Offsets | None:  # noqa: ANN401 - of Spark's JSON
    """None: they are of another source, or there are none."""
    try:
        return read_offsets(msgspec.json.decode(text))
    except (Usage, msgspec.DecodeError, TypeError):
        return None


def lag_of(end: Offsets, latest: Offsets) -> dict[str, int]:
    """By topic. One that was made again since is behind by all it has."""
    found = {}
    for topic, (incarnation, offsets) in sorted(latest.items()):
        known, read = end.get(topic, ("", []))
        at = read if known == incarnation else []
        pairs = [
            offset - (at[number] if number < len(at) else 0)
            for number, offset in enumerate(offsets)
        ]
        found[topic] = sum(max(0, each) for each in pairs)
    return found


def _log(name: str, lag: dict[str, int]) -> None:
    log.info("query reads on", extra={"query": name, "lag": lag})
