"""An archive in a directory, of logs in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.limits import WHOLE
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import Archive
from zbus.spark.archive.commit import Committer
from zbus.spark.archive.job import Job, Report
from zbus.spark.archive.table import LaneFiles
from zbus.spark.archive.tasks import Threads
from zbus.spark.archive.verify import Checkup, verify
from zbus.spark.archive.writer import Shape

HERE = Threads(1)


class Killed(BaseException):
    """The process is dead: nothing of it happens any more."""


class Clock:
    """It goes on a second with each look."""

    def __init__(self) -> None:
        self.time_ms = TIME_MS

    def __call__(self) -> int:
        self.time_ms += 1_000
        return self.time_ms


def job(root: Path, log: MemoryLog, **more: Any) -> Job:
    more.setdefault("pattern", None if "topics" in more else "(?s).*")
    more.setdefault("engine", HERE)
    more.setdefault("target", Committer(str(root)))
    more.setdefault("shape", Shape(file_bytes=400, group_bytes=150))
    return Job(opener=lambda: log, root=str(root), now_ms=Clock(), **more)


def run(root: Path, log: MemoryLog, **more: Any) -> Report:
    return job(root, log, **more).run()


def check(root: Path, **more: Any) -> Checkup:
    return verify(Archive(root), HERE, [], **more)


def is_whole(root: Path) -> None:
    assert check(root).wrong == []


def lane(root: Path, topic: str = "orders", partition: int = 0) -> LaneFiles:
    """Of the newest incarnation."""
    found = [each for each in Archive(root).lanes() if each.lane[:2] == (topic, partition)]
    return found[-1]


def bodies(root: Path, topic: str = "orders", partition: int = 0) -> list[tuple[int, bytes]]:
    """Offsets and bodies of all committed files, in order."""
    if not (root / "_delta_log").exists():
        return []
    wanted = (ds.field("topic") == topic) & (ds.field("partition") == partition)
    columns = ["incarnation", "offset", "body"]
    table = Archive(root).dataset().to_table(columns=columns, filter=wanted)
    table = table.sort_by([("incarnation", "ascending"), ("offset", "ascending")])
    return list(zip(table["offset"].to_pylist(), table["body"].to_pylist(), strict=True))


def put_numbers(log: MemoryLog, count: int, topic: str = "orders", **more: Any) -> None:
    """Messages whose bodies say their offset."""
    first = sum(span.end for span in log.spans(topic)[:1]) if topic in log.stored else 0
    log.put(topic, [b"%d" % (first + number) for number in range(count)], **more)


def numbers(count: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in range(first, count)]


STEPS = {
    "os": ("fsync",),
    "zbus.spark.archive.commit": ("sync_log", "require_files"),
    "deltalake.DeltaTable": ("create_write_transaction", "update_incremental", "delete", "vacuum"),
    "zbus.spark.archive.verify": ("checksum",),
    "zbus.spark.archive.upkeep": ("sync_log",),
    "zbus.spark.archive.writer": ("checksum",),
}
"""Calls before and after which a process can die: what becomes durable, and what is committed."""


class Steps:
    """Counts the steps of some work, and can act at one of them: before it, or right after."""

    def __init__(self, monkeypatch: Any) -> None:
        self.count = 0
        self.act: Callable[[int], None] = lambda _: None
        for place, names in STEPS.items():
            for name in names:
                monkeypatch.setattr(f"{place}.{name}", self._wrapped(_found(place, name)))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self._step()
            found = function(*args, **named)
            self._step()
            return found

        return call

    def _step(self) -> None:
        self.count += 1
        self.act(self.count)

    def of(self, work: Callable[[], object], root: Path) -> list[int]:
        """Those of some work; in `make test` without such as find the files as they were at the
        step before and are at the one after."""
        found: list[object] = [None]
        self.count, self.act = 0, lambda _: found.append(_state(root))
        work()
        assert self.count > 9, "it goes the ways of STEPS"
        found.append(None)
        at = range(1, len(found) - 1)
        return [one for one in at if WHOLE or not found[one - 1] == found[one] == found[one + 1]]

    def at(self, number: int, act: Callable[[], object]) -> None:
        """From now on, act once: at that step."""

        def once(count: int) -> None:
            if count == number:
                self.act = lambda _: None
                act()

        self.count, self.act = 0, once

    def kill_at(self, number: int) -> None:
        def die() -> None:
            raise Killed

        self.at(number, die)


def _state(root: Path) -> object:
    """Which files there are, whatever their random names."""
    files = (path for path in root.rglob("*") if path.is_file())
    return sorted((path.parent, path.suffix, path.stat().st_size) for path in files)


def _found(place: str, name: str) -> Callable[..., Any]:
    from pkgutil import resolve_name

    found: Callable[..., Any] = getattr(resolve_name(place), name)
    return found


def data_files(root: Path) -> set[str]:
    return {
        str(path) for path in root.rglob("*") if path.is_file() and "_delta_log" not in path.parts
    }
