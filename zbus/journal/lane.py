"""One lane on disk: its segments, the newest of them open for writing, and what is not yet synced.

A lane grows at the end of its newest segment. An append that begins with a checkpoint rolls: it
makes the next segment. Before that the old one is synced if anybody relies on this lane's syncs,
because a crash must never leave a new segment behind an old one with a hole in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from zbus.journal import naming
from zbus.journal.batch import BatchHeader, Kind
from zbus.journal.files import Files
from zbus.journal.opening import Found
from zbus.journal.ports import JournalError
from zbus.journal.segment import Segment
from zbus.journal.syncer import Syncer

Headers = Sequence[tuple[int, BatchHeader]]

_base = attrgetter("base")


class LocalLane:
    """See above. Raises JournalFull or OSError; then nothing of the append is in the lane."""

    __slots__ = (
        "_file",
        "_files",
        "_syncer",
        "directory",
        "dirty_directories",
        "dirty_files",
        "last_crc",
        "round",
        "segments",
    )

    def __init__(
        self,
        files: Files,
        syncer: Syncer,
        directory: Path,
        segments: list[Segment],
        file: int,
        last_crc: int,
    ) -> None:
        self._files = files
        self._syncer = syncer
        self._file = file
        self.directory = directory
        self.segments = segments  # the oldest first
        self.last_crc = last_crc
        self.dirty_files = {file}
        self.dirty_directories = {directory, directory.parent, directory.parent.parent}
        self.round = 0  # of the syncer: the last one asked for; 0 = nobody relies on syncs

    @classmethod
    def found(cls, files: Files, syncer: Syncer, found: Found) -> LocalLane:
        """Go on where a former run ended. What it wrote may never have been synced."""
        return cls(files, syncer, found.directory, found.segments, found.file, found.last_crc)

    @classmethod
    def make(
        cls, files: Files, syncer: Syncer, directory: Path, headers: Headers, batches: bytes
    ) -> LocalLane:
        """Begin a new lane with its first checkpoint."""
        files.make_directory(directory.parent)
        files.make_directory(directory)
        segment, file = _create(files, directory, headers[0][1].base_offset, batches)
        lane = cls(files, syncer, directory, [segment], file, 0)
        lane._wrote(headers, batches, 0)
        return lane

    @property
    def newest(self) -> Segment:
        return self.segments[-1]

    def append(self, headers: Headers, batches: bytes) -> None:
        """Write at the end, or roll."""
        if headers[0][1].kind is Kind.CHECKPOINT:
            self._roll(headers, batches)
            return
        size = self.newest.size
        try:
            self._files.write(self._file, batches, size)
        except BaseException:
            self._files.truncate(self._file, size)
            raise
        self._wrote(headers, batches, size)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and those after it."""
        return self.segments[max(bisect_right(self.segments, offset, key=_base) - 1, 0) :]

    def forget_before(self, offset: int) -> list[Segment]:
        """Take the segments that end at or before `offset` off the list; they are to be removed."""
        count = max(bisect_right(self.segments, offset, key=_base) - 1, 0)
        forgotten = self.segments[:count]
        del self.segments[:count]
        return forgotten

    def release(self) -> None:
        """Close the newest segment."""
        self._syncer.retire(self._file)

    def _wrote(self, headers: Headers, batches: bytes, size: int) -> None:
        newest = self.newest
        for position, header in headers:
            if header.kind is Kind.DATA:
                newest.note(header.base_offset, size + position)
        newest.size = size + len(batches)
        self.last_crc = headers[-1][1].crc
        self.dirty_files.add(self._file)

    def _roll(self, headers: Headers, batches: bytes) -> None:
        base = headers[0][1].base_offset
        old = self.newest
        if base < old.base or (base == old.base and old.has_data):
            raise JournalError(f"{old.path} holds offset {base}: no segment can begin there")
        if base == old.base:
            segment, file = self._replacement(base, batches)
            self.segments.pop()
        else:
            if self.round:
                self._files.sync(self._file)  # a round under way may not have got there yet
                self.dirty_files.discard(self._file)
            segment, file = _create(self._files, self.directory, base, batches)
            if self._file in self.dirty_files:
                self._syncer.add({self._file}, ())
        self.dirty_files.discard(self._file)
        self._syncer.retire(self._file)
        self._file = file
        self.segments.append(segment)
        self.dirty_directories.add(self.directory)
        self._wrote(headers, batches, 0)

    def _replacement(self, base: int, batches: bytes) -> tuple[Segment, int]:
        """Put a segment in the place of one of the same base, which has no messages yet.

        It is durable before it takes the name, so there is a good one at any time.
        """
        files = self._files
        path = self.directory / naming.segment_name(base)
        unfinished = path.with_name(path.name + naming.UNFINISHED_SUFFIX)
        file = _write_new(files, unfinished, batches)
        try:
            files.sync(file)
            files.rename(unfinished, path)
        except BaseException:
            _discard(files, unfinished, file)
            raise
        return Segment(base, path, noted=True), file


def _create(files: Files, directory: Path, base: int, batches: bytes) -> tuple[Segment, int]:
    path = directory / naming.segment_name(base)
    return Segment(base, path, noted=True), _write_new(files, path, batches)


def _write_new(files: Files, path: Path, batches: bytes) -> int:
    file = files.open(path, "create")
    try:
        files.write(file, batches, 0)
    except BaseException:
        _discard(files, path, file)
        raise
    return file


def _discard(files: Files, path: Path, file: int) -> None:
    files.close(file)
    with suppress(FileNotFoundError):
        files.remove(path)
