"""How fast Spark reads messages: of a broker, of its directory, and Parquet with the same data.

    python -m tests.bench.spark_read [--messages 2000000] [--bytes 1024] [--rounds 3]

All in one run with one session, `local[2]`; bodies differ; what is read goes nowhere. The rounds go
in turn; the best and the median are shown, and the median ratio to the directory. The topic is
written in batches of 1,000.
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


def seconds_of(act: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


def measure(rounds: int, count: int, size: int, acts: dict[str, Callable[[], None]]) -> None:
    """In turn, so that a noisy minute is everybody's; and how each compares with the first."""
    for act in acts.values():
        act()  # starts workers, fills caches
    taken_s = {name: [] for name in acts}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, act in acts.items():
            taken_s[name].append(seconds_of(act))
    first_s = next(iter(taken_s.values()))
    for name, mine_s in taken_s.items():
        pairs = zip(first_s, mine_s, strict=True)
        show(
            what=name,
            best_rows_s=round(count / min(mine_s)),
            best_mb_s=round(count * size / min(mine_s) / 1e6),
            median_rows_s=round(count / statistics.median(mine_s)),
            ratio=round(statistics.median(first / mine for first, mine in pairs), 2),
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

            local = source.option("path", str(folder / "data"))
            remote = spark.read.format("zbus").option("topic", "orders")
            remote = remote.option("broker", f"127.0.0.1:{broker.port}").load()
            assert remote.count() == count
            parquet = str(folder / "parquet")
            local.load().write.option("compression", "zstd").parquet(parquet)
            os.sync()  # so that nobody's rounds pay for what was written
            seven, two = "topic,offset,timestamp,id,tag,key,body", "offset,timestamp"
            before = resident_bytes(broker.process.pid) >> 20
            frames = {
                "directory, all columns": local.load(),
                "broker, all columns": remote,
                "directory, seven columns": local.option("columns", seven).load(),
                "directory, two columns": local.option("columns", two).load(),
                "Parquet of the same, all columns": spark.read.parquet(parquet),
            }
            measure(rounds, count, size, {name: drain(frame) for name, frame in frames.items()})
            after = resident_bytes(broker.process.pid) >> 20
            show(what="broker's memory, MiB", before=before, after=after)
            spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
