"""A driver of a cluster that reads a topic, or writes one from another: what a campaign kills.

    python -m tests.process.cluster_driver read BROKER
    python -m tests.process.cluster_driver stream BROKER CHECKPOINT

The master is in SPARK_MASTER. It says `running` when its work begins, and how it has ended as a
line of JSON. The work is made slow enough to be in the middle of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH: Final = 5_000
"""Messages of a batch of the stream."""

TASKS: Final = 24
PAUSE_S: Final = 0.5  # in each task of a read

CONF: Final = {
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


def slowly(rows: Iterable[Any]) -> Iterator[tuple[int, str, int]]:
    """Offset, id and number of each message."""
    time.sleep(PAUSE_S)
    for row in rows:
        yield row.offset, row.id, int(bytes(row.body).split()[0])


def read(spark: SparkSession, broker: str) -> dict[str, Any]:
    """All of a topic, task after task."""
    reader = spark.read.format("zbus").options(broker=broker, topic="in", minPartitions=str(TASKS))
    rows = reader.load().select("offset", "id", "body")
    print("running", flush=True)
    found = rows.rdd.mapPartitions(slowly).collect()
    found.sort()
    numbers = [number for _, _, number in found]
    return {
        "rows": len(found),
        "exact": numbers == [offset for offset, _, _ in found] == list(range(len(found))),
        "ids": len({name for _, name, _ in found}),
    }


def stream(spark: SparkSession, broker: str, checkpoint: str) -> dict[str, Any]:
    """From one topic to another, each message once."""
    source = spark.readStream.format("zbus").options(broker=broker, topic="in")
    source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH))
    rows = source.load().select("body").repartition(3)
    writer = rows.writeStream.format("zbus").options(broker=broker, topic="out")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = writer.start()
    print("running", flush=True)
    query.awaitTermination()
    return {"batches": len(query.recentProgress)}


def main(what: str, *words: str) -> None:
    from zbus.spark.session import start

    spark = start(f"cluster {what}", master=os.environ["SPARK_MASTER"], conf=CONF)
    done = read(spark, *words) if what == "read" else stream(spark, *words)
    print(json.dumps(done), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
