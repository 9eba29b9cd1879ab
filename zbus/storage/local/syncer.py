"""Group commit: one sync in flight, and everything that comes meanwhile shares the next one.

Syncs come in numbered rounds. A round is a set of dirty files and directories; while one runs,
the next one collects. A writer adds a file to that one, which has a number (`start`); a caller that
needs the outcome waits for a number (`wait`). Adding and waiting are apart because a lane may have
nothing new and still have to wait for a round that is under way.

    collecting -- the worker is free --> running -- posted --> done: the waiters are called

Everything but the sync itself happens on the broker's thread, so nothing here needs a lock.

Handing a sync to the worker and back costs about as much as a quick sync. So the broker's thread
syncs by itself what is little and in one file, when the disk is quick and the turn can bear it.
Every round is measured, wherever it runs. After a slow one the worker makes all of them, for so
long that the broker's thread waits for slow syncs in no more than one part in `SLOW_PAUSE` of the
time.

A sync that fails is final. The kernel may have dropped the pages it could not write and report
success the next time, so there must be no next time: no waiter is called any more, no sync is
tried, and `fail` is told once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from zbus.storage.local.files import Files, opened
from zbus.storage.local.segment import Segment
from zbus.storage.local.worker import Worker
from zbus.storage.port import JournalFull, Post

FILES_MAX: Final = 8  # to sync one by one; one sync of the file system is cheaper for more

QUICK_S: Final = 0.001
"""As long may the broker's thread wait for a sync: about as a turn of its loop may take."""

LITTLE_BYTES: Final = 128 << 10
"""The worker syncs what is more, however quick the disk is: it takes longer."""

SLOW_PAUSE: Final = 100
"""The broker's thread makes no sync for that many times as long as a slow one took."""


class Round:
    """What one sync covers and who waits for it. As long as it collects, anybody may add to it."""

    __slots__ = (
        "also",
        "directories",
        "error",
        "files",
        "number",
        "segments",
        "waiters",
        "written_bytes",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.written_bytes = 0  # written to files since the rounds before
        self.files: set[int] = set()
        self.segments: set[Segment] = set()  # that are not open any more
        self.directories: set[Path] = set()
        # To be done on the worker when all that is synced; may fail like a sync.
        self.also: list[Callable[[], None]] = []
        self.waiters: list[Callable[[], None]] = []
        self.error: str | None = None  # set by the worker before it posts

    @property
    def empty(self) -> bool:
        return not (self.files or self.directories or self.segments or self.also)

    @property
    def small(self) -> bool:
        """It is little in one file, and no caller waits for it yet."""
        others = self.directories or self.segments or self.also or self.waiters
        return len(self.files) == 1 and self.written_bytes <= LITTLE_BYTES and not others


class Syncer:
    """See above. The methods belong to the broker's thread; what is posted is called on it, soon
    but not within the same turn."""

    def __init__(
        self,
        files: Files,
        worker: Worker,
        post: Post,
        fail: Callable[[str], None],
        anchor: int | None = None,
        observe: Callable[[float], None] = lambda seconds: None,
        may_sync: Callable[[], bool] = lambda: False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`anchor` is a file that stays open, to sync everything by. Having been open all the
        time, it learns of any write that failed meanwhile, also in files that were closed.
        `observe` is called, on the thread that syncs, with the time that each round took.
        `may_sync` says whether a quick sync on the broker's thread costs others little now."""
        self._files = files
        self._anchor = anchor
        self._observe = observe
        self._may_sync = may_sync
        self._clock_s = clock_s
        self._quick_from_s = 0.0  # until then the disk counts as slow
        self._worker = worker
        self._post = post
        self._fail = fail
        self._running: Round | None = None
        self.collecting = Round(1)
        self._retired: set[int] = set()  # files to be closed when no round needs them
        self._closed = False
        self.failed = False

    def start(self) -> int:
        """Make durable soon, or now, what was added to `collecting`; give the number of its
        round."""
        number = self.collecting.number
        self._start()
        return number

    def wait(self, number: int, done: Callable[[], None]) -> None:
        """Call `done` when the round of that number is done: at once if it was."""
        if self.failed:
            return
        if self._running is not None and number == self._running.number:
            self._running.waiters.append(done)
        elif number >= self.collecting.number:
            self.collecting.waiters.append(done)
        else:
            done()

    def renamed(self) -> None:
        """A directory was renamed, and `collecting` makes that durable. The running round may not
        find it under its old name, so its waiters wait for both rounds."""
        running = self._running
        if running is not None and (running.directories or running.segments):
            self.collecting.waiters[:0] = running.waiters
            running.waiters = []

    def retire(self, file: int) -> None:
        """Close a file, but not under the feet of a sync."""
        if self._needed(file):
            self._retired.add(file)
        else:
            self._files.close(file)

    def let_go(self, file: int, segment: Segment) -> bool:
        """Close a segment's file, maybe dirty, as soon as can be: what still has to be synced
        of it is synced by its path. False if it has to wait for the sync that runs."""
        collecting = self.collecting
        if file in collecting.files:
            collecting.files.remove(file)
            collecting.segments.add(segment)
        self.retire(file)
        return file not in self._retired

    def close(self) -> None:
        """Stop the worker; sync here and now all that is left, and what was added."""
        self._worker.stop()
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            self._finish(running)
        last = self.collecting
        if not self.failed:
            self._sync(last)
        self.collecting = Round(last.number + 1)
        if not self.failed:
            self._finish(last)
        for file in self._retired:
            self._files.close(file)
        self._retired.clear()

    def _needed(self, file: int) -> bool:
        running = self._running
        return file in self.collecting.files or (running is not None and file in running.files)

    def _start(self) -> None:
        round_ = self.collecting
        if self._running is not None or self.failed or self._closed:
            return
        if round_.empty:
            return
        self._running = round_
        self.collecting = Round(round_.number + 1)
        if round_.small and self._may_sync() and self._clock_s() >= self._quick_from_s:
            self._sync_timed(round_)
            self._finished(round_)
        else:
            self._worker.submit(partial(self._work, round_))

    def _work(self, round_: Round) -> None:  # on the worker's thread
        if self.failed:  # since it was submitted: a file whose sync failed is not synced again
            round_.error = "sync failed before"
        else:
            self._sync_timed(round_)
        self._post(partial(self._finished, round_))

    def _sync_timed(self, round_: Round) -> None:
        began_s = self._clock_s()
        self._sync(round_)
        ended_s = self._clock_s()
        if (took_s := ended_s - began_s) > QUICK_S:
            self._quick_from_s = ended_s + SLOW_PAUSE * took_s
        self._observe(took_s)

    def _sync(self, round_: Round) -> None:
        try:
            count = len(round_.files) + len(round_.segments) + len(round_.directories)
            if count <= FILES_MAX or not self._sync_all(round_):
                try:
                    self._sync_each(round_)
                except JournalFull:  # of descriptors: nothing has failed, and this needs none
                    if not self._sync_all(round_):
                        raise
            for work in round_.also:
                work()
        except Exception as error:  # whatever it was: this round did not make anything durable
            round_.error = f"sync failed: {error}"

    def _sync_all(self, round_: Round) -> bool:
        anchor = min(round_.files, default=None) if self._anchor is None else self._anchor
        return anchor is not None and self._files.sync_all(anchor)

    def _sync_each(self, round_: Round) -> None:
        for file in sorted(round_.files):
            self._files.sync(file)
        # What was removed meanwhile has nothing to keep.
        for path in sorted([segment.path for segment in round_.segments]):
            with suppress(FileNotFoundError, NotADirectoryError):
                self._sync_closed(path)
        for directory in sorted(round_.directories):
            with suppress(FileNotFoundError):
                self._files.sync_directory(directory)

    def _sync_closed(self, path: Path) -> None:
        with opened(self._files, path, "write") as file:
            self._files.sync(file)

    def _finished(self, round_: Round) -> None:
        if round_ is not self._running:  # closed meanwhile, and finished there
            return
        self._running = None
        self._finish(round_)
        if not self.collecting.empty:
            # With what the turn that goes on is about to write, if anything (then `start` does it).
            self._post(self._start)

    def _finish(self, round_: Round) -> None:
        if round_.error is not None:
            self.failed = True
            self._fail(round_.error)
            return
        for file in [file for file in self._retired if not self._needed(file)]:
            self._retired.remove(file)
            self._files.close(file)
        for done in round_.waiters if not self.failed else ():
            done()
