"""Finding what a former run left behind, after whatever ended it.

A lane is read from where its landmark says to the end of its newest segment; nothing before that
is looked at. A lane that the landmarks do not know was begun after they were written: it is read
from its oldest segment on. Without any landmarks the newest segment of each lane is read.

Where a whole batch should be and is none:

* below what was synced it is damage, and so is a segment that ends there: refused, with file and
  byte. A client that was sent these messages must not get others in their place later;
* past that, with nothing whole behind it, it is an unfinished write, and cut off;
* past that, with whole batches behind it, a power cut kept a later write and lost an earlier one.
  No client was told of either. The end is cut off, and kept beside the segment;
* a segment without its checkpoint was being started: it is set aside, the one before is the newest;
* a lane that has no segment yet was being made: it is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from zbus.storage.format.batch import HEADER_BYTES, BatchHeader, Kind, batch_follows
from zbus.storage.format.checkpoint import topic_name
from zbus.storage.local import naming
from zbus.storage.local.directory import remove_tree
from zbus.storage.local.files import Files, opened
from zbus.storage.local.high_water_marks import HighWaterMark
from zbus.storage.local.segment import BadBatch, Segment, walk, walk_file
from zbus.storage.port import JournalDamage, JournalError, JournalFull, Lane
from zbus.storage.segments import Segments

ADVICE: Final = "`zbus verify` tells more, `zbus verify --repair` takes it out"
_EVERYTHING: Final = 1 << 63
_COPY_BYTES: Final = 1 << 20
_BATCHES_BYTES: Final = 64 << 10

log = logging.getLogger("zbus")


class _Start(NamedTuple):
    """Where to begin to read, and what of that segment is known to be synced."""

    segment: int
    position: int = 0
    durable: int = 0
    crc: int | None = None  # of the batch there; None = unknown
    first_crc: int = 0  # of the segment's first batch, if that is not read


def find_lanes(
    files: Files,
    data_dir: Path,
    marks: Mapping[str, HighWaterMark] | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Found]:
    """Look through all lanes; leave nothing half-done behind. `progress` is called with topics
    done and topics in all."""
    names = sorted(files.list(data_dir))
    removed = [name for name in names if name.startswith(naming.REMOVED_PREFIX)]
    if removed:
        files.sync_directory(data_dir)  # else half of a topic might get its name back
    for name in removed:
        remove_tree(files, data_dir / name)
    topics = [name for name in names if naming.is_topic_directory(name)]
    for count, topic in enumerate(topics):
        progress(count, len(topics))
        directory = data_dir / topic
        try:
            found_names = files.list(directory)
        except NotADirectoryError:
            continue
        empty = True
        for name in sorted(found_names):
            if naming.partition_number(name) is not None:
                found = _open_lane(files, directory / name, marks)
                if found is None:
                    continue
                yield found
            empty = False
        if empty:
            with suppress(OSError):  # what was set aside may be in it
                files.remove(directory)


def _open_lane(
    files: Files, directory: Path, marks: Mapping[str, HighWaterMark] | None
) -> Found | None:
    try:
        names = files.list(directory)
    except NotADirectoryError:
        return None
    bases = []
    for name in names:
        if name.endswith(naming.UNFINISHED_SUFFIX) or name.startswith(naming.REMOVED_PREFIX):
            files.remove(directory / name)
        elif (base := naming.segment_base(name)) is not None:
            bases.append(base)
    segments = Segments([Segment(base, directory, noted=False) for base in sorted(bases)])
    found = Found(files, directory, segments)
    if not found.run(marks):
        with suppress(OSError):  # what was set aside may be in it
            files.remove(directory)
        return None
    if naming.topic_directory(found.topic) != found.key.partition("/")[0]:
        raise JournalDamage(f"{directory} holds the topic {found.topic!r}, by its name not")
    return found


class Found:
    """One lane that is looked through. What is known is of the last good batch so far; if it is in
    order at the end, it goes on from there."""

    def __init__(self, files: Files, directory: Path, segments: Segments[Segment]) -> None:
        self._files = files
        self.directory = directory
        self.key = naming.lane_key(directory)
        self.segments = segments
        self.last_crc: int | None = None
        self.end = 0  # the offset after it
        self.first_crc = 0  # of the newest segment's first batch
        self.mark = self.mark_crc = 0  # byte of its last checkpoint or snapshot
        self._file_bytes = 0  # of the segment read last
        self._problem: BadBatch | None = None
        self._foreign = False  # the problem is a whole batch that does not belong there
        self.durable = False  # all of it is known to be synced
        self.tails: list[tuple[Segment, int]] = []  # if not: which segments, from which byte on
        self.lost = False  # something is gone that the landmark promises
        self._batches: list[bytes] = []  # from the mark on, if they are small
        self._batches_bytes = 0
        self.topic = ""

    @property
    def lane(self) -> Lane:
        return self.topic, int(self.key.rpartition("/")[2])

    @property
    def batches(self) -> list[bytes]:
        """From the mark on; empty if they are large."""
        return self._batches if self._batches_bytes <= _BATCHES_BYTES else []

    def run(self, marks: Mapping[str, HighWaterMark] | None) -> bool:
        """Read and mend; False if there is nothing in it."""
        start = self._start(marks)
        while self.segments:
            index = self._read_on(start)
            if index is None:  # not what the landmark speaks of
                start = self._start_without(start, marks)
                continue
            newest = self.segments[-1]
            if self._problem is None:
                self._refuse_short(index, start)
                ends = index == start.segment and newest.size == start.durable
                self.durable = ends and not self.lost
                self._note_tails(start)
                return True
            if self._mend(index, start):
                self._note_tails(start)
                return True
            start = _Start(len(self.segments) - 1, 0, _EVERYTHING)
        return False

    def _note_tails(self, start: _Start) -> None:
        """Note what is not known to be synced: it is synced when it is opened."""
        if start.durable == _EVERYTHING:
            self.tails = [(segment, _EVERYTHING) for segment in self.segments]
        else:
            first, *later = self.segments[start.segment :]
            self.tails = [(first, start.durable), *((segment, 0) for segment in later)]

    def _start(self, marks: Mapping[str, HighWaterMark] | None) -> _Start:
        if marks is None:
            return _Start(len(self.segments) - 1, 0, _EVERYTHING)
        mark = marks.get(self.key)
        if mark is None:  # begun after the landmarks were written
            return _Start(0)
        for index, segment in enumerate(self.segments):
            if segment.base == mark.base:
                return _Start(index, mark.begin, mark.durable, mark.begin_crc, mark.first_crc)
        # Its segment was trimmed, or another lane has the name by now.
        self.lost = True
        return _Start(0)

    def _start_without(self, start: _Start, marks: Mapping[str, HighWaterMark] | None) -> _Start:
        """The landmark's batch is not there: it is damaged, or another lane had this name."""
        self.lost = True
        segment = self.segments[start.segment]
        first = self._first_header(segment)
        if first is not None and first.crc != start.first_crc:
            return _Start(0)
        return _Start(start.segment, 0, start.durable)

    def _first_header(self, segment: Segment) -> BatchHeader | None:
        """The header of the segment's first batch, if that is whole."""
        with suppress(BadBatch):
            for _, header, _ in walk_file(self._files, segment.path):
                return header
        return None

    # -- reading --------------------------------------------------------------------------

    def _read_on(self, start: _Start) -> int | None:
        """Read until the end or a problem; give the segment where that is. None if the first
        batch is not the one that it should be."""
        self._problem, self._foreign = None, False
        self.last_crc = None
        self.first_crc = start.first_crc
        for index in range(start.segment, len(self.segments)):
            segment = self.segments[index]
            position = start.position if index == start.segment else 0
            path = segment.path
            file = self._open(path, newest=segment is self.segments[-1])
            try:
                self._file_bytes = self._files.size(file)
                self._read(file, path, segment, position, start.crc)
            except BadBatch as bad:
                self._problem = bad
            finally:
                self._files.close(file)
            if start.crc is not None and self.last_crc is None:
                return None
            if self._problem is not None:
                return index
        return len(self.segments) - 1

    def _open(self, path: Path, newest: bool) -> int:
        """Open it for reading: the newest for writing, too, so that it is known at the start if
        that cannot be."""
        try:
            return self._files.open(path, "write" if newest else "read")
        except OSError as error:
            if not newest:
                raise
            text = f"cannot hold data: {path} cannot be written ({error.strerror or error})"
            raise JournalError(f"{self.directory.parent.parent} {text}") from error

    def _read(
        self, file: int, path: Path, segment: Segment, position: int, crc: int | None
    ) -> None:
        segment.size = position
        segment.noted = position == 0
        for at, header, batch in walk(self._files, file, path, position, self._file_bytes):
            if self.last_crc is None:
                if crc is not None and (header.crc != crc or not header.is_whole_state):
                    return
            elif not self._continues(at, header):
                self._foreign = True
                raise BadBatch(path, at, "does not follow the batch before")
            if at == 0:
                if header.kind is not Kind.CHECKPOINT:
                    raise JournalDamage(f"{path} at byte 0: a segment begins with a checkpoint")
                self.first_crc = header.crc
            if header.is_whole_state:
                self.mark, self.mark_crc = at, header.crc
                self._batches, self._batches_bytes = [], 0
                self.topic = _topic_of(path, at, batch)
            elif segment.noted and header.kind is Kind.DATA:
                segment.note(header.base_offset, at)
            self.last_crc, self.end = header.crc, header.end_offset
            segment.size = at + header.length
            self._batches_bytes += header.length
            if self._batches_bytes <= _BATCHES_BYTES:
                self._batches.append(batch)
        if segment.size == 0:
            raise BadBatch(path, 0, "there is no checkpoint")

    def _continues(self, at: int, header: BatchHeader) -> bool:
        if at > 0:
            return header.previous_crc == self.last_crc
        # A segment that was replaced continues one that is gone. What counts is that no message
        # is missing: all state is in its checkpoint.
        return header.base_offset == self.end

    # -- mending --------------------------------------------------------------------------

    def _refuse_short(self, index: int, start: _Start) -> None:
        """All was whole to the end; was it the whole?"""
        segment = self.segments[index]
        if index == start.segment and segment.size < start.durable < _EVERYTHING:
            raise JournalDamage(
                f"{segment.path} at byte {segment.size}: it was synced up to byte "
                f"{start.durable}, and ends here; {ADVICE}"
            )

    def _mend(self, index: int, start: _Start) -> bool:
        """Cut or set aside what cannot be used, or refuse. False if the reading has to begin
        again, because nothing of what was read is left."""
        segment = self.segments[index]
        tail = self._tail(segment)
        later = self.segments[index + 1 :]
        follows = (
            self._foreign
            or batch_follows(tail, 0, self.last_crc)
            or any(map(self._first_header, later))
        )
        self._refuse_damage(index, start, follows)
        for unfinished in later:
            self._set_aside(unfinished)
        del self.segments[index + 1 :]
        if segment.size == 0:
            return self._drop_newest(start)
        if tail:
            self._cut(segment, tail, follows)
        return True

    def _tail(self, segment: Segment) -> bytes:
        with opened(self._files, segment.path, "read") as file:
            return self._files.read(file, self._file_bytes - segment.size, segment.size)

    def _refuse_damage(self, index: int, start: _Start, follows: bool) -> None:
        segment = self.segments[index]
        before = self.segments[start.segment]
        synced = start.durable < _EVERYTHING or follows  # without landmarks any hole is damage
        if index == start.segment and segment.size < start.durable and synced:
            raise JournalDamage(f"{self._reason(start, follows)}; {ADVICE}")
        if index - 1 == start.segment and before.size < start.durable < _EVERYTHING:
            raise JournalDamage(
                f"{before.path} at byte {before.size}: it was synced up to byte {start.durable}, "
                f"and {segment.path.name} follows; {ADVICE}"
            )
        if segment.size == 0 and index == 0 and segment.base > 0 and (start.durable or self.lost):
            # The segments before are only removed when this one is durable.
            raise JournalDamage(
                f"{segment.path} at byte 0: no checkpoint, and no older segment to go back to; "
                f"{ADVICE}"
            )

    def _reason(self, start: _Start, follows: bool) -> str:
        if self._foreign:
            return str(self._problem)
        if follows:
            return f"{self._problem}, but whole batches follow"
        return f"{self._problem}, but it was synced up to byte {start.durable}"

    def _drop_newest(self, start: _Start) -> bool:
        """The newest segment has not even its checkpoint: it was being started. False if the one
        before was not read."""
        self._set_aside(self.segments.pop())
        return len(self.segments) > start.segment

    def _set_aside(self, segment: Segment) -> None:
        """Take a whole segment out of the way; it was never synced."""
        path, directory = segment.path, self.directory
        file = self._files.open(path, "read")
        size = self._files.size(file)
        self._files.close(file)
        if size == 0:
            self._files.remove(path)
        else:
            aside = self._free_name(path.name + naming.TORN_SUFFIX)
            self._files.rename(path, aside)
            log.warning("a segment that was never finished is set aside", extra={"file": aside})
        self._files.sync_directory(directory)

    def _cut(self, segment: Segment, tail: bytes, keep: bool) -> None:
        """Cut the end off, durably; first, if something whole is in it, keep it elsewhere."""
        files = self._files
        if keep:
            self._keep(segment, tail)
        with opened(files, segment.path, "write") as file:
            files.truncate(file, segment.size)
            files.sync(file)

    def _keep(self, segment: Segment, tail: bytes) -> None:
        """Copy what is cut, if there is room: it was never synced, and must not keep a broker on a
        full disk from starting."""
        files = self._files
        aside = self._free_name(f"{segment.path.name}{naming.TORN_SUFFIX}-{segment.size}")
        try:
            with opened(files, aside, "create") as copy:
                for at in range(0, len(tail), _COPY_BYTES):
                    files.write(copy, tail[at : at + _COPY_BYTES], at)
                files.sync(copy)
        except JournalFull:
            with suppress(FileNotFoundError):
                files.remove(aside)
            log.warning("no room to set the end of a segment aside", extra={"file": aside})
            return
        files.sync_directory(self.directory)
        log.warning(
            "the end of a segment is set aside: a write before it was never finished",
            extra={"file": aside, "bytes": len(tail)},
        )

    def _free_name(self, name: str) -> Path:
        taken = set(self._files.list(self.directory))
        wanted, number = name, 1
        while wanted in taken:
            number += 1
            wanted = f"{name}-{number}"
        return self.directory / wanted


def _topic_of(path: Path, position: int, batch: bytes) -> str:
    try:
        name = topic_name(memoryview(batch)[HEADER_BYTES:])
    except JournalDamage as error:
        raise JournalDamage(f"{path} at byte {position}: {error}; {ADVICE}") from error
    if name is None:
        raise JournalDamage(f"{path} at byte {position}: the checkpoint names no topic; {ADVICE}")
    return name
