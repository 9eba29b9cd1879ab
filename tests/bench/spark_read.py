"""How fast Spark reads messages: of a broker, of its directory, and Parquet with the same data.

    python -m tests.bench.spark_read [--messages 2000000] [--bytes 1024] [--rounds 3]

All in one run with one session, `local[2]`; bodies differ; what is read goes nowhere. Of the
rounds the best and the median are shown. The topic is written in batches of 1,000.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.measure import resident_bytes, show
from tests.process.broker import BrokerProcess
from zbus.client import connect

BATCH = 1_000


def fill(port: int, count: int, size: int) -> None:
    """Each body is another one: half of each is noise."""
    with connect(f"127.0.0.1:{port}") as bus:
        bus.declare("orders")
        with bus.pipeline(8) as pipeline:
            for _ in range(count // BATCH):
                noise = os.urandom(BATCH * size // 4).hex().encode()
                step = len(noise) // BATCH
                pad = b"." * (size - step)
                bodies = [noise[at : at + step] + pad for at in range(0, len(noise), step)]
                pipeline.produce_many("orders", bodies[:BATCH])


def session() -> Any:
    from zbus.spark.session import start

    return start("read", master="local[2]", conf={"spark.driver.memory": "4g"})


def measure(name: str, rounds: int, count: int, size: int, act: Callable[[], None]) -> None:
    seconds = []
    for _ in range(rounds + 1):
        began_s = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began_s)
    seconds = seconds[1:]  # the first one starts workers
    best, median = min(seconds), statistics.median(seconds)
    show(
        what=name,
        best_rows_s=round(count / best),
        best_mb_s=round(count * size / best / 1e6),
        median_rows_s=round(count / median),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    count, size, rounds = chosen.messages, chosen.bytes, chosen.rounds
    folder = Path(tempfile.mkdtemp(prefix="zbus-spark-read-"))
    try:
        with BrokerProcess(folder / "data") as broker:
            fill(broker.port, count, size)
            threading.Event().wait(2)  # so that the landmarks say that all is synced
            spark = session()
            source = spark.read.format("zbus").option("topic", "orders")

            def drain(frame: Any) -> Callable[[], None]:
                return lambda: frame.write.format("noop").mode("append").save()

            remote = source.option("broker", f"127.0.0.1:{broker.port}").load()
            assert remote.count() == count
            before = resident_bytes(broker.process.pid) >> 20
            measure("broker, all columns", rounds, count, size, drain(remote))
            after = resident_bytes(broker.process.pid) >> 20
            show(what="broker's memory, MiB", before=before, after=after)
            source = spark.read.format("zbus").option("topic", "orders")
            local = source.option("path", str(folder / "data"))
            measure("directory, all columns", rounds, count, size, drain(local.load()))
            seven = "topic,offset,timestamp,id,tag,key,body"
            frame = local.option("columns", seven).load()
            measure("directory, seven columns", rounds, count, size, drain(frame))
            frame = local.option("columns", "offset,timestamp").load()
            measure("directory, two columns", rounds, count, size, drain(frame))
            parquet = str(folder / "parquet")
            local.load().write.option("compression", "zstd").parquet(parquet)
            frame = spark.read.parquet(parquet)
            measure("Parquet of the same, all columns", rounds, count, size, drain(frame))
            spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
