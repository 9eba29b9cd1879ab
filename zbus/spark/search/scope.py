"""Where a search looks: files of an archive, ranges of live topics, or the one and then the other.

A partition that is archived is searched in its files; what the broker has behind them is its live
tail. So nothing is found twice, and what is stored while the search runs is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.archive.table import ArchiveFile
from zbus.spark.errors import UnknownTopic, Usage
from zbus.spark.logs import Log, Span
from zbus.spark.search.conditions import Conditions
from zbus.spark.source.location import Where
from zbus.spark.source.planning import Part


class Scope(NamedTuple):
    """All of it; files in order of topic, partition and time."""

    files: tuple[ArchiveFile, ...] = ()
    parts: tuple[Part, ...] = ()  # of the log: none is empty
    where: Where | None = None  # of the parts
    notes: tuple[str, ...] = ()  # what the reader of the results has to know

    @property
    def bytes(self) -> int:
        """How much there is to read; about."""
        archived = sum(file.bytes for file in self.files)
        spans = ((part.span, part.stop - part.start) for part in self.parts)
        return archived + sum(
            span.bytes * count // max(1, span.end - span.first) for span, count in spans
        )

    @property
    def topics(self) -> set[str]:
        return {file.topic for file in self.files} | {part.span.topic for part in self.parts}


class Topics(NamedTuple):
    """Which are meant. Neither: all."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def of(self, there: Iterable[str]) -> list[str]:
        """Those of them. Raises UnknownTopic."""
        known = sorted(set(there))
        if self.pattern is not None:
            known = whole_matches(known, self.pattern)
        for name in self.names:
            if name not in known:
                raise UnknownTopic(f"there is no topic {name} where the search is to look")
        return sorted(set(self.names)) or known


def whole_matches(names: Sequence[str], pattern: str) -> list[str]:
    """The names that match from beginning to end. RE2 does it, since names come from anybody.
    Raises Usage."""
    column = pa.array(names, pa.string())
    try:
        pc.match_substring_regex(column, pattern)  # it is one by itself
        found = pc.match_substring_regex(column, rf"\A(?:{pattern})\z")
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise Usage(f"--pattern: it is not a regular expression: {error}") from None
    return [name for name, fits in zip(names, found.to_pylist(), strict=True) if fits]


def find_scope(
    files: Sequence[ArchiveFile] | None,
    where: Where | None,
    topics: Topics,
    conditions: Conditions,
) -> Scope:
    """Of an archive's committed files (None: there is no archive) and of a log. Raises Usage,
    UnknownTopic, Unreachable."""
    if files is None and where is None:
        raise Usage("missing source: an archive, a log, or both")
    there = {file.topic for file in files or ()}
    if where is None:
        return Scope(_chosen(files or (), topics.of(there), conditions))
    with where.open() as log:
        live = set(log.topics()) if topics.pattern or not topics.names else set(topics.names)
        names = topics.of(there | live)
        spans = [
            span for name in names if name in live for span in _spans(log, name, name in there)
        ]
        parts, notes = _tails(files or (), spans)
        parts = [_within(log, part, conditions) for part in parts]
    kept = tuple(part for part in parts if part.start < part.stop)
    return Scope(_chosen(files or (), names, conditions), kept, where, tuple(notes))


def _chosen(
    files: Sequence[ArchiveFile], topics: Sequence[str], conditions: Conditions
) -> tuple[ArchiveFile, ...]:
    wanted = set(topics)
    found = [file for file in files if file.topic in wanted and _can_have(file, conditions)]
    found.sort(key=lambda file: (file.topic, file.partition, file.min_time_ms, file.start))
    return tuple(found)


def _spans(log: Log, topic: str, archived: bool) -> list[Span]:
    """A topic that is only archived by now is no mistake."""
    try:
        return log.spans(topic)
    except UnknownTopic:
        if archived:
            return []
        raise


def _tails(files: Sequence[ArchiveFile], spans: Sequence[Span]) -> tuple[list[Part], list[str]]:
    """What there is behind the archive's end, and what is in neither."""
    ends: dict[tuple[str, int, str], int] = {}
    for file in files:
        lane = (file.topic, file.partition, file.incarnation)
        ends[lane] = max(file.end, ends.get(lane, 0))
    parts, notes = [], []
    for span in spans:
        end = ends.get((span.topic, span.partition, span.incarnation))
        start = span.first if end is None else min(max(end, span.first), span.end)
        if end is not None and end < span.first:
            place = f"{span.topic}, partition {span.partition}"
            notes.append(f"{place}: offsets {end} to {span.first} are neither archived nor live")
        parts.append(Part(span, start, span.end))
    return parts, notes


def _within(log: Log, part: Part, conditions: Conditions) -> Part:
    """The part of it that conditions of time, and the pages before, leave."""
    start, stop = part.start, part.stop
    if conditions.after is not None and part.span[:2] < conditions.after[:2]:
        start = stop
    if start < stop and conditions.since_ms is not None:
        start = max(start, log.offset_at(part.span, conditions.since_ms))
    if start < stop and conditions.until_ms is not None:
        stop = min(stop, log.offset_at(part.span, conditions.until_ms))
    return part._replace(start=start, stop=max(start, stop))


def _can_have(file: ArchiveFile, conditions: Conditions) -> bool:
    """By what the table says of it: it is not opened for this."""
    if conditions.since_ms is not None and file.max_time_ms < conditions.since_ms:
        return False
    if conditions.until_ms is not None and file.min_time_ms >= conditions.until_ms:
        return False
    after = conditions.after
    return after is None or (file.topic, file.partition, file.max_time_ms) >= after[:3]
