"""The job: each offset once, whatever is killed, and whoever else is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from tests.limits import checked
from tests.spark.archive.harness import (
    HERE,
    ROOT,
    Killed,
    LinkDisk,
    bodies,
    chains,
    changes_of,
    job,
    kill_at,
    lane,
    numbers,
    put_numbers,
    run,
)
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import chain
from zbus.spark.archive.compact import compact
from zbus.spark.archive.job import local_directory, parse_time_ms
from zbus.spark.archive.plan import LanePlan, choose_topics, tasks_of
from zbus.spark.archive.records import BEFORE, RETENTION
from zbus.spark.archive.sink import ParquetTarget
from zbus.spark.archive.tasks import Task, slices
from zbus.spark.archive.vacuum import vacuum
from zbus.spark.archive.verify import verify
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


def is_whole(disk: LinkDisk) -> None:
    assert verify(chains(disk), HERE, [], files=disk).wrong == []


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
    log: MemoryLog, rate: float | None, rounds: list[tuple[int, float | None]]
) -> None:
    engine = Growing()
    shape = Shape(file_bytes=1, group_bytes=150)
    assert run(LinkDisk(), log, engine=engine, shape=shape, rate_bytes_s=rate).messages == COUNT
    assert engine.rounds == rounds


# -- what is archived -----------------------------------------------------------------------------


def test_all_that_there_is_and_then_what_has_come(log: MemoryLog) -> None:
    disk = LinkDisk()
    first = run(disk, log)
    assert (first.messages, first.lanes[0].start, first.lanes[0].end) == (COUNT, 0, COUNT)
    assert first.lanes[0].files > 1
    assert run(disk, log).lanes == []
    put_numbers(log, 10)
    second = run(disk, log)
    assert (second.messages, second.lanes[0].start) == (10, COUNT)
    assert bodies(disk) == numbers(COUNT + 10)
    is_whole(disk)


def test_each_partition_has_its_chain(log: MemoryLog) -> None:
    log.put("orders", [b"x"], 1)
    log.stored["empty"], log.incarnations["empty"] = [[]], "1"
    disk = LinkDisk()
    run(disk, log)
    assert list(chains(disk).lanes()) == [("orders", 0), ("orders", 1)]
    assert bodies(disk, partition=1) == [(0, b"x")]
    is_whole(disk)


def test_until_a_time(log: MemoryLog) -> None:
    put_numbers(log, 5, time_ms=TIME_MS + 10)
    disk = LinkDisk()
    assert run(disk, log, until_ms=TIME_MS + 10).messages == COUNT
    assert run(disk, log).messages == 5
    assert bodies(disk) == numbers(COUNT + 5)


def test_a_dry_run_writes_nothing(log: MemoryLog) -> None:
    disk = LinkDisk()
    log.first["orders", 0] = 6
    report = job(disk, log).plan()
    assert (report.messages, [gap.end for gap in report.lanes[0].gaps]) == (COUNT - 6, [6])
    assert disk.list_all() == []


def test_many_small_topics_share_tasks() -> None:
    many = MemoryLog()
    for number in range(30):
        many.put(f"t{number}", [b"x" * 10])
    asked: list[int] = []

    class Counting:
        workers = 2

        def each(self, function: Callable, items: list) -> object:
            asked.append(len(items))
            return map(function, items)

    disk = LinkDisk()
    assert run(disk, many, engine=Counting(), shape=Shape(file_bytes=600)).messages == 30
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
    log: MemoryLog, topics: list[str], pattern: str | None, problem: type[Exception], said: str
) -> None:
    with pytest.raises(problem, match=said):
        run(LinkDisk(), log, topics=topics, pattern=pattern)


# -- what is gone ---------------------------------------------------------------------------------


def test_what_was_gone_before_there_was_an_archive_is_a_gap(log: MemoryLog) -> None:
    log.first["orders", 0] = 12
    disk = LinkDisk()
    (done,) = run(disk, log).lanes
    assert [(gap.start, gap.end, gap.reason) for gap in done.gaps] == [(0, 12, BEFORE)]
    assert bodies(disk) == numbers(COUNT, 12)
    is_whole(disk)


def test_the_retention_was_faster(log: MemoryLog) -> None:
    disk = LinkDisk()
    run(disk, log)
    for _ in range(3):
        put_numbers(log, 6)
    log.first["orders", 0] = COUNT + 12
    with pytest.raises(DataLoss, match=f"{COUNT} to {COUNT + 12}.*--allow-loss"):
        run(disk, log)
    (done,) = run(disk, log, allow_loss=True).lanes
    assert [(gap.start, gap.end, gap.reason) for gap in done.gaps] == [(60, 72, RETENTION)]
    assert bodies(disk) == numbers(COUNT) + numbers(COUNT + 18, COUNT + 12)
    is_whole(disk)


def test_all_of_it_is_gone(log: MemoryLog) -> None:
    disk = LinkDisk()
    log.first["orders", 0] = COUNT
    (done,) = run(disk, log).lanes
    assert (done.messages, done.end) == (0, COUNT)
    assert run(disk, log).lanes == []
    is_whole(disk)


class Overtaken(MemoryLog):
    """The retention removes what is read, `times` times."""

    times = 1

    def raw(self, span: Span, start: int, stop: int) -> object:  # type: ignore[override]
        if self.times:
            self.times -= 1
            self.first[span.topic, 0] = start + 6
        return super().raw(span, start, stop)


def test_the_retention_is_faster_between_plan_and_read(log: MemoryLog) -> None:
    overtaken = Overtaken()
    overtaken.stored, overtaken.incarnations = log.stored, log.incarnations
    with pytest.raises(DataLoss):
        run(LinkDisk(), overtaken)
    overtaken.first.clear()
    overtaken.times = 3
    disk = LinkDisk()
    report = run(disk, overtaken, allow_loss=True)
    assert bodies(disk) == numbers(COUNT, 18)
    assert report.lanes[0].end == COUNT
    is_whole(disk)


def test_damage_is_not_taken_for_retention(log: MemoryLog) -> None:
    """However much loss is allowed, it comes to an end."""
    raw = log.stored["orders"][0][5]
    log.stored["orders"][0][5] = raw[:-1] + bytes([raw[-1] ^ 1])
    disk = LinkDisk()
    with pytest.raises(DataLoss, match="damaged"):
        run(disk, log, allow_loss=True, shape=Shape(file_bytes=150))
    assert bodies(disk) == numbers(len(bodies(disk)))  # what came before is kept
    is_whole(disk)


def test_a_topic_that_was_made_again(log: MemoryLog) -> None:
    disk = LinkDisk()
    run(disk, log)
    again = MemoryLog()
    put_numbers(again, 8)
    again.incarnations["orders"] = "2"
    before = disk.list_all()
    with pytest.raises(DataLoss, match=f"made again.*behind offset {COUNT} .*--allow-loss"):
        run(disk, again)
    assert disk.list_all() == before
    (done,) = run(disk, again, allow_loss=True).lanes
    assert (done.recreated, done.start, done.end, done.incarnation) == (True, 0, 8, "2")
    assert bodies(disk) == numbers(COUNT) + numbers(8)
    found = lane(disk)
    assert [(era.incarnation, era.position) for era in found.eras] == [("1", 0), ("2", COUNT)]
    put_numbers(again, 2)
    assert not run(disk, again).lanes[0].recreated
    is_whole(disk)


def test_a_log_that_is_older_than_the_archive(log: MemoryLog) -> None:
    disk = LinkDisk()
    run(disk, log)
    del log.stored["orders"][0][-1]
    with pytest.raises(DataLoss, match="older than the archive"):
        run(disk, log, allow_loss=True)


# -- killed ---------------------------------------------------------------------------------------


def a_second_run() -> tuple[LinkDisk, Callable[[], object]]:
    log = MemoryLog()
    put_numbers(log, 9)
    log.put("orders", [b"a", b"b"], 1)
    disk = LinkDisk()
    run(disk, log)
    put_numbers(log, 9)
    put_numbers(log, 9)
    log.put("orders", [b"c"], 1)
    return disk, lambda: run(disk, log)


@pytest.mark.parametrize("power", [True, *checked([False])], ids=["power cut", "killed"])
def test_killed_at_every_operation(power: bool) -> None:
    for index in changes_of(*a_second_run()):
        disk, work = a_second_run()
        kill_at(disk, index)
        with pytest.raises(Killed):
            work()
        left = disk.crash(Random(index)) if power else disk.kill()
        before = bodies(left)
        assert before in (numbers(9), numbers(27))
        assert bodies(left, partition=1) in (
            [(0, b"a"), (1, b"b")],
            [(0, b"a"), (1, b"b"), (2, b"c")],
        )
        log = MemoryLog()
        for _ in range(3):
            put_numbers(log, 9)
        log.put("orders", [b"a", b"b"], 1)
        log.put("orders", [b"c"], 1)
        run(left, log)
        assert bodies(left) == numbers(27), index
        assert bodies(left, partition=1) == [(0, b"a"), (1, b"b"), (2, b"c")]
        is_whole(left)
        # What was left is found, and nothing else.
        removed = vacuum(chains(left), 1 << 43)
        assert removed.foreign == removed.records == []
        assert bodies(left) == numbers(27)
        assert vacuum(chains(left), 1 << 43).data == []


def test_a_full_disk_says_so(log: MemoryLog) -> None:
    disk = LinkDisk()
    disk.capacity_bytes = 3_000
    with pytest.raises(SparkProblem, match=r"(?i)space"):
        run(disk, log)
    disk.capacity_bytes = None
    run(disk, log)
    assert bodies(disk) == numbers(COUNT)


# -- two at a time --------------------------------------------------------------------------------


def once_at(disk: LinkDisk, index: int, other: Callable[[], object]) -> None:
    """At that operation somebody else does something."""

    def fault(operation: object) -> None:
        if disk.operations > index:
            disk.faults = None
            other()

    disk.faults = fault


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot after every commit."""
    monkeypatch.setattr(chain, "SNAPSHOT_COMMITS", 1)


def others(disk: LinkDisk, log: MemoryLog) -> dict[str, Callable[[], object]]:
    def tidy() -> None:
        run(disk, log, now=lambda: 1_000)
        compact(chains(disk), Shape(), HERE, 2_000, [], files=disk)
        put_numbers(log, 3)
        run(disk, log, now=lambda: 3_000)
        compact(chains(disk), Shape(), HERE, 4_000, [], files=disk)
        vacuum(chains(disk), 1 << 39)  # all records, no files: those have today's times

    return {
        "archiver": lambda: run(disk, log),
        "archiver and vacuum": tidy,
        "compaction": lambda: compact(chains(disk), Shape(), HERE, 1_000, [], files=disk),
    }


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize("who", ["archiver", "archiver and vacuum", "compaction"])
def test_somebody_else_at_every_operation(who: str) -> None:
    lost = 0
    for index in changes_of(*a_second_run_at_old_times()):
        disk, work = a_second_run_at_old_times()
        log: MemoryLog = work.log
        once_at(disk, index, others(disk, log)[who])
        try:
            work()
        except LostRace:
            lost += 1
        run(disk, log)
        assert bodies(disk) == numbers(log.spans("orders")[0].end), index
        is_whole(disk)
    assert (lost > 0) is (who != "compaction")


class _Work:
    def __init__(self, disk: LinkDisk, log: MemoryLog) -> None:
        self.log = log
        self._disk = disk

    def __call__(self) -> object:
        return run(self._disk, self.log, now=lambda: 1 << 41)  # not old enough for the vacuum


def a_second_run_at_old_times() -> tuple[LinkDisk, _Work]:
    log = MemoryLog()
    put_numbers(log, 4)
    disk = LinkDisk()
    run(disk, log, now=lambda: 500)
    put_numbers(log, 4)
    return disk, _Work(disk, log)


def test_who_remembers_an_old_lane_loses(log: MemoryLog) -> None:
    disk = LinkDisk()
    late = ParquetTarget(chains(disk))
    late.begin(0)
    assert late.resume("orders", 0) is None
    run(disk, log)
    before = disk.list_all()
    with pytest.raises(LostRace, match="another run has archived from offset 0"):
        run(disk, log, target=late)
    assert [path for path in disk.list_all() if "_zbus" in path.parts] == [
        path for path in before if "_zbus" in path.parts
    ]
    run(disk, log, target=late)  # it looks again
    assert bodies(disk) == numbers(COUNT)


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


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("now", None),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times(text: str, time_ms: int | None) -> None:
    assert parse_time_ms(text) == time_ms


def test_what_is_no_time_and_no_directory() -> None:
    with pytest.raises(Usage, match="not a time"):
        parse_time_ms("yesterday")
    with pytest.raises(Usage, match="object stores"):
        local_directory("s3://bucket/x")
    assert local_directory("file:///srv/archive") == "/srv/archive"


def test_another_format_is_refused(log: MemoryLog) -> None:
    disk = LinkDisk()
    run(disk, log)
    disk.write_file(ROOT / "_zbus/archive.json", b'{"format": 2}')
    with pytest.raises(Usage, match="newer"):
        run(disk, log)
