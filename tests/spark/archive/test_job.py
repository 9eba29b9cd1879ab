"""The job: each offset once, whatever is killed, and whoever else is there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from errno import ENOSPC
from os import strerror
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.archive.harness import (
    HERE,
    Killed,
    Steps,
    bodies,
    data_files,
    is_whole,
    job,
    numbers,
    put_numbers,
    run,
)
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import Archive
from zbus.spark.archive.commit import Committer
from zbus.spark.archive.plan import LanePlan, choose_topics, tasks_of
from zbus.spark.archive.table import BEFORE, RETENTION, local_directory
from zbus.spark.archive.tasks import Task, slices
from zbus.spark.archive.upkeep import compact, vacuum
from zbus.spark.archive.writer import Shape
from zbus.spark.errors import DataLoss, LostRace, SparkProblem, UnknownTopic, Usage
from zbus.spark.logs import Span

COUNT = 60


@pytest.fixture
def log() -> MemoryLog:
    found = MemoryLog()
    for _ in range(COUNT // 6):
        put_numbers(found, 6)
    return found


class Growing:
    """An engine to which executors come. It notes what it is given in each round."""

    def __init__(self) -> None:
        self.workers = 1
        self.rounds: list[tuple[int, float | None]] = []

    def each(self, function: Any, items: list[Any]) -> Iterator[Any]:
        self.rounds.append((len(items), function.keywords["setting"].rate_bytes_s))
        self.workers = 3
        yield from map(function, items)


@pytest.mark.parametrize(
    ("rate", "rounds"),
    [
        (None, [(4, None), *[(12, None)] * 4, (8, None)]),
        # All of a round may run at once, whoever comes meanwhile.
        (3e6, [(1, 3e6), *[(3, 1e6)] * 19, (2, 1.5e6)]),
    ],
)
def test_rounds_follow_how_many_workers_there_are(
    log: MemoryLog, rate: float | None, rounds: list[tuple[int, float | None]], tmp_path: Path
) -> None:
    engine = Growing()
    shape = Shape(file_bytes=1, group_bytes=150)
    assert run(tmp_path, log, engine=engine, shape=shape, rate_bytes_s=rate).messages == COUNT
    assert engine.rounds == rounds


# -- what is archived -----------------------------------------------------------------------------


def test_all_that_there_is_and_then_what_has_come(log: MemoryLog, tmp_path: Path) -> None:
    first = run(tmp_path, log)
    assert (first.messages, first.lanes[0].start, first.lanes[0].end) == (COUNT, 0, COUNT)
    assert first.lanes[0].files > 1
    assert run(tmp_path, log).lanes == []
    put_numbers(log, 10)
    second = run(tmp_path, log)
    assert (second.messages, second.lanes[0].start) == (10, COUNT)
    assert bodies(tmp_path) == numbers(COUNT + 10)
    is_whole(tmp_path)


def test_each_partition_has_its_chain(log: MemoryLog, tmp_path: Path) -> None:
    log.put("orders", [b"x"], 1)
    log.stored["empty"], log.incarnations["empty"] = [[]], "1"
    run(tmp_path, log)
    assert [each.lane[:2] for each in Archive(tmp_path).lanes()] == [("orders", 0), ("orders", 1)]
    assert bodies(tmp_path, partition=1) == [(0, b"x")]
    is_whole(tmp_path)


def test_until_a_time(log: MemoryLog, tmp_path: Path) -> None:
    put_numbers(log, 5, time_ms=TIME_MS + 10)
    assert run(tmp_path, log, until_ms=TIME_MS + 10).messages == COUNT
    assert run(tmp_path, log).messages == 5
    assert bodies(tmp_path) == numbers(COUNT + 5)


def test_a_dry_run_writes_nothing(log: MemoryLog, tmp_path: Path) -> None:
    log.first["orders", 0] = 6
    report = job(tmp_path, log).plan()
    assert (report.messages, [gap.end for gap in report.lanes[0].gaps]) == (COUNT - 6, [6])
    assert list(tmp_path.iterdir()) == []


def test_many_small_topics_share_tasks(tmp_path: Path) -> None:
    many = MemoryLog()
    for number in range(30):
        many.put(f"t{number}", [b"x" * 10])
    asked: list[int] = []

    class Counting:
        workers = 2

        def each(self, function: Callable, items: list) -> object:
            asked.append(len(items))
            return map(function, items)

    assert run(tmp_path, many, engine=Counting(), shape=Shape(file_bytes=600)).messages == 30
    assert sum(asked) < 8


def test_only_the_topics_that_are_meant(log: MemoryLog) -> None:
    log.put("other", [b"x"])
    assert choose_topics(log, ["b", "a"], None) == ["a", "b"]
    assert choose_topics(log, [], "o.*") == ["orders", "other"]
    assert choose_topics(log, [], "other|x") == ["other"]
    assert choose_topics(log, [], "the") == []  # the whole name


@pytest.mark.parametrize(
    ("topics", "pattern", "problem", "said"),
    [
        (["orders"], "x", Usage, "either"),
        ([], None, Usage, "either"),
        ([], "(", Usage, "regular expression"),
        (["nothing"], None, UnknownTopic, "nothing"),
    ],
)
def test_topics_that_cannot_be(
    log: MemoryLog,
    topics: list[str],
    pattern: str | None,
    problem: type[Exception],
    said: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(problem, match=said):
        run(tmp_path, log, topics=topics, pattern=pattern)


# -- what is gone ---------------------------------------------------------------------------------


def test_what_was_gone_before_there_was_an_archive_is_a_gap(log: MemoryLog, tmp_path: Path) -> None:
    log.first["orders", 0] = 12
    (done,) = run(tmp_path, log).lanes
    assert [(gap.start, gap.end, gap.reason) for gap in done.gaps] == [(0, 12, BEFORE)]
    assert bodies(tmp_path) == numbers(COUNT, 12)
    is_whole(tmp_path)


def test_the_retention_was_faster(log: MemoryLog, tmp_path: Path) -> None:
    run(tmp_path, log)
    for _ in range(3):
        put_numbers(log, 6)
    log.first["orders", 0] = COUNT + 12
    with pytest.raises(DataLoss, match=f"{COUNT} to {COUNT + 12}.*--allow-loss"):
        run(tmp_path, log)
    (done,) = run(tmp_path, log, allow_loss=True).lanes
    assert [(gap.start, gap.end, gap.reason) for gap in done.gaps] == [(60, 72, RETENTION)]
    assert bodies(tmp_path) == numbers(COUNT) + numbers(COUNT + 18, COUNT + 12)
    is_whole(tmp_path)


def test_all_of_it_is_gone(log: MemoryLog, tmp_path: Path) -> None:
    log.first["orders", 0] = COUNT
    (done,) = run(tmp_path, log).lanes
    assert (done.messages, done.end) == (0, COUNT)
    assert run(tmp_path, log).lanes == []
    is_whole(tmp_path)


class Overtaken(MemoryLog):
    """The retention removes what is read, `times` times."""

    times = 1

    def raw(self, span: Span, start: int, stop: int) -> object:  # type: ignore[override]
        if self.times:
            self.times -= 1
            self.first[span.topic, 0] = start + 6
        return super().raw(span, start, stop)


def test_the_retention_is_faster_between_plan_and_read(log: MemoryLog, tmp_path: Path) -> None:
    overtaken = Overtaken()
    overtaken.stored, overtaken.incarnations = log.stored, log.incarnations
    with pytest.raises(DataLoss):
        run(tmp_path, overtaken)
    overtaken.first.clear()
    overtaken.times = 3
    report = run(tmp_path, overtaken, allow_loss=True)
    assert bodies(tmp_path) == numbers(COUNT, 18)
    assert report.lanes[0].end == COUNT
    is_whole(tmp_path)


def test_damage_is_not_taken_for_retention(log: MemoryLog, tmp_path: Path) -> None:
    """However much loss is allowed, it comes to an end."""
    raw = log.stored["orders"][0][5]
    log.stored["orders"][0][5] = raw[:-1] + bytes([raw[-1] ^ 1])
    with pytest.raises(DataLoss, match="damaged"):
        run(tmp_path, log, allow_loss=True, shape=Shape(file_bytes=150))
    assert bodies(tmp_path) == numbers(len(bodies(tmp_path)))  # what came before is kept
    is_whole(tmp_path)


def test_a_topic_that_was_made_again(log: MemoryLog, tmp_path: Path) -> None:
    run(tmp_path, log)
    again = MemoryLog()
    put_numbers(again, 8)
    again.incarnations["orders"] = "2"
    version = Archive(tmp_path).version
    with pytest.raises(DataLoss, match=f"made again.*behind offset {COUNT} .*--allow-loss"):
        run(tmp_path, again)
    assert Archive(tmp_path).version == version
    (done,) = run(tmp_path, again, allow_loss=True).lanes
    assert (done.recreated, done.start, done.end, done.incarnation) == (True, 0, 8, "2")
    assert bodies(tmp_path) == numbers(COUNT) + numbers(8)
    lanes = [(each.lane.incarnation, each.end) for each in Archive(tmp_path).lanes()]
    assert lanes == [("1", COUNT), ("2", 8)]
    put_numbers(again, 2)
    assert not run(tmp_path, again).lanes[0].recreated
    is_whole(tmp_path)


def test_a_log_that_is_older_than_the_archive(log: MemoryLog, tmp_path: Path) -> None:
    run(tmp_path, log)
    del log.stored["orders"][0][-1]
    with pytest.raises(DataLoss, match="older than the archive"):
        run(tmp_path, log, allow_loss=True)


# -- killed ---------------------------------------------------------------------------------------


class SecondRun:
    """An archive, and what has come since."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = MemoryLog()
        put_numbers(self.log, 9)
        self.log.put("orders", [b"a", b"b"], 1)
        run(root, self.log)
        put_numbers(self.log, 9)
        put_numbers(self.log, 9)
        self.log.put("orders", [b"c"], 1)

    def __call__(self) -> object:
        return run(self.root, self.log)

    def is_done(self) -> None:
        assert bodies(self.root) == numbers(27)
        assert bodies(self.root, partition=1) == [(0, b"a"), (1, b"b"), (2, b"c")]
        is_whole(self.root)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def test_killed_at_every_step(steps: Steps, tmp_path: Path) -> None:
    for number in steps.of(SecondRun(tmp_path / "all"), tmp_path):
        second = SecondRun(tmp_path / f"{number}")
        steps.kill_at(number)
        with pytest.raises(Killed):
            second()
        assert bodies(second.root) in (numbers(9), numbers(27))
        second()
        second.is_done()
        # What was left is found, and nothing else.
        vacuum(Archive(second.root), 0)
        second.is_done()
        assert data_files(second.root) == {file.path for file in Archive(second.root).files()}


def test_killed_while_it_is_made(steps: Steps, log: MemoryLog, tmp_path: Path) -> None:
    for number in steps.of(lambda: run(tmp_path / "all", log), tmp_path):
        steps.kill_at(number)
        with pytest.raises(Killed):
            run(tmp_path / f"{number}", log)
        run(tmp_path / f"{number}", log)
        assert bodies(tmp_path / f"{number}") == numbers(COUNT)


def test_a_full_disk_says_so(steps: Steps, log: MemoryLog, tmp_path: Path) -> None:
    def fill() -> None:
        raise OSError(ENOSPC, strerror(ENOSPC))

    steps.at(5, fill)
    with pytest.raises(SparkProblem, match="No space left"):
        run(tmp_path, log)
    run(tmp_path, log)
    assert bodies(tmp_path) == numbers(COUNT)


def test_what_is_committed_is_durable_before(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, their names and directories; and the log of the table when the run has ended."""
    durable: set[int] = set()
    sync, commit = os.fsync, DeltaTable.create_write_transaction

    def note(file: int) -> None:
        durable.add(os.fstat(file).st_ino)
        sync(file)

    def require(table: DeltaTable, actions: list[Any], *words: Any, **named: Any) -> None:
        for action in actions:
            path = tmp_path / action.path
            assert {each.stat().st_ino for each in (path, *path.parents[:3])} <= durable
        commit(table, actions, *words, **named)

    monkeypatch.setattr("os.fsync", note)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", require)
    run(tmp_path, log)
    (table_log,) = tmp_path.glob("_delta_log")
    assert {each.stat().st_ino for each in (table_log, *table_log.glob("*.json"))} <= durable


# -- two at a time --------------------------------------------------------------------------------


def others(second: SecondRun) -> dict[str, Callable[[], object]]:
    def tidy() -> None:
        second()
        compact(Archive(second.root), HERE, 1 << 20, [])
        vacuum(Archive(second.root), 3_600_000)

    return {
        "archiver": second,
        "archiver, compaction and vacuum": tidy,
        "compaction": lambda: compact(Archive(second.root), HERE, 1 << 20, []),
    }


@pytest.mark.parametrize("who", ["archiver", "archiver, compaction and vacuum", "compaction"])
def test_somebody_else_at_every_step(steps: Steps, who: str, tmp_path: Path) -> None:
    lost = 0
    for number in steps.of(SecondRun(tmp_path / "all"), tmp_path):
        second = SecondRun(tmp_path / f"{number}")
        steps.at(number, others(second)[who])
        try:
            second()
        except LostRace:
            lost += 1
        second()
        second.is_done()
    assert (lost > 0) is (who != "compaction")


def test_many_at_a_time(log: MemoryLog, tmp_path: Path) -> None:
    """Of archivers that commit at the same moment one wins, and nothing is there twice."""
    run(tmp_path, log)
    ends = []
    for _ in range(5):
        put_numbers(log, 6)
        gate = threading.Barrier(3)

        class Together(Committer):
            def commit(self, pieces: Any) -> None:
                gate.wait()  # noqa: B023 - of this round
                super().commit(pieces)

        def work() -> None:
            try:
                run(tmp_path, log, target=Together(str(tmp_path)))
                ends.append("won")
            except LostRace:
                ends.append("lost")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(ends) == ["lost"] * 10 + ["won"] * 5
    assert bodies(tmp_path) == numbers(COUNT + 30)
    is_whole(tmp_path)


def test_archivers_of_different_topics_do_not_disturb_each_other(
    log: MemoryLog, tmp_path: Path
) -> None:
    put_numbers(log, 5, "other")
    run(tmp_path, log, topics=["other"])

    class Late(Committer):
        def commit(self, pieces: Any) -> None:
            put_numbers(log, 5, "other")
            run(tmp_path, log, topics=["other"])
            super().commit(pieces)

    run(tmp_path, log, topics=["orders"], target=Late(str(tmp_path)))
    assert bodies(tmp_path) == numbers(COUNT)
    assert bodies(tmp_path, "other") == numbers(10)


# -- pieces of it ---------------------------------------------------------------------------------


def test_tasks_are_alike_and_cover_all() -> None:
    span = Span("t", 0, "1", 0, 1_000, 100_000)
    plan = LanePlan(span, 0, 100, 900, [])
    tasks = tasks_of(plan, 30_000)
    assert [(task.start, task.stop) for task in tasks] == [(100, 366), (366, 633), (633, 900)]
    assert tasks_of(LanePlan(span, 0, 5, 5, []), 10) == []
    assert len(tasks_of(LanePlan(span, 0, 0, 3, []), 1)) == 3  # a message is not divided


def test_small_tasks_go_together() -> None:
    span = Span("t", 0, "1", 0, 10, 10)
    tasks = [Task(span, number, number + 1, 10) for number in range(10)]
    assert [len(each) for each in slices(tasks, 1_000, 2)] == [5, 5]
    assert [len(each) for each in slices(tasks, 30, 1)] == [3, 3, 3, 1]
    assert slices([], 10, 1) == []


def test_what_is_no_directory() -> None:
    with pytest.raises(Usage, match="object stores"):
        local_directory("s3://bucket/x")
    assert local_directory("file:///srv/archive") == "/srv/archive"
