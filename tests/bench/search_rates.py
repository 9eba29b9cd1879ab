"""How long it takes to find a message in an archive by its id, by its key, and by its body.

    python -m tests.bench.search_rates [--messages 200000] [--rounds 3] [--archive DIR]

The archive is made first, in DIR if one is named, which then stays and is used again. Ids are
without order, so that statistics do not help and Bloom filters have to. `cold` is a process that is
started for one search (`python -m zbus.spark search`), `warm` one search more in a process that has
made some; of Spark, in a session of `local[2]`. Of the rounds the best and the median are shown.
The files are in the cache of the system if they fit there: the disk is not measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import attrs

from tests.bench.measure import show
from tests.spark.stored import TIME_MS, batch
from zbus.spark.archive.commit import Committer
from zbus.spark.archive.job import Job
from zbus.spark.archive.table import Archive
from zbus.spark.archive.tasks import Threads
from zbus.spark.logs import Log, Span
from zbus.spark.search.conditions import Wanted
from zbus.spark.search.job import Engine, Search, find, plan

BATCH = 1_000
KEYS = 50_000
MS_OF_BATCH = 100


def id_of(number: int) -> str:
    return hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()


class Made(Log):
    """A topic whose batches are made when they are read."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def topics(self) -> list[str]:
        return ["orders"]

    def spans(self, topic: str) -> list[Span]:
        return [Span("orders", 0, "1", 0, self.count, self.count * self.size)]

    def offset_at(self, span: Span, time_ms: int) -> int:
        return span.end

    def time_at(self, span: Span, offset: int) -> int:
        return TIME_MS + offset // BATCH * MS_OF_BATCH

    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes]:
        for first in range(start - start % BATCH, stop, BATCH):
            numbers = range(first, min(first + BATCH, self.count))
            random = Random(first)
            yield batch(
                first,
                [random.randbytes(self.size // 2).hex().encode() for _ in numbers],
                time_ms=TIME_MS + first // BATCH * MS_OF_BATCH,
                ids=[id_of(number).encode() for number in numbers],
                tags=[b"eu" if number % 3 else b"us" for number in numbers],
                keys=[b"customer-%d" % random.randrange(KEYS) for _ in numbers],
            )


def make(root: Path, count: int, size: int) -> None:
    began_s = time.perf_counter()
    log = Made(count, size)
    Job(
        opener=lambda: log,
        root=str(root),
        target=Committer(str(root)),
        engine=Threads(2),
        topics=["orders"],
        pattern=None,
        now_ms=lambda: time.time_ns() // 1_000_000,
    ).run()
    show(what="archive made", messages=count, seconds=round(time.perf_counter() - began_s, 1))


def measure(name: str, rounds: int, expected: int | None, act: Callable[[], int]) -> None:
    seconds = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        found = act()
        seconds.append(time.perf_counter() - began_s)
        assert expected in (None, found), f"{name}: {found} results"
    best, median = min(seconds), statistics.median(seconds)
    show(what=name, found=found, best_s=round(best, 3), median_s=round(median, 3))


def command(root: Path, engine: str, *words: str) -> int:
    """A process for one search; how much it has found."""
    start = [sys.executable, "-m", "zbus.spark", "search", "--in", str(root), "--json"]
    if engine == "spark":
        words = (*words, "--master", "local[2]")
    run = subprocess.run(
        [*start, "--engine", engine, *words], capture_output=True, check=True, text=True
    )
    said = json.loads(run.stderr.strip().splitlines()[-1])
    return int(said["results"])


def search(root: Path, engine: Engine, session: Callable[[], Any], **said: Any) -> int:
    wanted = Search(conditions=Wanted(**said).read(), archive=str(root), engine=engine)
    page = find(wanted, plan(wanted), session)
    for _ in page:
        pass
    return page.rows


@attrs.frozen
class Bench:
    root: Path
    count: int
    rounds: int

    def ids(self) -> Iterator[str]:
        """Always others, so that nothing remembers them."""
        random = Random(7)
        while True:
            yield id_of(random.randrange(self.count))

    def cold(self) -> None:
        ids = self.ids()
        for engine in ("local", "spark"):
            measure(
                f"by id, {engine}, cold",
                self.rounds,
                1,
                lambda engine=engine: command(self.root, engine, "--id", next(ids)),  # type: ignore[misc]
            )

    def warm(self, engine: Engine, session: Callable[[], Any]) -> None:
        ids = self.ids()
        asked: list[tuple[str, int | None, Callable[[], dict[str, Any]]]] = [
            ("id", 1, lambda: {"ids": [next(ids)]}),
            ("id that is not there", 0, lambda: {"ids": [f"no-{next(ids)}"]}),
            ("key", None, lambda: {"keys": ["customer-77"]}),
            ("text in the body", 0, lambda: {"contains": ["there is no such text"]}),
            ("regular expression", 0, lambda: {"regex": "x[0-9]{3}y"}),
        ]
        for name, expected, said in asked:
            search(self.root, engine, session, **said())
            measure(
                f"by {name}, {engine}, warm",
                self.rounds,
                expected,
                lambda said=said: search(self.root, engine, session, **said()),  # type: ignore[misc]
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--archive", type=Path)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-search-"))
    root = (chosen.archive or folder / "archive").absolute()
    try:
        if not root.exists():
            make(root, chosen.messages, chosen.bytes)
        files = Archive(root).files()
        count = sum(file.rows for file in files)
        show(messages=count, files=len(files), bytes=sum(file.bytes for file in files))
        bench = Bench(root, count, chosen.rounds)
        bench.cold()
        bench.warm(Engine.LOCAL, lambda: None)
        from zbus.spark.session import start

        spark = start("search", master="local[2]")
        bench.warm(Engine.SPARK, lambda: spark)
        spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
