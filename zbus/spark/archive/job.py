"""The job `archive`: plan, do, commit, until all is archived that there was at the beginning.

Work is done in rounds. After each, what is done without a hole is committed, partition by
partition. A driver that dies leaves files that no commit names; the next one goes on behind the
last commit, and `vacuum` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import attrs

from zbus.spark.archive.commit import Committer, Piece
from zbus.spark.archive.lock import Lock, NoLock
from zbus.spark.archive.plan import LanePlan, choose_topics, plan_lane, tasks_of
from zbus.spark.archive.table import Gap, Lane
from zbus.spark.archive.tasks import (
    SLICES_PER_WORKER,
    Done,
    Engine,
    Opener,
    Setting,
    Task,
    archive_slice,
    slices,
)
from zbus.spark.archive.writer import Shape
from zbus.spark.errors import DataLoss, SparkProblem
from zbus.spark.logs import Log, Span
from zbus.spark.progress import Progress, Silence
from zbus.storage.local.files import reason
from zbus.storage.port import JournalError


@attrs.define
class LaneReport:
    """What was done with a partition, or is to be."""

    topic: str
    partition: int
    incarnation: str
    start: int
    end: int
    messages: int = 0
    files: int = 0
    bytes: int = 0  # of the files; of a plan: of the log, about
    gaps: list[Gap] = attrs.Factory(list)
    recreated: bool = False  # the archive had another topic of this name


@attrs.define
class Report:
    """What a run has done."""

    lanes: list[LaneReport] = attrs.Factory(list)
    seconds: float = 0.0

    @property
    def messages(self) -> int:
        return sum(lane.messages for lane in self.lanes)

    def document(self) -> dict[str, Any]:
        lanes = [
            {
                **attrs.asdict(lane, recurse=False),
                "gaps": [gap._asdict() for gap in lane.gaps],
            }
            for lane in self.lanes
        ]
        return {
            "messages": self.messages,
            "files": sum(lane.files for lane in self.lanes),
            "bytes": sum(lane.bytes for lane in self.lanes),
            "seconds": round(self.seconds, 3),
            "lanes": lanes,
        }


@attrs.frozen(kw_only=True)
class Job:
    """What is archived, where to, and how."""

    opener: Opener
    root: str
    target: Committer
    engine: Engine
    topics: Sequence[str] = ()
    pattern: str | None = None
    until_ms: int | None = None
    allow_loss: bool = False
    shape: Shape = attrs.Factory(Shape)
    rate_bytes_s: float | None = None
    progress: Progress = attrs.Factory(Silence)
    lock: Lock = attrs.Factory(NoLock)
    now_ms: Callable[[], int]

    def plan(self) -> Report:
        """What a run would do now. Nothing is written."""
        with self.opener() as log:
            plans = self._plans(log)
        return Report([_planned(plan) for plan in plans])

    def run(self) -> Report:
        """Archive what there is now. Raises SparkProblem; what was committed before stays."""
        begun_ms = self.now_ms()
        report: dict[tuple[str, int], LaneReport] = {}
        try:
            with self.opener() as log:
                for topic in choose_topics(log, self.topics, self.pattern):
                    self.lock.hold(topic)
                plans = self._plans(log, self.lock)
                self.target.begin()  # nothing is made for what cannot be
                self.progress.begin(sum(plan.bytes for plan in plans))
                while plans:
                    lost = self._work(plans, report)
                    plans = [self._again(log, plan, done) for plan, done in lost]
        except (OSError, JournalError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise SparkProblem(f"{self.root}: {why}") from error
        return Report(list(report.values()), (self.now_ms() - begun_ms) / 1_000)

    # -- planning -----------------------------------------------------------------------------

    def _plans(self, log: Log, lock: Lock | None = None) -> list[LanePlan]:
        topics = choose_topics(log, self.topics, self.pattern)
        plans = [self._plan(log, span) for topic in topics for span in log.spans(topic)]
        if lock is not None:
            for plan in plans:
                lock.move(plan.span.topic, plan.span.partition, plan.first)
        return [plan for plan in plans if plan.stop > plan.start]

    def _plan(self, log: Log, span: Span) -> LanePlan:
        resume = self.target.resume(span.topic, span.partition)
        if resume is not None and span.end < resume.end:
            # Another run archived what came after the span was listed, or it is another log.
            span = log.spans(span.topic)[span.partition]
        return plan_lane(
            log,
            span,
            resume,
            until_ms=self.until_ms,
            allow_loss=self.allow_loss,
        )

    def _again(self, log: Log, plan: LanePlan, done: Done) -> LanePlan:
        """The retention was faster: what is left now. Raises what it was if nothing has changed."""
        assert done.problem is not None
        spans = log.spans(plan.span.topic)
        if plan.span.partition >= len(spans):
            raise done.problem
        again = self._plan(log, spans[plan.span.partition])
        if again.span.incarnation == plan.span.incarnation and again.first <= done.task.start:
            raise done.problem
        return again

    # -- doing --------------------------------------------------------------------------------

    def _work(
        self, plans: list[LanePlan], report: dict[tuple[str, int], LaneReport]
    ) -> list[tuple[LanePlan, Done]]:
        """Do all of it. Gives the partitions of which something was lost, if that is allowed."""
        size = self.shape.file_bytes
        tasks = [task for plan in plans for task in tasks_of(plan, size)]
        made = slices(tasks, size, self.engine.workers)
        setting = Setting(opener=self.opener, root=self.root, shape=self.shape)
        lanes = {plan.lane: _Progressing(plan) for plan in plans}
        while True:
            some, made = self._round(made)
            rate = None if self.rate_bytes_s is None else self.rate_bytes_s / max(1, len(some))
            of_round = attrs.evolve(setting, rate_bytes_s=rate)
            for dones in self.engine.each(partial(archive_slice, setting=of_round), some):
                for done in dones:
                    lanes[Lane(*done.task.span[:3])].add(done)
                    self.progress.advance(done.task.bytes if done.problem is None else 0)
            self._commit(lanes.values(), report)
            self._raise_first(lanes.values())
            if not made:
                break
        return [(lane.plan, lane.lost) for lane in lanes.values() if lane.lost is not None]

    def _round(self, made: list[list[Task]]) -> tuple[list[list[Task]], list[list[Task]]]:
        """What is done next, and what is left. At a rate all of a round is done at the same time,
        with a part of the rate each: none goes faster if an executor comes meanwhile."""
        size = self.engine.workers * (SLICES_PER_WORKER if self.rate_bytes_s is None else 1)
        return made[:size], made[size:]

    def _commit(
        self, lanes: Iterable[_Progressing], report: dict[tuple[str, int], LaneReport]
    ) -> None:
        pieces = [(lane.plan, piece) for lane in lanes if (piece := lane.piece()) is not None]
        if not pieces:
            return
        self.target.commit([piece for _, piece in pieces])
        for plan, piece in pieces:
            topic, partition, incarnation = piece.lane
            self.lock.move(topic, partition, piece.end)
            row = report.get((topic, partition))
            if row is None or row.incarnation != incarnation:
                row = report[topic, partition] = LaneReport(*piece.lane, piece.start, piece.end)
                row.recreated = plan.recreated is not None
            row.end = piece.end
            row.messages += sum(file.rows for file in piece.files)
            row.files += len(piece.files)
            row.bytes += sum(file.bytes for file in piece.files)
            row.gaps += piece.gaps

    def _raise_first(self, lanes: Iterable[_Progressing]) -> None:
        for lane in lanes:
            problem = None if lane.lost is None else lane.lost.problem
            if problem is not None and not (self.allow_loss and isinstance(problem, DataLoss)):
                raise problem


class _Progressing:
    """A partition on its way: what is done, and what of that is committed."""

    def __init__(self, plan: LanePlan) -> None:
        self.plan = plan
        self.lost: Done | None = None
        self._at = plan.start
        self._read = plan.first
        self._gaps = plan.gaps
        self._done: dict[int, Done] = {}

    def add(self, done: Done) -> None:
        if done.problem is None:
            self._done[done.task.start] = done
        elif self.lost is None or done.task.start < self.lost.task.start:
            self.lost = done

    def piece(self) -> Piece | None:
        """What follows on what is committed; None: nothing yet."""
        files, gaps, start = [], self._gaps, self._at
        while self._read in self._done:
            done = self._done.pop(self._read)
            files += done.files
            self._read = done.task.stop
        if self._read == start:
            return None
        self._at, self._gaps = self._read, []
        return Piece(self.plan.lane, start, self._at, files, gaps)


def _planned(plan: LanePlan) -> LaneReport:
    return LaneReport(
        *plan.lane,
        plan.start,
        plan.stop,
        messages=plan.messages,
        bytes=plan.bytes,
        gaps=plan.gaps,
        recreated=plan.recreated is not None,
    )
