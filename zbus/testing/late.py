"""An engine whose every answer comes late, in any order across lanes, with any verdict.

What is asked of a lane waits until `step` does it, one thing after another; a lane knows nothing of
the others. So a test decides when what becomes known, and what becomes of it: the broker and
whatever else builds on the port has to be right for every order and every verdict.

Only `remove` ties lanes together, since after a crash all of them are there or none: a lane that
has come so far is not among `waiting` until the others have come so far as well.

    journal = LateJournal(post)
    journal.append(lane, 0, batches)
    journal.commit([lane], True, done)
    journal.step(lane, Verdict.LOST)      # the append
    journal.step(lane)                    # the commit: `done` is posted, with the verdict
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial

from zbus.storage.format.batch import Batch, Kind, require_link
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import (
    CommitDone,
    Found,
    Journal,
    JournalError,
    JournalFull,
    Lane,
    OpenDone,
    Post,
    ReadDone,
    StoredLane,
    Verdict,
)

Fate = Verdict | None
"""What becomes of an append; None: it is stored."""


class LateJournal:
    """See above. `close` does all that was asked for before. To drop it instead, and make
    another one with the same engine, is a crash."""

    late = True

    def __init__(self, post: Post, stored: Journal | None = None) -> None:
        """`stored` is the engine that keeps what is stored; one in memory if none is given."""
        self.stored: Journal = MemoryJournal() if stored is None else stored
        self.verdicts: dict[Lane, Verdict] = {}
        self.stored.verdicts.clear()
        self.waiting: dict[Lane, deque[Callable[[Fate, bool], None]]] = {}
        self._held: dict[Lane, deque[Callable[[Fate, bool], None]]] = {}  # until all are there
        self._post = post

    def step(self, lane: Lane, fate: Fate = None, written: bool = False) -> None:
        """Do the oldest thing that was asked of the lane. If that is an append, `fate` becomes of
        it; one that is LOST may have been `written` all the same."""
        waiting = self.waiting[lane]
        do = waiting.popleft()
        if not waiting:
            del self.waiting[lane]
        do(fate, written)

    def run(self) -> None:
        """Do everything."""
        while self.waiting:
            self.step(next(iter(self.waiting)))

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        require_link(batches, after)
        if not after and batches[0].header.kind is not Kind.CHECKPOINT and not self._knows(lane):
            raise JournalError(f"{lane} is new and must begin with a checkpoint")
        self._ask(lane, partial(self._append, lane, after, batches))

    def _append(
        self, lane: Lane, after: int, batches: Sequence[Batch], fate: Fate, written: bool
    ) -> None:
        if lane in self.verdicts:
            return
        verdict = fate
        if fate is None or (fate is Verdict.LOST and written):
            try:
                self.stored.append(lane, after, batches)
            except JournalError as error:  # else a lane that is not there and would begin amiss
                full = isinstance(error, JournalFull)
                verdict = fate or (Verdict.FULL if full else Verdict.CONFLICT)
            verdict = verdict or self.stored.verdicts.get(lane)
            self.stored.verdicts.clear()
        if verdict is not None:
            self.verdicts[lane] = verdict

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        verdicts: dict[Lane, Verdict] = {}

        def note(lane: Lane) -> None:
            if lane in self.verdicts:
                verdicts[lane] = self.verdicts[lane]

        def commit() -> None:
            fine = [lane for lane in dict.fromkeys(lanes) if lane not in verdicts]
            self.stored.commit(fine, synced, lambda _: self._post(partial(done, verdicts)))

        self._when_all(lanes, note, commit)

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        def read(fate: Fate, written: bool) -> None:
            answered = partial(partial, done)
            self.stored.read(lane, offset, bytes_max, lambda answer: self._post(answered(answer)))

        self._ask(lane, read)

    def trim(self, lane: Lane, before: int) -> None:
        self._ask(lane, lambda fate, written: self.stored.trim(lane, before))

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        def hold(lane: Lane) -> None:
            self._held[lane] = self.waiting.pop(lane, deque())

        def forget() -> None:
            for lane in dict.fromkeys(lanes):
                self.verdicts.pop(lane, None)
                if behind := self._held.pop(lane):
                    self.waiting[lane] = behind
            self.stored.remove(lanes, partial(self._post, done))

        self._when_all(lanes, hold, forget)

    def open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        there: list[StoredLane] = []
        problems: list[JournalError] = []
        if lanes is None:
            lanes = {*self._stored_lanes(), *self.waiting, *self._held, *self.verdicts}
        unsure = set(lanes)  # what was found of these may not be on stable storage yet

        def open_one(lane: Lane) -> None:
            self.verdicts.pop(lane, None)
            self.stored.open([lane], keep, partial(sure, lane))

        def sure(lane: Lane, problem: JournalError | None) -> None:
            if problem is not None:
                problems.append(problem)
            unsure.discard(lane)
            if not unsure:
                self._post(finish)

        def keep(stored: StoredLane) -> None:
            there.append(stored._replace(batches=list(stored.batches)))

        def finish() -> None:
            for stored in there:
                found(stored)
            done(problems[0] if problems else None)

        self._when_all(sorted(lanes), open_one, lambda: None if lanes else self._post(finish))

    def upkeep(self, now_ms: int) -> None:
        self.stored.upkeep(now_ms)

    def close(self) -> None:
        self.run()
        self.stored.close()

    def _stored_lanes(self) -> list[Lane]:
        lanes: list[Lane] = []
        self.stored.open(None, lambda stored: lanes.append(stored.lane), lambda _: None)
        return lanes

    def _knows(self, lane: Lane) -> bool:
        """Whether the lane may be there when what is asked of it now is done."""
        return lane in self.waiting or lane in self._held or lane in self._stored_lanes()

    def _ask(self, lane: Lane, do: Callable[[Fate, bool], None]) -> None:
        queue = self._held.get(lane)
        if queue is None:
            queue = self.waiting.setdefault(lane, deque())
        queue.append(do)

    def _when_all(
        self, lanes: Collection[Lane], reached: Callable[[Lane], None], done: Callable[[], None]
    ) -> None:
        """Call `done` when all these lanes have come so far."""
        left = dict.fromkeys(lanes)
        if not left:
            done()

        def one(lane: Lane, fate: Fate, written: bool) -> None:
            reached(lane)
            del left[lane]
            if not left:
                done()

        for lane in list(left):
            self._ask(lane, partial(one, lane))
