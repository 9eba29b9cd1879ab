"""Finding what a former run left behind, after whatever ended it.

A lane's state is in its newest segment alone, and an unfinished write can only be at that
segment's end. So only newest segments are read here:

* bad bytes with no whole batch after them are an unfinished write and are cut off;
* bad bytes with a whole batch after them are damage: refused, with file and offset;
* a newest segment that does not even have its checkpoint was being started when the run ended;
  it is set aside, and the one before is the newest again;
* a lane that has no segment yet was being made: it is removed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from zbus.journal import naming
from zbus.journal.batch import HEADER_BYTES, Kind, batch_follows
from zbus.journal.checkpoint import topic_name
from zbus.journal.files import Files
from zbus.journal.ports import JournalDamage, Lane
from zbus.journal.segment import BadBatch, Segment, walk


class Found(NamedTuple):
    """A lane that was found and is in order."""

    lane: Lane
    directory: Path
    segments: list[Segment]  # the oldest first
    file: int  # the newest segment, opened for writing
    last_crc: int


class _Newest(NamedTuple):
    file: int
    last_crc: int
    topic: str


def find_lanes(files: Files, data_dir: Path) -> list[Found]:
    """Open all lanes; leave nothing half-done behind."""
    found = []
    for topic in sorted(files.list(data_dir)):
        directory = data_dir / topic
        if not naming.is_topic_directory(topic) or not _is_directory(files, directory):
            continue
        empty = True
        for name in sorted(files.list(directory)):
            partition = naming.partition_number(name)
            if name.startswith(naming.REMOVED_PREFIX):
                remove_lane(files, directory / name)
                continue
            empty = False
            if partition is not None and (lane := _open_lane(files, directory / name, partition)):
                found.append(lane)
        if empty:
            files.remove(directory)
        else:
            with suppress(OSError):  # its only lane may just have turned out to be empty
                files.remove(directory)
    return found


def remove_lane(files: Files, directory: Path) -> None:
    """Remove a lane's directory and all files in it."""
    for name in files.list(directory):
        files.remove(directory / name)
    files.remove(directory)


def _is_directory(files: Files, path: Path) -> bool:
    try:
        files.list(path)
    except NotADirectoryError:
        return False
    return True


def _open_lane(files: Files, directory: Path, partition: int) -> Found | None:
    if not _is_directory(files, directory):
        return None
    bases = []
    for name in files.list(directory):
        if name.endswith(naming.UNFINISHED_SUFFIX):
            files.remove(directory / name)
        elif (base := naming.segment_base(name)) is not None:
            bases.append(base)
    bases.sort()
    newest = bases[-1] if bases else 0
    segments = [
        Segment(base, directory / naming.segment_name(base), noted=base == newest) for base in bases
    ]
    while segments:
        opened = _verify(files, segments[-1])
        if opened is not None:
            if naming.topic_directory(opened.topic) != directory.parent.name:
                files.close(opened.file)
                raise JournalDamage(
                    f"{directory} holds the topic {opened.topic!r}, by its name not"
                )
            lane = (opened.topic, partition)
            return Found(lane, directory, segments, opened.file, opened.last_crc)
        _set_aside(files, segments)
    with suppress(OSError):  # what was set aside may be in it
        files.remove(directory)
    return None


def _verify(files: Files, segment: Segment) -> _Newest | None:
    """Open the segment for writing, cut an unfinished write off; None if nothing is left."""
    file = files.open(segment.path, "write")
    try:
        last_crc, topic = _read_whole(files, file, segment)
    except BaseException:
        files.close(file)
        raise
    if topic is None:
        files.close(file)
        return None
    return _Newest(file, last_crc, topic)


def _read_whole(files: Files, file: int, segment: Segment) -> tuple[int, str | None]:
    """Give the last crc, and the topic unless there is no checkpoint; note what is where."""
    size = segment.size = files.size(file)
    last_crc: int | None = None
    topic: str | None = None
    try:
        for position, header, batch in walk(files, file, segment.path, 0, size):
            if last_crc is None:
                topic = _topic_of(segment.path, header.kind, batch)
            elif header.previous_crc != last_crc:
                # A whole batch in a wrong place is no unfinished write.
                raise JournalDamage(
                    f"{segment.path} at byte {position}: does not follow the batch before"
                )
            if header.kind is Kind.DATA:
                segment.note(header.base_offset, position)
            last_crc = header.crc
            segment.size = position + header.length
    except BadBatch as bad:
        tail = files.read(file, size - bad.position, bad.position)
        if batch_follows(tail, 0, last_crc):
            raise JournalDamage(f"{bad}, but whole batches follow") from bad
        if topic is not None:
            files.truncate(file, bad.position)
            files.sync(file)
    return last_crc or 0, topic


def _topic_of(path: Path, kind: Kind, batch: bytes) -> str:
    if kind is not Kind.CHECKPOINT:
        raise JournalDamage(f"{path} at byte 0: a segment begins with a checkpoint")
    try:
        name = topic_name(batch[HEADER_BYTES:])
    except JournalDamage as error:
        raise JournalDamage(f"{path} at byte 0: {error}") from error
    if name is None:
        raise JournalDamage(f"{path} at byte 0: the checkpoint names no topic")
    return name


def _set_aside(files: Files, segments: list[Segment]) -> None:
    """Take the newest segment, which was never finished, out of the way."""
    unfinished = segments.pop()
    if not segments and unfinished.base > 0:
        # The segments before are only removed when this one is durable.
        raise JournalDamage(
            f"{unfinished.path} at byte 0: no checkpoint, and no older segment to go back to"
        )
    path = unfinished.path
    if unfinished.size == 0:
        files.remove(path)
    else:
        files.rename(path, path.with_name(path.name + naming.TORN_SUFFIX))
    files.sync_directory(path.parent)
    if segments:
        before = segments.pop()
        segments.append(Segment(before.base, before.path, noted=True))
