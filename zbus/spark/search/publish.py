"""What was found, put into a topic: bodies, tags, keys, ids and headers as they were, and where each
comes from in headers. Bodies are needed in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from zbus.client import errors
from zbus.client.blocking import BlockingClient, Pending
from zbus.client.messages import Stored
from zbus.client.options import Options
from zbus.client.requests import own_lines
from zbus.spark.errors import SparkProblem, Unreachable, Usage
from zbus.spark.logs import Where

class Publisher:
    """Sends results on as they come by. What is broken off may be sent twice: at least once."""

    def __init__(self, where: Where, topic: str) -> None:
        if where.broker is None:
            raise Usage("--to-topic needs --broker: nothing is written into a data directory")
        self._topic = topic
        self.count = 0
        options = Options(token=where.token(), ca=where.tls_ca, timeout_s=where.patience_s)
        self._client = BlockingClient(where.broker, options)
        self._where = where

    def pass_on(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same results, each sent before it is given. Raises Unreachable, SparkProblem."""
        try:
            with self._client:
                for batch in found:
                    self._send(batch)
                    yield batch
        except (errors.ConnectionLost, errors.Timeout) as error:
            raise Unreachable(f"the broker {self._where} cannot be reached: {error}") from error
        except (errors.ZbusError, ValueError) as error:
            raise SparkProblem(f"{self._topic}: after {self.count} messages: {error}") from error

    def _send(self, batch: pa.RecordBatch) -> None:
        sent: list[Pending[Stored]] = []
        with self._client.pipeline() as pipeline:
            for row in batch.to_pylist():
                sent.append(pipeline.produce(self._topic, row["body"], **labels(row)))
            for each in sent:
                each.result()
                self.count += 1


def labels(row: dict[str, Any]) -> dict[str, Any]:
    """What goes with a message. An id that only says where it was is not one to keep."""
    headers = {name: value for name, value in row["headers"] or () if _can_be_sent(name, value)}
    headers.update(
        {
            "x-search-topic": row["topic"],
            "x-search-partition": str(row["partition"]),
            "x-search-offset": str(row["offset"]),
            "x-search-timestamp": str(round(row["timestamp"].timestamp() * 1_000)),
        }
    )
    implied = row["id"] == f"{row['partition']}-{row['offset']}"
    return {
        "tag": row["tag"],
        "key": row["key"],
        "id": None if implied else row["id"],
        "headers": headers,
    }


def _can_be_sent(name: str, value: str) -> bool:
    """Names that would tell the broker something are not the sender's to set."""
    try:
        own_lines({name: value})
    except ValueError:
        return False
    return True
