"""Archive a topic again and again, until killed or told to stop: what a campaign kills.

    python -m tests.process.archive_driver BROKER DIRECTORY local|MASTER [once]

It says `ready` when its engine is there, and then a line of JSON after each run.
"""

from __future__ import annotations

import json
import os
import sys
import time

from zbus.spark.archive.commit import Committer
from zbus.spark.archive.job import Job
from zbus.spark.archive.tasks import Engine, Threads
from zbus.spark.archive.writer import Shape
from zbus.spark.errors import SparkProblem
from zbus.spark.source.location import Where

PAUSE_S = 0.02
SHAPE = Shape(file_bytes=2 << 20, group_bytes=1 << 20)


def engine_of(master: str) -> Engine:
    if master == "local":
        return Threads(2)
    from zbus.spark.archive.spark import SparkEngine
    from zbus.spark.session import start

    conf = {
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
    }
    return SparkEngine(lambda: start("archive", master=master, conf=conf))


def main(broker: str, directory: str, master: str, once: bool) -> None:
    engine = engine_of(master)
    engine_ready = list(engine.each(lambda item: [item], [1, 2]))  # workers, too
    assert engine_ready == [[1], [2]]
    print("ready", flush=True)
    while True:
        job = Job(
            opener=Where(broker=broker).open,
            root=directory,
            target=Committer(directory),
            engine=engine,
            pattern=".*",
            shape=SHAPE,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        try:
            print(json.dumps({"messages": job.run().messages}), flush=True)
        except SparkProblem as problem:
            print(json.dumps({"problem": str(problem), "code": problem.exit_code}), flush=True)
            if once:
                raise SystemExit(problem.exit_code) from None
        if once:
            return
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    broker, directory, master = sys.argv[1:4]
    main(broker, directory, master, once=sys.argv[4:] == ["once"])
