"""Reads one partition, or all, and reports what in it is not what was written.

Between segments the crc of the batch before is only noted, never damage: a segment without
messages may have been replaced by one of the same base, and then the batch that the new
one follows is gone. There the offsets, which must go on without a gap, tell what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from zbus.storage.format.batch import HEADER_BYTES, BatchHeader, Kind
from zbus.storage.format.checkpoint import topic_name
from zbus.storage.local import naming
from zbus.storage.local.files import Files
from zbus.storage.local.high_water_marks import HighWaterMark
from zbus.storage.local.segment import walk_file
from zbus.storage.local.shards import find_shards
from zbus.storage.port import JournalDamage
from zbus.storage.tools.scan import OFFSET_MAX, Hole, Place, Progress, Scan, SegmentReport

_BESIDE: Final = (
    naming.LOCK,
    naming.RESERVE,
    naming.QUARANTINE,
    naming.LANDMARKS,
    naming.LANDMARKS_UNFINISHED,
    naming.LANDMARKS_PRUNED,
    naming.IDENTITY,
    naming.IDENTITY_UNFINISHED,
    naming.CLOCK,
    naming.CLOCK_UNFINISHED,
    *naming.HISTORY,
    naming.SHARDS,
    naming.SHARDS_UNFINISHED,
)


@attrs.define
class LaneReport:
    """What one partition's directory holds."""

    topic: str
    partition: int
    directory: Path
    segments: list[SegmentReport] = attrs.Factory(list)  # the oldest first
    misplaced: dict[Path, str] = attrs.Factory(dict)  # files under a wrong name, and why
    unfinished_files: list[Path] = attrs.Factory(list)  # never finished; the broker clears them
    other_files: list[Path] = attrs.Factory(list)

    @property
    def damaged(self) -> bool:
        return bool(self.misplaced) or any(segment.holes for segment in self.segments)

    @property
    def unsettled(self) -> bool:
        """Whether a broker would cut or set something aside, perhaps because of the landmarks."""
        names = [path.name for path in self.unfinished_files]
        return any(segment.unfinished for segment in self.segments) or any(
            naming.segment_base(name) is not None for name in names
        )


def find_directories(files: Files, data_dir: Path) -> tuple[list[tuple[Path, int]], list[Path]]:
    """Give the partitions' directories of all shards with their numbers, and what else is there.
    Raises JournalError, as `find_shards` does."""
    lanes, others = [], []
    shards = find_shards(files, data_dir)
    for path in _inside(files, dict.fromkeys([data_dir, *shards])):
        name = path.name
        is_beside = name in _BESIDE or path in shards
        if is_beside and (name not in naming.TAKEN_LATE or not is_directory(files, path)):
            continue
        if not naming.is_topic_directory(name) or not is_directory(files, path):
            others.append(path)
            continue
        for inner in sorted(files.list(path)):
            number = naming.partition_number(inner)
            if number is None or not is_directory(files, path / inner):
                others.append(path / inner)
            else:
                lanes.append((path / inner, number))
    return lanes, others


def _inside(files: Files, directories: Iterable[Path]) -> Iterator[Path]:
    for directory in directories:
        for name in sorted(files.list(directory)):
            yield directory / name


def is_directory(files: Files, path: Path) -> bool:
    try:
        files.list(path)
    except NotADirectoryError:
        return False
    return True


def verify_lane(
    files: Files,
    directory: Path,
    partition: int,
    marks: Mapping[str, HighWaterMark] | None = None,
    progress: Progress = lambda _: None,
) -> LaneReport:
    """Read all of one partition. Raises OSError where the disk does not answer.

    With landmarks, what is bad past all that was synced is an unfinished write, not damage.
    """
    report = LaneReport(directory.parent.name, partition, directory)
    found: dict[int, Path] = {}
    for name in sorted(files.list(directory)):
        path = directory / name
        base = naming.segment_base(name.removesuffix(naming.MOVED_SUFFIX))
        if name.endswith(naming.UNFINISHED_SUFFIX):
            report.unfinished_files.append(path)
        elif base is None:
            report.other_files.append(path)
        elif wrong := _misplaced(files, path, base):
            report.misplaced[path] = wrong
        else:
            found[base] = path
    report.topic = _topic_of(files, [*found.values(), *report.misplaced], directory.parent.name)
    bases, mark = sorted(found), (marks or {}).get(naming.lane_key(directory))
    place = came_from = Place(0, None, 0)
    for index, base in enumerate(bases):
        upper = bases[index + 1] if index + 1 < len(bases) else None
        segment = Scan(files, found[base], base, upper, progress).run(place)
        if not _join(report, segment, mark) and report.segments:
            last = report.segments.pop()  # the newest again
            again = Scan(files, last.path, last.base, None, lambda _: None).run(came_from)
            _join(report, again, mark)
        came_from = place
        place = Place(segment.end_offset, segment.last_crc, segment.last_time_ms)
    if marks is not None:
        _judge(report, mark)
    return report


def _judge(report: LaneReport, mark: HighWaterMark | None) -> None:
    """Tell damage from unfinished writes by what is known to be synced."""
    start, durable = 0, 0
    for index, segment in enumerate(report.segments):
        if mark is not None and segment.base == mark.base:
            if segment.first_crc not in (None, mark.first_crc):
                mark = None  # it speaks of a former lane of this name
            else:
                start, durable = index, mark.durable
                _check_durable(segment, mark)
    if mark is not None and not start and all(s.base != mark.base for s in report.segments):
        return  # its segment is gone; nothing is known of the others
    for index, segment in enumerate(report.segments[start:], start):
        bound = durable if index == start else 0
        first = next((hole for hole in segment.holes if hole.start >= bound), None)
        if first is None or (first.start == first.stop == segment.bytes < bound):
            continue
        if first.start == 0 and index == 0 and segment.base:
            return  # the broker would refuse: there is nothing to go back to
        segment.holes = segment.holes[: segment.holes.index(first)]
        segment.unfinished = first._replace(stop=segment.bytes, end_offset=first.first_offset)
        segment.end_offset = first.first_offset
        never = index if first.start == 0 else index + 1
        report.unfinished_files += [later.path for later in report.segments[never:]]
        del report.segments[never:]
        return


def _check_durable(segment: SegmentReport, mark: HighWaterMark) -> None:
    """What ends before all that was synced was not cut short by a crash."""
    torn, at, holes = segment.unfinished, segment.bytes, segment.holes
    if torn is not None and torn.start < mark.durable:
        holes.append(torn._replace(stop=at))
        segment.unfinished = None
    elif at < mark.durable and not (holes and holes[-1].stop == at):
        end, crc, time_ms = segment.end_offset, segment.last_crc, segment.last_time_ms
        reason = f"it was synced up to byte {mark.durable}, and ends here"
        holes.append(Hole(at, at, end, end, crc, None, time_ms, reason))
    if holes and holes[-1].next_previous_crc is None and holes[-1].end_offset < mark.end:
        holes[-1] = holes[-1]._replace(end_offset=mark.end)


def _join(report: LaneReport, segment: SegmentReport, mark: HighWaterMark | None) -> bool:
    """Add a segment; what is missing between it and the one before is a hole of that one.

    False if it was never finished, and is none.
    """
    unborn = segment.unfinished is not None and segment.unfinished.start == 0
    was_synced = mark is not None and mark.base == segment.base and mark.durable > 0
    if unborn and not was_synced and (report.segments or segment.base == 0):
        report.unfinished_files.append(segment.path)  # its making was; the one before is newest
        return False
    if unborn and segment.unfinished:
        segment.holes.append(segment.unfinished)
        segment.unfinished = None
    if report.segments:
        before = report.segments[-1]
        follows = segment.first_previous_crc
        if before.holes and before.holes[-1].next_previous_crc is None:
            tail = before.holes.pop()
            before.holes.append(
                tail._replace(end_offset=segment.base, next_previous_crc=follows or 0)
            )
        elif before.end_offset < segment.base:
            missing = f"offsets {before.end_offset} to {segment.base - 1} are missing"
            before.holes.append(
                Hole(
                    before.bytes,
                    before.bytes,
                    before.end_offset,
                    segment.base,
                    before.last_crc,
                    follows or 0,
                    before.last_time_ms,
                    missing,
                )
            )
        else:
            segment.linked = follows in (None, before.last_crc)
    report.segments.append(segment)
    return True


def _misplaced(files: Files, path: Path, base: int) -> str:
    """Tell why a segment that begins well has not the name it should have; else nothing."""
    found = first_batch(files, path)
    if found is None:
        return ""
    header, topic = found
    if path.name.endswith(naming.MOVED_SUFFIX):
        return "was on its way to its own name when a repair ended"
    if naming.topic_directory(topic) != path.parent.parent.name:
        return f"holds the topic {topic!r}, by its directory's name not"
    if header.base_offset != base:
        return f"begins with offset {header.base_offset}, by its name not"
    return ""


def first_batch(files: Files, path: Path) -> tuple[BatchHeader, str] | None:
    """Give the header and topic of a segment's checkpoint, if that is good."""
    with suppress(JournalDamage):
        for _, header, raw in walk_file(files, path):
            name = topic_name(raw[HEADER_BYTES:]) if header.kind is Kind.CHECKPOINT else None
            return None if name is None else (header, name)
    return None


def read_misplaced(files: Files, path: Path) -> SegmentReport | None:
    """Read a file under a wrong name by what its first batch says."""
    found = first_batch(files, path)
    if found is None:
        return None
    nowhere = Place(0, None, 0)
    return Scan(files, path, found[0].base_offset, OFFSET_MAX, lambda _: None).run(nowhere)


def _topic_of(files: Files, paths: list[Path], directory: str) -> str:
    for path in paths:
        found = first_batch(files, path)
        if found is not None and naming.topic_directory(found[1]) == directory:
            return found[1]
    return naming.topic_of(directory) or directory
