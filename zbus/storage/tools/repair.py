"""Making a damaged lane one that a broker can serve, without deleting a byte.

What cannot be served is copied to `quarantine/<number>/<topic>/<partition>/`, synced, and only then
is its segment written anew beside the old one, with a filling in the place of each hole
(`zbus.storage.tools.placeholders`), and renamed over it. So a kill at any time leaves the old
segment or the new one, and a second repair does what the first did not get to.

What the groups did in a hole is not known. Whatever a group might have taken there without being
done is ready again: done twice perhaps, but never passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from zbus.core.cursor import journal
from zbus.core.cursor.state import (
    Entries,
    EntryState,
    GroupChange,
    GroupOptions,
    StateChange,
    TopicOptions,
)
from zbus.core.topics.recovered import RecoveredState
from zbus.storage.format.batch import HEADER_BYTES, Batch, BatchHeader, Kind
from zbus.storage.format.checkpoint import decode_change
from zbus.storage.local import naming
from zbus.storage.local.files import Files, copy_bytes, opened
from zbus.storage.local.segment import walk_file
from zbus.storage.port import JournalError
from zbus.storage.tools import placeholders as filler
from zbus.storage.tools.scan import LOST_MAX, Hole, SegmentReport
from zbus.storage.tools.verify import LaneReport, first_batch, read_misplaced, verify_lane


class CannotRepair(JournalError):
    """Something that has to be decided by people; the text says what."""


READY_MAX = 1 << 20
"""This many messages are made ready again for a group of which nothing but its name is known."""


class Quarantine:
    """A new directory for what one repair takes out; made when the first thing comes."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._data_dir = data_dir
        self.directory: Path | None = None
        self.bytes = 0

    def copy(self, path: Path, start: int, stop: int) -> None:
        """Keep bytes of a file, durably."""
        files = self._files
        directory = self._place(path.parent)
        target = directory / f"{path.name}-{start}"
        with opened(files, path, "read") as source, opened(files, target, "create") as made:
            copy_bytes(files, source, start, stop, made, 0)
            files.sync(made)
        files.sync_directory(directory)
        self.bytes += stop - start

    def move(self, path: Path) -> None:
        """Keep a whole file, by giving it another name."""
        target = self._place(path.parent) / path.name
        self._files.rename(path, target)
        self._files.sync_directory(target.parent)
        self._files.sync_directory(path.parent)

    def _place(self, origin: Path) -> Path:
        files = self._files
        if self.directory is None:
            root = self._data_dir / naming.QUARANTINE
            files.make_directory(root)
            taken = [int(name) for name in files.list(root) if name.isascii() and name.isdigit()]
            self.directory = root / str(max(taken, default=0) + 1)
            files.make_directory(self.directory)
            files.sync_directory(root)
            files.sync_directory(self._data_dir)
        place = self.directory
        for name in origin.relative_to(self._data_dir).parts:
            place = place / name
            files.make_directory(place)
            files.sync_directory(place.parent)
        return place


Key = tuple[str, int]
"""Of a group: lower-case name and incarnation."""

_UNKNOWN = GroupOptions(lease=True)
"""Of a group with lost options: asking for acks too often loses nothing."""


def _begin(known: StateChange, partition: int, cursor: int) -> RecoveredState:
    """What a lane tells before its first batch: what the topic's lanes say of it together."""
    groups = tuple(attrs.evolve(group, cursor=cursor) for group in known.groups)
    found = RecoveredState(partition)
    found.apply(attrs.evolve(known, groups=groups), is_whole=True)
    return found


def _apply(found: RecoveredState, header: BatchHeader, raw: bytes) -> None:
    if header.kind is not Kind.DATA:
        found.apply(decode_change(raw[HEADER_BYTES:]), header.is_whole_state)


def _snapshot(found: RecoveredState) -> StateChange:
    groups = tuple(
        attrs.evolve(
            journal.snapshot(backlog, found.names[key], incarnation),
            options=found.options.get(key, _UNKNOWN),
            origin=found.origins.get(key),
        )
        for key, backlogs in found.backlogs.items()
        for incarnation, backlog in backlogs.items()
    )
    return StateChange(
        found.topic,
        groups,
        found.forgotten,
        incarnation=found.incarnation,
        number=found.number,
        emptied=found.emptied,
        purges=tuple(found.purges.items()),
    )


def _again(found: RecoveredState, later: dict[Key, GroupChange], lowest: int) -> StateChange:
    """What the groups named in `later`, the first changes behind a hole, may not have done."""
    groups = []
    for (key, incarnation), change in later.items():
        if change.removed or change.reset:
            continue  # whatever was before does not count any more
        backlog = found.backlog(key, incarnation)
        start = max(lowest, change.cursor - READY_MAX) if backlog is None else backlog.cursor
        taken = set() if backlog is None else backlog.ahead
        again = [offset for offset in range(start, change.cursor) if offset not in taken]
        entries = Entries()
        entries.add_all(EntryState.READY, again, ranks=again)
        groups.append(
            GroupChange(
                change.name,
                max(change.cursor, start),
                options=found.options.get(key, _UNKNOWN) if backlog is None else None,
                entries=entries,
                incarnation=incarnation,
            )
        )
    return StateChange(None, tuple(groups))


def repair_lane(
    files: Files, report: LaneReport, known: StateChange, quarantine: Quarantine
) -> None:
    """Take out what cannot be served and fill the holes; `known` is what `learn` gave.

    Raises CannotRepair before anything is done, OSError or JournalFull at any time.
    """
    name = known.topic.name if known.topic else report.topic
    if naming.topic_directory(name) != report.directory.parent.name:
        raise CannotRepair(f"{report.directory}: no file tells which topic this is")
    for segment in report.segments:
        for hole in segment.holes:
            if hole.end_offset - hole.first_offset > LOST_MAX:
                raise CannotRepair(
                    f"{segment.path} at byte {hole.start}: {hole.reason}; "
                    f"a repair replaces at most {LOST_MAX} messages"
                )
    if report.misplaced:
        _put_in_place(files, report, quarantine)
        report = verify_lane(files, report.directory, report.partition)
    for path in report.unfinished_files:
        if naming.segment_base(path.name) is not None:
            quarantine.move(path)
    lowest = report.segments[0].base if report.segments else 0
    last_crc = 0
    for index, segment in enumerate(map(_settled, report.segments)):
        if segment.holes:
            found = _begin(known, report.partition, lowest)
            if segment.holes[0].start == 0 and index:  # the one before is in order by now
                for _, header, raw in walk_file(files, report.segments[index - 1].path):
                    _apply(found, header, raw)
            _Rewrite(files, segment, found, last_crc, lowest).run(quarantine)
        last_crc = segment.last_crc
        if segment.holes and segment.holes[-1].stop >= segment.bytes:
            closed = segment.holes[-1].next_previous_crc
            last_crc = last_crc if closed is None else closed


def _settled(segment: SegmentReport) -> SegmentReport:
    """What is unfinished is taken out as damage is."""
    if segment.unfinished is None:
        return segment
    tail = segment.unfinished._replace(stop=segment.bytes, next_previous_crc=None)
    return attrs.evolve(segment, holes=[*segment.holes, tail], unfinished=None)


def learn(files: Files, reports: Collection[LaneReport]) -> StateChange:
    """Ask the changes in a topic's lanes what topic it is and which groups it has, for a lane that
    cannot say it any more."""
    name = next(iter(reports)).topic
    partitions = max(report.partition for report in reports) + 1
    known = StateChange(TopicOptions(name, partitions=partitions))
    groups: dict[Key, GroupChange] = {}
    for change in (
        change
        for report in reports
        for segment in report.segments
        for change in _changes(files, segment)
    ):
        known = attrs.evolve(
            known,
            topic=change.topic or known.topic,
            incarnation=change.incarnation or known.incarnation,
            number=max(known.number, change.number),
        )
        for group in change.groups:
            key = _key(group)
            if group.removed:
                groups = {one: found for one, found in groups.items() if one[0] != key[0]}
            elif group.options is not None:
                groups[key] = GroupChange(group.name, 0, group.options, incarnation=key[1])
    return attrs.evolve(known, groups=tuple(groups.values()))


def _key(group: GroupChange) -> Key:
    return group.name.lower(), group.incarnation


def _changes(files: Files, segment: SegmentReport) -> Iterator[StateChange]:
    for start, stop in _good_stretches(segment):
        for _, header, raw in walk_file(files, segment.path, start, stop):
            if header.kind is not Kind.DATA:
                yield decode_change(raw[HEADER_BYTES:])


def _put_in_place(files: Files, report: LaneReport, quarantine: Quarantine) -> None:
    """Give segments that have each other's names their own; take all other misplaced ones out.

    So it is with those that continue the chain to a good segment and whose own name is free.
    """
    directory = report.directory
    own: dict[int, SegmentReport] = {}
    for path in report.misplaced:
        found = first_batch(files, path)
        if found is not None and naming.topic_directory(found[1]) == directory.parent.name:
            scanned = read_misplaced(files, path)
            if scanned is not None:
                own.setdefault(scanned.base, scanned)
    names = {
        naming.segment_base(path.name.removesuffix(naming.MOVED_SUFFIX))
        for path in report.misplaced
    }
    good = report.segments
    before = {segment.last_crc for segment in good}
    behind = {segment.first_previous_crc for segment in good}
    moves = []
    for base, segment in own.items():
        right = directory / naming.segment_name(base)
        is_free = right in report.misplaced or right.name not in files.list(directory)
        is_ours = (
            segment.path.name.endswith(naming.MOVED_SUFFIX)
            or base in names
            or segment.first_previous_crc in before
            or segment.last_crc in behind
        )
        if is_free and is_ours:
            moves.append((segment.path, right))
    for path in report.misplaced:
        if path not in dict(moves):
            quarantine.move(path)
    waiting = []
    for path, right in moves:
        waits = right.with_name(right.name + naming.MOVED_SUFFIX)
        if path != waits:
            files.rename(path, waits)
        waiting.append((waits, right))
    files.sync_directory(directory)
    for waits, right in waiting:
        files.rename(waits, right)
    files.sync_directory(directory)


def _good_stretches(segment: SegmentReport) -> Iterator[tuple[int, int]]:
    at = 0
    for hole in segment.holes:
        yield at, hole.start
        at = hole.stop
    yield at, segment.bytes if segment.unfinished is None else segment.unfinished.start


class _Rewrite:
    """One segment's new file."""

    def __init__(
        self,
        files: Files,
        segment: SegmentReport,
        found: RecoveredState,
        last_crc: int,
        lowest: int,
    ) -> None:
        self._files = files
        self._segment = segment
        self._state = found
        self._last_crc = last_crc
        self._lowest = lowest
        self._size = 0

    def run(self, quarantine: Quarantine) -> None:
        files, segment = self._files, self._segment
        path = segment.path
        for hole in segment.holes:
            if hole.stop > hole.start:
                quarantine.copy(path, hole.start, hole.stop)
        later = self._first_changes()
        new = path.with_name(path.name + naming.UNFINISHED_SUFFIX)
        with suppress(FileNotFoundError):
            files.remove(new)  # of a repair that did not get to its end
        with opened(files, new, "create") as self._file, opened(files, path, "read") as source:
            for number, (start, stop) in enumerate(_good_stretches(segment)):
                if number:
                    self._fill(segment.holes[number - 1], later[number - 1])
                self._copy(source, start, stop)
            files.sync(self._file)
        files.rename(new, path)
        files.sync_directory(path.parent)

    def _first_changes(self) -> list[dict[Key, GroupChange]]:
        """Give for each hole the first change behind it of each group, up to a whole state."""
        found: list[dict[Key, GroupChange]] = []
        later: dict[Key, GroupChange] = {}
        for start, stop in reversed(list(_good_stretches(self._segment))[1:]):
            here: dict[Key, GroupChange] = {}
            for _, header, raw in walk_file(self._files, self._segment.path, start, stop):
                if header.is_whole_state:
                    later = {}  # it says all there is
                    break
                if header.kind is Kind.STATE:
                    for group in decode_change(raw[HEADER_BYTES:]).groups:
                        here.setdefault(_key(group), group)
            later = later | here
            found.append(later)
        return found[::-1]

    def _copy(self, source: int, start: int, stop: int) -> None:
        copy_bytes(self._files, source, start, stop, self._file, self._size)
        self._size += stop - start
        for _, header, raw in walk_file(self._files, self._segment.path, start, stop):
            _apply(self._state, header, raw)

    def _fill(self, hole: Hole, later: dict[Key, GroupChange]) -> None:
        found, time_ms = self._state, hole.time_ms
        crc = self._last_crc if hole.start == 0 else hole.previous_crc
        if hole.start == 0:
            crc = self._write_batch(
                filler.state(Kind.CHECKPOINT, _snapshot(found), self._segment.base, time_ms, crc)
            )
        for batch in filler.lost_messages(hole.first_offset, hole.end_offset, time_ms, crc):
            crc = self._write_batch(batch)
        if hole.next_previous_crc is None:  # nothing is behind it, and may have any checksum
            if hole.first_offset < hole.end_offset:
                self._write(filler.mark(hole.first_offset, hole.end_offset, time_ms, crc, crc ^ 1))
            return
        change = _again(found, later, self._lowest)
        if change.groups:
            crc = self._write_batch(filler.state(Kind.STATE, change, hole.end_offset, time_ms, crc))
            found.apply(change)
        if crc != hole.next_previous_crc:
            self._write(
                filler.mark(
                    hole.first_offset, hole.end_offset, time_ms, crc, hole.next_previous_crc
                )
            )

    def _write_batch(self, batch: Batch) -> int:
        self._write(batch.raw)
        return batch.header.crc

    def _write(self, raw: bytes) -> None:
        self._files.write(self._file, raw, self._size)
        self._size += len(raw)
