"""A driver that writes a stream into a topic, and dies where it is told to (`sink_kills`).

    python -m tests.process.sink_driver BROKER CHECKPOINT ORDERS

The file ORDERS names a phase. Whoever comes to it first removes the file and kills every process of
this session: the driver, its JVM, and all workers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from zbus.spark.sink.sink import Staged, StreamWriter, stream_writer
from zbus.spark.source.source import ZbusDataSource

PHASES: Final = ("write", "staged", "before", "during", "after")
ROWS: Final = 1_000
"""Of a batch."""


def kill_session() -> None:
    """All processes of this session, this one at last."""
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != own:
            try:
                if os.getsid(int(entry.name)) == os.getsid(0):
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    os.kill(own, signal.SIGKILL)


class Deadly(StreamWriter):
    """The sink, with places to die at."""

    def __init__(self, inner: StreamWriter, orders: str) -> None:
        super().__init__(inner._wish)
        self._orders = Path(orders)

    def _at(self, phase: str, delay_s: float = 0.0) -> None:
        try:
            if self._orders.read_text() != phase:
                return
            self._orders.unlink()
        except FileNotFoundError:
            return
        if delay_s:
            threading.Timer(delay_s, kill_session).start()
        else:
            kill_session()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        def rows() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                self._at("write")
                yield batch.slice(half)

        staged = super().write(rows())
        self._at("staged")
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._at("before")
        self._at("during", Random().uniform(0.0005, 0.02))
        super().commit(messages, batchId)
        self._at("after")


class DeadlySource(ZbusDataSource):
    @classmethod
    def name(cls) -> str:
        return "deadly"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        options = {name: value for name, value in self.options.items() if name != "orders"}
        return Deadly(stream_writer(schema, options, overwrite), self.options["orders"])


def main(broker: str, checkpoint: str, orders: str) -> None:
    from zbus.spark.session import start

    conf = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = start("sink", master="local[2]", conf=conf)
    spark.dataSource.register(DeadlySource)
    source = spark.readStream.format("zbus").option("broker", broker).option("topic", "in")
    source = source.option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", str(ROWS)).load().select("body")
    writer = rows.repartition(3).writeStream.format("deadly").options(broker=broker, topic="out")
    writer = writer.options(orders=orders, checkpointLocation=checkpoint)
    query = writer.trigger(availableNow=True).start()
    print("running", flush=True)
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
