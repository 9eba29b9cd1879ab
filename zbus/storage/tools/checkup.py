"""A whole data directory verified and, if asked for, repaired; and what is to be said about it.

Nothing is written without `repair`. A running broker is kept out, or is the reason to refuse: its
newest segments change while one looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs

from zbus.storage.local import naming
from zbus.storage.local.directory import owner_of, refuse_backup
from zbus.storage.local.files import Files, opened, reason
from zbus.storage.local.high_water_marks import HighWaterMarks
from zbus.storage.local.shards import find_shards
from zbus.storage.port import JournalError, JournalFull
from zbus.storage.tools.repair import CannotRepair, Quarantine, learn, repair_lane
from zbus.storage.tools.scan import Hole, Progress
from zbus.storage.tools.verify import LaneReport, find_directories, verify_lane


@attrs.define
class Checkup:
    """What was found, what was done, and what is left."""

    data_dir: Path
    shards: int
    lanes: list[LaneReport]  # as they were found
    other_files: list[Path]
    quarantine: Path | None = None  # where a repair put what it took out
    repaired: bool = False
    left: list[str] = attrs.Factory(list)  # damage that is still there, in words

    @property
    def damaged(self) -> bool:
        return any(lane.damaged for lane in self.lanes)


def data_bytes(files: Files, data_dir: Path) -> int:
    """Give the bytes that `check_up` will read."""
    total = 0
    for directory, _ in find_directories(files, data_dir)[0]:
        for name in files.list(directory):
            if naming.segment_base(name) is not None:
                with opened(files, directory / name, "read") as file:
                    total += files.size(file)
    return total


@contextmanager
def hold(files: Files, data_dir: Path) -> Iterator[list[Path]]:
    """A data directory that exists, and those of its shards, locked; gives those with topics.
    Raises JournalError if they cannot be had."""
    with ExitStack() as locks:
        path = data_dir
        try:
            refuse_backup(files, data_dir)
            shards = find_shards(files, data_dir)
            for path in dict.fromkeys([data_dir, *shards]):
                if naming.LOCK in files.list(path):
                    locks.enter_context(opened(files, path / naming.LOCK, "lock"))
                elif shards == [data_dir] and not find_directories(files, data_dir)[0]:
                    raise JournalError(f"{data_dir} is not a data directory of zbus")
        except BlockingIOError as error:
            owner = owner_of(files, path / naming.LOCK)
            raise JournalError(
                f"{path} is in use by another process ({owner}); stop the broker first"
            ) from error
        except OSError as error:
            text = reason(error, data_dir)
            raise JournalError(f"cannot open {data_dir}: {text}") from error
        yield shards


def check_up(
    files: Files, data_dir: Path, repair: bool = False, progress: Progress = lambda _: None
) -> Checkup:
    """Verify all that is there. Raises JournalError if that cannot be done."""
    try:
        with hold(files, data_dir) as shards:
            found, others = find_directories(files, data_dir)
            marks = {shard: HighWaterMarks(files, shard).load() for shard in shards}
            lanes = [
                verify_lane(files, path, number, marks[path.parent.parent], progress)
                for path, number in found
            ]
            result = Checkup(data_dir, len(shards), lanes, others)
            if repair and result.damaged:
                _repair(files, result)
            else:
                result.left = [line for lane in lanes for line in describe(lane)]
            return result
    except OSError as error:
        raise JournalError(f"cannot read {data_dir}: {reason(error, data_dir)}") from error


def _repair(files: Files, result: Checkup) -> None:
    quarantine = Quarantine(files, result.data_dir)
    shards = sorted({lane.directory.parent.parent for lane in result.lanes if lane.damaged})
    for shard in shards:
        if naming.LANDMARKS in files.list(shard):
            quarantine.move(shard / naming.LANDMARKS)  # they speak of what will be changed
    # Without landmarks, what is unfinished might pass for damage: so that goes, too.
    touched = [
        lane
        for lane in result.lanes
        if (lane.damaged or lane.unsettled) and lane.directory.parent.parent in shards
    ]
    known = {
        topic: learn(files, [lane for lane in result.lanes if lane.topic == topic])
        for topic in {lane.topic for lane in touched}
    }
    try:
        for lane in touched:
            try:
                repair_lane(files, lane, known[lane.topic], quarantine)
            except CannotRepair as error:
                result.left.append(str(error))
                continue
            result.left += describe(verify_lane(files, lane.directory, lane.partition))
    except JournalFull as error:
        raise JournalError(f"the repair of {result.data_dir} stopped: {error}") from error
    result.quarantine = quarantine.directory
    result.repaired = not result.left


def describe(lane: LaneReport) -> list[str]:
    """Say in words what is wrong, a line for each thing."""
    lines = [f"{path}: {reason}" for path, reason in lane.misplaced.items()]
    for segment in lane.segments:
        lines += [f"{segment.path} {_words(hole)}" for hole in segment.holes]
    return lines


def _words(hole: Hole) -> str:
    size = hole.stop - hole.start
    lost = hole.end_offset - hole.first_offset
    text = f"at byte {hole.start}: {hole.reason}"
    if size:
        text += f"; {size} bytes cannot be served"
    if lost == 1:
        text += f"; message {hole.first_offset} is lost"
    elif lost:
        text += f"; messages {hole.first_offset} to {hole.end_offset - 1} are lost"
    return text


def as_json(result: Checkup) -> dict[str, Any]:
    """Give all of it as what JSON can hold."""
    return {
        "format": 1,
        "data_dir": str(result.data_dir),
        "shards": result.shards,
        "damaged": result.damaged,
        "repaired": result.repaired,
        "left": result.left,
        "quarantine": None if result.quarantine is None else str(result.quarantine),
        "partitions": [_lane(lane) for lane in result.lanes],
        "other_files": list(map(str, result.other_files)),
    }


def _lane(lane: LaneReport) -> dict[str, Any]:
    segments = lane.segments
    return {
        "topic": lane.topic,
        "partition": lane.partition,
        "directory": str(lane.directory),
        "segments": len(segments),
        "bytes": sum(segment.bytes for segment in segments),
        "batches": sum(segment.batches for segment in segments),
        "messages": sum(segment.messages for segment in segments),
        "first_offset": segments[0].base if segments else 0,
        "end_offset": segments[-1].end_offset if segments else 0,
        "replaced": sum(segment.lost_before for segment in segments),
        "damage": [
            {
                "file": str(segment.path),
                "start": hole.start,
                "stop": hole.stop,
                "first_offset": hole.first_offset,
                "end_offset": hole.end_offset,
                "reason": hole.reason,
            }
            for segment in segments
            for hole in segment.holes
        ],
        "misplaced": {str(path): reason for path, reason in lane.misplaced.items()},
        "unfinished": [
            {"file": str(segment.path), "start": segment.unfinished.start, "stop": segment.bytes}
            for segment in segments
            if segment.unfinished is not None
        ],
        "unfinished_files": list(map(str, lane.unfinished_files)),
        "unlinked": [str(segment.path) for segment in segments if not segment.linked],
        "other_files": list(map(str, lane.other_files)),
    }
