"""One lane on disk: its segments, the end of the newest, and whether that is synced.

A lane grows at the end of its newest segment. An append that begins with a checkpoint rolls: it
makes the next segment. Nothing is synced here. The old segment's last bytes are handed to the
syncer before the new segment's are, and rounds come one after another: a request that waits for the
new ones waits for the old ones, too. A power cut may leave a new segment behind an old one with a
hole; then no client was told of either, and recovery knows by the landmark.

There may be more lanes than descriptors, so a lane opens its newest segment when it writes, and the
least used one gives way. What a closed file still has to have synced is synced by its path.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Final

from zbus.storage.format.batch import Batch, Kind
from zbus.storage.local import naming
from zbus.storage.local.files import Files, OpenMode
from zbus.storage.local.high_water_marks import HighWaterMark
from zbus.storage.local.opening import Found
from zbus.storage.local.segment import Segment
from zbus.storage.local.syncer import Syncer
from zbus.storage.port import JournalError, JournalFull
from zbus.storage.segments import Segments

CLOSED = -1
OPEN_SEGMENTS_MAX: Final = 1_000
IDLE_MS: Final = 30_000


def _joined(batches: Sequence[Batch]) -> bytes:
    return batches[0].raw if len(batches) == 1 else b"".join([batch.raw for batch in batches])


class LocalLane:
    """See above. Raises JournalFull or OSError; then nothing of the append is in the lane."""

    __slots__ = (
        "_end",
        "_files",
        "_first_crc",
        "_handed_over",
        "_handles",
        "_mark_crc",
        "_syncer",
        "directory",
        "dirty",
        "dirty_behind",
        "dirty_directories",
        "file",
        "key",
        "last_crc",
        "leaving",
        "mark",
        "newest",
        "round",
        "segments",
        "used_ms",
    )

    def __init__(
        self, files: Files, handles: OpenFiles, syncer: Syncer, directory: Path, key: str
    ) -> None:
        self._files = files
        self._handles = handles
        self._syncer = syncer
        self.directory = directory
        self.key = key  # its name among the landmarks
        self.segments: Segments[Segment] = Segments()
        self.newest: Segment  # the last of them, as soon as there is one
        # Segments that are being removed, by who asked for it; none of these is in `segments`.
        self.leaving: deque[list[Segment]] = deque()
        self.file = CLOSED  # the newest segment, for writing
        self.used_ms = 0  # when the engine last saw that it was written to
        self.last_crc = 0
        self._end = 0  # the offset after the last message
        # Where recovery may begin in the newest segment, and the crcs there and at its start.
        self.mark = 0
        self._mark_crc = 0
        self._first_crc = 0
        # What no round was asked to sync yet: the newest segment, older ones that a former run
        # left so, and names in directories.
        self.dirty = True
        self.dirty_behind: tuple[Segment, ...] = ()
        self.dirty_directories: tuple[Path, ...] = ()
        self.round = 0  # of the syncer: the last one asked for
        self._handed_over = 0  # bytes of the newest segment, to rounds so far

    @classmethod
    def found(cls, files: Files, handles: OpenFiles, syncer: Syncer, found: Found) -> LocalLane:
        """Go on where a former run ended."""
        lane = cls(files, handles, syncer, found.directory, found.key)
        lane.segments, lane.newest = found.segments, found.segments[-1]
        lane.last_crc, lane._end = found.last_crc or 0, found.end
        lane.mark, lane._mark_crc, lane._first_crc = found.mark, found.mark_crc, found.first_crc
        lane.dirty = not found.durable
        lane._handed_over = lane.newest.size if found.durable else 0
        if lane.dirty:
            lane.dirty_behind = tuple(segment for segment, _ in found.tails[:-1])
            lane.dirty_above(*lane._above())
        return lane

    @classmethod
    def make(
        cls,
        files: Files,
        handles: OpenFiles,
        syncer: Syncer,
        directory: Path,
        batches: Sequence[Batch],
        haunted: bool,
    ) -> LocalLane:
        """Begin a new lane with its first checkpoint. `haunted`: the landmarks on disk may speak of
        a former lane of that name, so no half of a segment may ever be seen under it."""
        try:
            files.make_directory(directory)
        except FileNotFoundError:  # the topic's first lane
            files.make_directory(directory.parent)
            files.make_directory(directory)
        lane = cls(files, handles, syncer, directory, naming.lane_key(directory))
        segment = Segment(batches[0].header.base_offset, directory, noted=True)
        write = lane._replacement if haunted else lane._write_new
        lane._begin(segment, write(segment.path, batches), batches)
        lane.dirty_above(*lane._above())
        return lane

    def _above(self) -> tuple[Path, ...]:
        return self.directory, self.directory.parent, self.directory.parent.parent

    def dirty_above(self, *directories: Path) -> None:
        """Names in these directories are not synced."""
        self.dirty_directories = tuple(dict.fromkeys((*self.dirty_directories, *directories)))

    def append(self, batches: Sequence[Batch], haunted: bool) -> None:
        """Write at the end, or roll; `haunted` as for `make`."""
        if batches[0].header.kind is Kind.CHECKPOINT:
            self._roll(batches, haunted)
            return
        newest = self.newest
        if self.file == CLOSED:
            self.file = self._handles.open(newest.path, "write")
            self._handles.hold(self)
        else:
            self._handles.used(self)
        size = newest.size
        try:
            self._files.write(self.file, _joined(batches), size)
        except BaseException:
            self._files.truncate(self.file, size)
            self.dirty = True
            # Else a power cut may bring back whole batches of it, after a client was told that
            # they were refused. A sync that finds no room is one that failed.
            try:
                self._files.sync(self.file)
            except JournalFull as error:
                raise OSError(ENOSPC, str(error)) from error
            raise
        self._wrote(batches, size)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and those after it."""
        return self.segments[self.segments.holding(offset) :]

    def keep_leaving(self) -> None:
        """Put back what is not removed yet."""
        self.segments[:0] = [segment for segments in self.leaving for segment in segments]
        self.leaving.clear()

    def landmark(self) -> HighWaterMark:
        """What is true of it as soon as all that was written so far is synced."""
        newest = self.newest
        return HighWaterMark(
            self.key,
            newest.base,
            self._first_crc,
            newest.size,
            self.mark,
            self._mark_crc,
            self._end,
        )

    def sync(self) -> None:
        """Sync it here and now."""
        self._files.sync(self.file)
        for directory in self.dirty_directories:
            self._files.sync_directory(directory)
        self._clean()  # a former segment may be on its way yet

    def hand_over(self) -> None:
        """What is dirty is synced by the round that collects."""
        round_ = self._syncer.collecting
        round_.directories.update(self.dirty_directories)
        if self.dirty:
            self._hand_over_segments()
        self._clean()
        self.round = round_.number

    def _hand_over_segments(self) -> None:
        round_ = self._syncer.collecting
        round_.segments.update(self.dirty_behind)
        round_.written_bytes += self.newest.size - self._handed_over
        self._handed_over = self.newest.size
        if self.file == CLOSED:
            round_.segments.add(self.newest)
        else:
            round_.files.add(self.file)
        self.dirty_behind = ()

    def _clean(self) -> None:
        self.dirty, self.dirty_behind, self.dirty_directories = False, (), ()

    def let_go(self) -> bool:
        """Close the newest segment; the next append opens it again. False: only after a sync."""
        file, self.file = self.file, CLOSED
        return self._syncer.let_go(file, self.newest)

    def release(self) -> None:
        """Close the newest segment for good."""
        if self.file != CLOSED:
            self._handles.drop(self)
            self._syncer.retire(self.file)
            self.file = CLOSED

    def _wrote(self, batches: Sequence[Batch], position: int) -> None:
        newest = self.newest
        for header, raw in batches:
            if header.kind is Kind.DATA:
                if newest.noted:
                    newest.note(header.base_offset, position)
            elif header.is_whole_state:
                self.mark, self._mark_crc = position, header.crc
            position += len(raw)
        newest.size = position
        self.last_crc, self._end = header.crc, header.end_offset
        self.dirty = True

    def _roll(self, batches: Sequence[Batch], haunted: bool) -> None:
        base = batches[0].header.base_offset
        old = self.newest
        if base < old.base or (base == old.base and old.has_data):
            raise JournalError(f"{old.path} holds offset {base}: no segment can begin there")
        segment = Segment(base, self.directory, noted=True)
        if base == old.base:
            file = self._replacement(segment.path, batches)
            old.removed = True
        else:
            write = self._replacement if haunted else self._write_new
            file = write(segment.path, batches)
            if self.dirty:
                # What the old segment has to have synced is, before anything of the new one.
                self._hand_over_segments()
                self.round = self._syncer.start()
        self.release()
        self._begin(segment, file, batches)
        self.dirty_above(self.directory)

    def _begin(self, segment: Segment, file: int, batches: Sequence[Batch]) -> None:
        """Go on with a new segment, which holds `batches`."""
        self.file = file
        self._handles.hold(self)
        self.segments.begin(segment)
        self.newest = segment
        self._handed_over = 0
        self._first_crc = batches[0].header.crc
        self._wrote(batches, 0)

    def _write_new(self, path: Path, batches: Sequence[Batch]) -> int:
        file = self._handles.open(path, "create")
        try:
            self._files.write(file, _joined(batches), 0)
        except BaseException:
            self._discard(path, file)
            raise
        return file

    def _replacement(self, path: Path, batches: Sequence[Batch]) -> int:
        """Write a segment that is whole and durable before it takes its name; one of the same base,
        which has no messages yet, is there until then. The name is durable at once, too: a round
        that was to sync the former segment by its path will sync this one."""
        unfinished = path.with_name(path.name + naming.UNFINISHED_SUFFIX)
        file = self._write_new(unfinished, batches)
        try:
            self._files.sync(file)
            self._files.rename(unfinished, path)
            self._files.sync_directory(path.parent)
        except BaseException:
            self._discard(unfinished, file)
            raise
        return file

    def _discard(self, path: Path, file: int) -> None:
        self._files.close(file)
        with suppress(FileNotFoundError):
            self._files.remove(path)


class OpenFiles:
    """The lanes that have their newest segment open for writing: those that were written last."""

    def __init__(self, files: Files, segments_max: int) -> None:
        self._files = files
        self._segments_max = segments_max
        self._lanes: OrderedDict[LocalLane, None] = OrderedDict()  # the longest unused first
        self.used: Callable[[LocalLane], None] = self._lanes.move_to_end

    def open(self, path: Path, mode: OpenMode) -> int:
        """Open a segment, if need be at the price of others. Raises JournalFull or OSError."""
        while len(self._lanes) >= self._segments_max:
            self._close_one()
        try:
            return self._files.open(path, mode)
        except JournalFull:  # it may be the descriptors
            while self._lanes and not self._close_one():
                pass
            return self._files.open(path, mode)

    def hold(self, lane: LocalLane) -> None:
        """The lane has an open file from now on."""
        self._lanes[lane] = None

    def drop(self, lane: LocalLane) -> None:
        """The lane has none any more."""
        self._lanes.pop(lane, None)

    def close_idle(self, now_ms: int) -> None:
        """Close what was not written to for a while."""
        while self._lanes and next(iter(self._lanes)).used_ms <= now_ms - IDLE_MS:
            self._close_one()

    def _close_one(self) -> bool:
        """Close the least used; False if its descriptor is only free after a sync."""
        lane, _ = self._lanes.popitem(last=False)
        return lane.let_go()
