"""What was found, put into a topic: body, tag, key, id and headers as they were, and in headers of
its own where each comes from. Bodies are needed in full."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from zbus.client.blocking import Pending, Pipeline
from zbus.client.messages import StoredBatch
from zbus.client.requests import Request, own_lines, parse_stored_batch, start
from zbus.spark.errors import Usage
from zbus.spark.sink.encode import Load, loads
from zbus.spark.source.columns import arrow_schema
from zbus.spark.source.location import Where

IN_FLIGHT_MAX: Final = 4
"""Requests that are not answered: each has some megabytes."""

_SCHEMA: Final = arrow_schema(["tag", "key", "id", "headers", "body"])


class Publisher:
    """Sends results on as they come by. A search that is broken off has sent a part of them."""

    def __init__(self, where: Where, topic: str) -> None:
        if where.broker is None:
            raise Usage("--to-topic needs a broker: nothing is written into a data directory")
        self._where = where
        self._topic = topic

    def pass_on(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same results, each when it is stored. Raises Usage, Unreachable, SparkProblem; what
        was sent up to then stays sent."""
        sent: deque[_Sent] = deque()
        client = self._where.client(self._topic)
        with client as bus, bus.pipeline(IN_FLIGHT_MAX) as pipeline:
            for batch in found:
                sent.append(self._send(pipeline, batch))
                if len(sent) > IN_FLIGHT_MAX:
                    yield sent.popleft().stored()
            while sent:
                yield sent.popleft().stored()

    def _send(self, pipeline: Pipeline, batch: pa.RecordBatch) -> _Sent:
        begun = [pipeline.begin(_request(load)) for load in loads(as_written(batch), self._topic)]
        pipeline.flush()
        return _Sent(batch, begun)


class _Sent(NamedTuple):
    """Results on their way."""

    batch: pa.RecordBatch
    begun: list[Pending[StoredBatch]]

    def stored(self) -> pa.RecordBatch:
        for each in self.begun:
            each.result()
        return self.batch


def _request(load: Load) -> Request[StoredBatch]:
    # A key is added by the client, so that a request whose answer was lost is sent again.
    lines = start(b"produce", load.topic) + load.lines
    return Request(lines, parse_stored_batch, load.body, safe=False, keyed=True)


def as_written(results: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of messages that are written."""
    return pa.RecordBatch.from_pylist([_labelled(row) for row in results.to_pylist()], _SCHEMA)


def _labelled(row: dict[str, Any]) -> dict[str, Any]:
    """What goes with a message. An id that only says where it was is not one to keep."""
    headers = {name: value for name, value in row["headers"] or () if _can_be_sent(name, value)}
    headers["x-search-topic"] = row["topic"]
    headers["x-search-partition"] = str(row["partition"])
    headers["x-search-offset"] = str(row["offset"])
    headers["x-search-timestamp"] = str(round(row["timestamp"].timestamp() * 1_000))
    implied = row["id"] == f"{row['partition']}-{row['offset']}"
    return {
        "tag": row["tag"],
        "key": row["key"],
        "id": None if implied else row["id"],
        "headers": list(headers.items()),
        "body": row["body"],
    }


def _can_be_sent(name: str, value: str) -> bool:
    """Names that would tell the broker something are not the sender's to set."""
    try:
        own_lines({name: value})
    except ValueError:
        return False
    return True
