"""Taking segments and topics away.

A name goes at once, by a rename, and what it stood for is deleted later, on another thread. A crash
between the two leaves a name that the next start takes for what it is.

The segments of a lane go one after another, the oldest first, each durably before the next: a crash
must not leave a gap. So what is asked for while others are on their way waits for those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from zbus.storage.local import naming
from zbus.storage.local.directory import remove_tree
from zbus.storage.local.files import Files
from zbus.storage.local.lane import LocalLane
from zbus.storage.local.reader import Reader
from zbus.storage.local.reserve import Reserve
from zbus.storage.local.segment import Segment
from zbus.storage.local.syncer import Syncer
from zbus.storage.port import JournalFull

WhenDurable = Callable[[LocalLane, Callable[[], None]], None]
"""Calls back when all that was written to the lane so far is durable."""


class Removal:
    """See above. `fail` is called when the disk fails."""

    def __init__(
        self,
        files: Files,
        data_dir: Path,
        reserve: Reserve,
        syncer: Syncer,
        reader: Reader,
        when_durable: WhenDurable,
        fail: Callable[[str], None],
    ) -> None:
        self._files = files
        self._data_dir = data_dir
        self._reserve = reserve
        self._syncer = syncer
        self._reader = reader
        self._when_durable = when_durable
        self._fail = fail
        self._count = 0  # of names so far, each of them used once
        self.round = 0  # of the syncer: after it, no directory comes back that was removed so far
        self._closed = False

    def close(self) -> None:
        """Delete nothing more: the next start does."""
        self._closed = True

    def trim(self, lane: LocalLane, before: int) -> None:
        """Remove the segments that end at or before the offset `before`, as soon as what was
        written until now is durable: what they held is in the newest checkpoint."""
        segments = lane.segments.forget_before(before)
        if not segments:
            return
        lane.leaving.append(segments)
        if len(lane.leaving) == 1:
            self._when_durable(lane, partial(self._remove_next, lane))

    def _remove_next(self, lane: LocalLane) -> None:
        if not lane.leaving:  # all of the lane went meanwhile
            return
        segments = lane.leaving[0]
        oldest = segments[0]
        try:
            removed = self._rename(lane.directory, oldest.path)
        except JournalFull:
            lane.keep_leaving()  # there is no room to make room: another time
            return
        except OSError as error:
            self._fail(f"removing segments of {lane.directory} failed: {error}")
            return
        oldest.removed = True
        self._reader.remove([oldest], partial(self._files.remove, removed), self._fail)
        lane.dirty_above(lane.directory)
        del segments[0]
        if not segments:
            lane.leaving.popleft()
        if lane.leaving:
            self._when_durable(lane, partial(self._remove_next, lane))

    def remove_topic(
        self,
        path: Path,
        segments: Sequence[Segment],
        done: Callable[[], None],
        also: Callable[[], None] | None = None,
    ) -> None:
        """Take the name of a topic's directory away, durably before anything in it: a crash leaves
        all of it or nothing. What may take long is done elsewhere. The syncer does `also` when the
        name is gone."""
        try:
            try:
                removed = self._rename(self._data_dir, path)
            except JournalFull:
                if not self._reserve.free():
                    raise
                removed = self._rename(self._data_dir, path)
        except (OSError, JournalFull) as error:
            self._fail(f"removing {path} failed: {error}")
            return

        def gone() -> None:
            if not self._closed:
                self._reader.remove(
                    segments, partial(remove_tree, self._files, removed), self._fail
                )
            done()

        self._syncer.collecting.directories.add(self._data_dir)
        self._syncer.renamed()
        if also is not None:
            self._syncer.collecting.also.append(also)
        self.round = self._syncer.start()
        self._syncer.wait(self.round, gone)

    def _rename(self, directory: Path, path: Path) -> Path:
        self._count += 1
        name = path.name if directory != self._data_dir else ""  # it may be as long as can be
        removed = directory / f"{naming.REMOVED_PREFIX}{name}-{self._count}"
        self._files.rename(path, removed)
        return removed
