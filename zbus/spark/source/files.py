"""The log in a data directory, of one process or several, or in a backup of one; without a broker.

A broker may be writing there meanwhile. What counts is what the landmarks say is synced: more than
that a power cut might take back, and put other messages in its place. Segments that retention
removes while they are read stay readable, because they are open.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from zbus.spark.errors import DataLoss, SparkProblem, UnknownTopic, Usage
from zbus.spark.logs import Log, Span, of_users
from zbus.storage.format.batch import HEADER_BYTES, BatchHeader, Kind, inspect_header
from zbus.storage.format.checkpoint import decode_change
from zbus.storage.local import naming
from zbus.storage.local.files import OsFiles
from zbus.storage.local.high_water_marks import HighWaterMark, HighWaterMarks
from zbus.storage.local.shards import find_shards
from zbus.storage.port import JournalError
from zbus.storage.tools.manifest import MANIFEST, path_of, read_manifest

_LISTINGS_MAX: Final = 3

PIECE_BYTES: Final = 16 << 20
"""Whole batches that are given at once; one that is larger comes alone."""


class _Segment(NamedTuple):
    """A file, and the first offset in it."""

    base: int
    path: Path
    bytes: int


class _Lane(NamedTuple):
    """The segments of a partition, in order."""

    topic: str
    partition: int
    incarnation: str
    segments: list[_Segment]
    end: int


class FileLog(Log):
    """Raises Usage for a path that is neither."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self._manifest = (self._root / MANIFEST).exists()
        names = () if self._manifest else (naming.IDENTITY, naming.SHARDS, naming.SHARDS_MOVING)
        if names and not any((self._root / name).exists() for name in names):
            raise Usage(f"{path} is neither a data directory of zbus nor a backup of one")
        try:
            self._shards = find_shards(OsFiles(), self._root) if names else []
        except JournalError as error:
            raise Usage(str(error)) from error

    def topics(self) -> list[str]:
        found = {_topic_of(path.name, lanes) for path, lanes in self._directories()}
        return of_users(name for name in found if name is not None)

    def spans(self, topic: str) -> list[Span]:
        lanes = self._lanes(topic)
        return [
            Span(
                lane.topic,
                lane.partition,
                lane.incarnation,
                lane.segments[0].base,
                lane.end,
                sum(one.bytes for one in lane.segments),
            )
            for lane in lanes
        ]

    def offset_at(self, span: Span, time_ms: int) -> int:
        segments = self._lane(span).segments
        for number, segment in enumerate(segments):
            behind = segments[number + 1] if number + 1 < len(segments) else None
            if behind is not None and _first_time_ms(behind) < time_ms:
                continue  # all of this one is earlier
            found = _opened(segment, lambda file: _first_since(file, span, time_ms))
            if found is not None:
                return found
        return span.end

    def time_at(self, span: Span, offset: int) -> int | None:
        segments = self._lane(span).segments
        number = bisect_right([one.base for one in segments], offset) - 1
        return None if number < 0 else _opened(segments[number], lambda file: _time(file, offset))

    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes | memoryview]:
        segments = self._lane(span).segments
        begin = bisect_right([one.base for one in segments], start) - 1
        if begin < 0 and start < stop:
            there = f"the oldest there is is {segments[0].base}" if segments else "there are none"
            raise DataLoss(f"{_place(span)}: offset {start} is not there any more: {there}")
        for segment in segments[begin:]:
            if segment.base >= stop:
                return
            with _Open(segment, span) as file:
                yield from file.pieces(start, stop)

    # -- what there is ------------------------------------------------------------------------

    def _lane(self, span: Span) -> _Lane:
        """Raises DataLoss if it is another one by now."""
        with suppress(UnknownTopic):
            for lane in self._lanes(span.topic):
                if lane.partition == span.partition and lane.incarnation == span.incarnation:
                    return lane
        text = "was removed, or made again: its offsets are those of other messages"
        raise DataLoss(f"the topic {span.topic} {text}")

    def _directories(self) -> Iterator[tuple[Path, dict[int, list[_Segment]]]]:
        """Of each topic: its directory, and the segments of its partitions."""
        if self._manifest:
            try:
                manifest = read_manifest(OsFiles(), self._root)
            except JournalError as error:
                raise SparkProblem(str(error)) from error
            topics: dict[str, dict[int, list[_Segment]]] = {}
            for copied in manifest.segments:
                lanes = topics.setdefault(copied.topic, {})
                segment = _Segment(copied.base, path_of(self._root, copied), copied.bytes)
                lanes.setdefault(copied.partition, []).append(segment)
            for directory, lanes in topics.items():
                yield (
                    self._root / directory,
                    {number: sorted(lanes[number]) for number in sorted(lanes)},
                )
            return
        for path in (path for shard in self._shards for path in sorted(_inside(shard))):
            if naming.is_topic_directory(path.name) and path.is_dir():
                found = _partitions(path)
                if found:
                    yield path, found

    def _lanes(self, topic: str) -> list[_Lane]:
        """Retention and removals may be at work between the listing and a look into what was
        listed: then it is listed again."""
        for _ in range(_LISTINGS_MAX):
            try:
                return self._listed(topic)
            except DataLoss:
                continue
        return self._listed(topic)

    def _listed(self, topic: str) -> list[_Lane]:
        name = naming.topic_directory(topic)
        for path, found in self._directories():
            if path.name.lower() != name.lower():
                continue
            marks = {} if self._manifest else HighWaterMarks(OsFiles(), path.parent).load() or {}
            lanes = []
            for number, segments in found.items():
                options = _options(segments)
                if options is None:
                    continue  # it is being made
                own, incarnation = options
                end = _end(segments, marks.get(f"{path.name}/{number}"))
                lanes.append(_Lane(own, number, incarnation, segments, end))
            if lanes:
                return lanes
        raise UnknownTopic(f"{self._root}: there is no topic {topic}")


def _inside(path: Path) -> list[Path]:
    """Empty if it was removed a moment ago."""
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        return []


def _partitions(path: Path) -> dict[int, list[_Segment]]:
    found: dict[int, list[_Segment]] = {}
    for each in _inside(path):
        number = naming.partition_number(each.name)
        if number is None:
            continue
        segments = []
        for file in _inside(each):
            base = naming.segment_base(file.name)
            if base is not None:
                with suppress(FileNotFoundError):  # retention has removed it a moment ago
                    segments.append(_Segment(base, file, file.stat().st_size))
        if segments:
            found[number] = sorted(segments)
    return dict(sorted(found.items()))


def _topic_of(directory: str, found: dict[int, list[_Segment]]) -> str | None:
    name = naming.topic_of(directory)
    if name is not None:
        return name
    try:
        options = _options(next(iter(found.values())))
    except DataLoss:  # it was removed a moment ago
        return None
    return None if options is None else options[0]


def _options(segments: Sequence[_Segment]) -> tuple[str, str] | None:
    """The name and the incarnation of a topic, as the checkpoint says that its newest segment
    begins with. One that was made a moment ago may have none yet; None: no one has. Raises DataLoss
    if the newest has gone."""
    for segment in reversed(segments):
        with _Open(segment, None) as file:
            for position, header in file.headers(None):
                if header.kind is Kind.DATA:
                    raise SparkProblem(f"{segment.path} does not begin with a checkpoint")
                change = decode_change(file.payload(position, header))
                if change.topic is not None:
                    return change.topic.name, str(change.topic.created_ms)
    return None


T = TypeVar("T")


def _opened(segment: _Segment, look: Callable[[_Open], T]) -> T | None:
    """None also if it has gone: retention was here."""
    try:
        with _Open(segment, None) as file:
            return look(file)
    except DataLoss:
        return None


def _first_since(file: _Open, span: Span, time_ms: int) -> int | None:
    for _, header in file.headers(span.end):
        if header.kind is Kind.DATA and header.time_ms >= time_ms:
            return min(header.base_offset, span.end)
    return None


def _time(file: _Open, offset: int) -> int | None:
    """Of the message there."""
    for _, header in file.headers(None):
        if header.kind is Kind.DATA and header.end_offset > offset:
            return header.time_ms
    return None


def _first_time_ms(segment: _Segment) -> int:
    """Of its checkpoint: nothing in it is earlier."""
    found = _opened(segment, lambda file: next((each.time_ms for _, each in file.headers(None)), 0))
    return 0 if found is None else found


def _end(segments: list[_Segment], mark: HighWaterMark | None) -> int:
    """Behind the last message that is synced."""
    newest = segments[-1]
    if mark is not None:
        return max(mark.end, newest.base)
    with _Open(newest, None) as file:
        end = newest.base
        for _, header in file.headers(None):
            end = max(end, header.end_offset)
        return end


def _place(span: Span) -> str:
    return f"{span.topic}, partition {span.partition}"


class _Open:
    """A segment that is mapped into memory."""

    def __init__(self, segment: _Segment, span: Span | None) -> None:
        self._segment = segment
        self._span = span
        self._view = memoryview(b"")

    def __enter__(self) -> _Open:
        try:
            with self._segment.path.open("rb") as file:
                if self._segment.path.stat().st_size:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self._view = memoryview(mapped)
        except FileNotFoundError as error:
            place = _place(self._span) if self._span is not None else self._segment.path
            text = f"{place}: the messages from {self._segment.base} on are not there any more"
            raise DataLoss(text) from error
        return self

    def __exit__(self, *error: object) -> None:
        """The map goes with the last reference to a piece of it."""
        self._view = memoryview(b"")

    def headers(self, before: int | None) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch, up to the first that is not whole."""
        view, position = self._view, 0
        while position + HEADER_BYTES <= len(view):
            header = inspect_header(view, position)  # type: ignore[arg-type]
            if isinstance(header, str) or position + header.length > len(view):
                return
            if before is not None and header.base_offset >= before:
                return
            yield position, header
            position += header.length

    def payload(self, position: int, header: BatchHeader) -> bytes:
        return bytes(self._view[position + HEADER_BYTES : position + header.length])

    def pieces(self, start: int, stop: int) -> Iterator[memoryview]:
        """Batches that hold these offsets, many at once."""
        begin = None
        last = 0
        for position, header in self.headers(stop):
            if header.end_offset <= start:
                continue
            if begin is None:
                begin = position
            last = position + header.length
            if last - begin >= PIECE_BYTES:
                yield self._view[begin:last]
                begin = None
        if begin is not None:
            yield self._view[begin:last]
