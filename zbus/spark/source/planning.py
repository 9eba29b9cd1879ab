"""Which messages a read is about, and in which parts. No IO but a log's answers.

A span is what there is of a partition; a part is a range of it that one task reads. What a stream
has read is told by `Offsets`: of each topic its incarnation, and the next offset of each partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from zbus.spark.errors import DataLoss, UnknownTopic, Usage
from zbus.spark.logs import Log, Span
from zbus.spark.options import EARLIEST, LATEST, Place, Wish
from zbus.spark.times import ceil_ms

PARTS_MAX: Final = 100_000

Offsets = dict[str, tuple[str, list[int]]]
"""By topic: its incarnation, and the next offset of each partition."""


class Part(NamedTuple):
    """What a task reads."""

    span: Span
    start: int
    stop: int


# -- what there is --------------------------------------------------------------------------------


def find_spans(log: Log, wish: Wish, known: Offsets | None = None) -> list[Span]:
    """Of the topics that are meant; those of a pattern that are removed meanwhile, and those that
    are `known`, may be gone. Raises UnknownTopic for others."""
    return _spans(log.spans, log, wish, known or {})


def find_ends(log: Log, wish: Wish, known: Offsets | None = None) -> list[Span]:
    """The same without sizes, which is cheaper."""
    return _spans(log.ends, log, wish, known or {})


def _spans(look: Callable[[str], list[Span]], log: Log, wish: Wish, known: Offsets) -> list[Span]:
    names: Iterable[str] = wish.topics
    if wish.pattern is not None:
        pattern = re.compile(wish.pattern)
        names = [topic for topic in log.topics() if pattern.fullmatch(topic)]
    may_go = {topic.lower() for topic in known}
    found = []
    for name in names:
        try:
            found += look(name)
        except UnknownTopic:
            if wish.pattern is None and name.lower() not in may_go:
                raise
    return found


def require_meant(wish: Wish, offsets: Offsets) -> None:
    """What a stream has read is among what it is to read. Raises Usage."""
    if wish.pattern is not None:
        pattern = re.compile(wish.pattern)
        others = [topic for topic in offsets if not pattern.fullmatch(topic)]
    else:
        meant = {topic.lower() for topic in wish.topics}
        others = [topic for topic in offsets if topic.lower() not in meant]
    if others and wish.fail_on_data_loss:
        text = f"the checkpoint is of topics {', '.join(sorted(offsets))}"
        text = f"{text}, and {', '.join(sorted(others))} is not to be read any more: name it, or"
        raise Usage(f"{text} take another checkpoint; failOnDataLoss=false goes on without it")


def resolve(log: Log, spans: Sequence[Span], place: Place, strict: bool = False) -> list[int]:
    """The offset of a place in each span. Raises Usage for a map that names other topics, or an
    offset past the end; with `strict` also if nothing is at or after the time."""
    if isinstance(place, datetime):
        time_ms = ceil_ms(place)
        found = [log.offset_at(span, time_ms) for span in spans]
        for span, offset in zip(spans, found, strict=True):
            if strict and offset == span.end:
                raise Usage(f"{_name(span)}: nothing was stored at or after {place.isoformat()}")
        return found
    if isinstance(place, int):
        return [span.first if place == EARLIEST else span.end for span in spans]
    topics = {span.topic for span in spans}
    if set(place) != topics:
        given, meant = ", ".join(sorted(place)), ", ".join(sorted(topics))
        raise Usage(f"the offsets are of {given}, and what is read is {meant}")
    return [_resolve_one(span, place[span.topic], spans) for span in spans]


def _resolve_one(span: Span, given: Any, spans: Sequence[Span]) -> int:  # noqa: ANN401 - JSON
    if isinstance(given, dict):
        numbers = {str(each.partition) for each in spans if each.topic == span.topic}
        if set(given) != numbers:
            raise Usage(f"the offsets of {span.topic} are to be of partitions {sorted(numbers)}")
        given = given[str(span.partition)]
    elif sum(each.topic == span.topic for each in spans) > 1 and given >= 0:
        text = 'has several partitions: say an offset for each, {"0": 5, "1": 7}'
        raise Usage(f"{span.topic} {text}")
    if given in (EARLIEST, LATEST):
        return span.first if given == EARLIEST else span.end
    offset: int = given
    if offset > span.end:
        raise Usage(f"{_name(span)} ends at {span.end}: there is no offset {offset}")
    return offset


def _name(span: Span) -> str:
    return f"{span.topic}, partition {span.partition}"


# -- parts ----------------------------------------------------------------------------------------


def keep(parts: Sequence[Part], fail: bool) -> list[Part]:
    """Those that can be read: what has been dropped by retention is data loss, or left out."""
    kept = []
    for part in parts:
        if part.start < min(part.span.first, part.stop):
            if fail:
                first = part.span.first
                text = f"{_name(part.span)}: offsets {part.start} to {first} were dropped"
                raise DataLoss(f"{text}; failOnDataLoss=false reads on at {first}")
            part = part._replace(start=min(part.span.first, part.stop))
        if part.start < part.stop:
            kept.append(part)
    return kept


def split(parts: Sequence[Part], wish: Wish) -> list[Part]:
    """In pieces of about `split_bytes`, of at most `records_max`, and of at least that many."""
    total = sum(_bytes(part) for part in parts)
    size = wish.split_bytes
    if wish.partitions_min:
        size = min(size, max(1, total // wish.partitions_min))
    found = []
    for part in parts:
        rows = part.stop - part.start
        if not rows:
            continue
        count = max(1, -(-_bytes(part) // max(1, size)))
        if wish.records_max is not None:
            count = max(count, -(-rows // wish.records_max))
        count = min(count, rows, PARTS_MAX)
        bounds = [part.start + rows * number // count for number in range(count + 1)]
        found += [part._replace(start=start, stop=stop) for start, stop in pairwise(bounds)]
    return found


def _bytes(part: Part) -> int:
    span = part.span
    return span.bytes * (part.stop - part.start) // max(1, span.end - span.first)


def limit(parts: Sequence[Part], rows_max: int | None, bytes_max: int | None) -> list[Part]:
    """Less of each, in proportion, but at least one message if there is one."""
    rows = sum(part.stop - part.start for part in parts)
    size = sum(_bytes(part) for part in parts)
    share = 1.0
    if rows_max is not None and rows > rows_max:
        share = rows_max / rows
    if bytes_max is not None and size > bytes_max:
        share = min(share, bytes_max / size)
    if share >= 1:
        return list(parts)
    found = []
    for part in parts:
        rows = part.stop - part.start
        found.append(part._replace(stop=part.start + min(rows, max(1, int(rows * share)))))
    return found


# -- what a stream has read -----------------------------------------------------------------------


def show_offsets(offsets: Offsets) -> dict[str, Any]:
    """As Spark keeps them. Equal ones have the same text: Spark compares it."""
    return {"v": 1, "t": {topic: list(offsets[topic]) for topic in sorted(offsets)}}


def read_offsets(given: Any) -> Offsets:  # noqa: ANN401 - JSON of a checkpoint
    """What `show_offsets` made. Raises Usage."""
    try:
        stored = msgspec.convert(given, _Stored)
    except msgspec.ValidationError as error:
        raise Usage(f"the checkpoint is not one of this source: {error}") from error
    if stored.v != 1:
        raise Usage(f"the checkpoint is of version {stored.v}, which this program does not know")
    return dict(stored.t)


class _Stored(msgspec.Struct):
    t: dict[str, tuple[str, list[int]]]
    v: int = 0


def offsets_of(spans: Sequence[Span], offsets: Sequence[int]) -> Offsets:
    found: Offsets = {}
    for span, offset in zip(spans, offsets, strict=True):
        found.setdefault(span.topic, (span.incarnation, []))[1].append(offset)
    return found


def to_read(spans: Sequence[Span], start: Offsets, fail: bool) -> list[Part]:
    """What came after `start`. A topic that is not in it is new, and read from its beginning. One
    that is gone, or was made again, is data loss, or begins anew."""
    _require({topic: own for topic, (own, offsets) in start.items() if offsets}, spans, fail)
    return [
        Part(span, _not_behind(span, next_of(start, span, span.first), fail), span.end)
        for span in sorted(spans, key=_topic)
    ]


def planned(spans: Sequence[Span], start: Offsets, end: Offsets, fail: bool) -> list[Part]:
    """What is between the two. Raises DataLoss for what cannot be read any more, or leaves it."""
    moved = {topic: own for topic, (own, stops) in end.items() if start.get(topic) != (own, stops)}
    _require(moved, spans, fail)
    parts = []
    for span in sorted(spans, key=_topic):
        stop = next_of(end, span, -1)
        if span.topic in moved and stop >= 0:
            first = next_of(start, span, span.first)
            if first > stop:
                raise DataLoss(f"{_name(span)}: a batch goes from {first} back to {stop}")
            parts.append(Part(span, first, _not_behind(span, stop, fail)))
    return parts


def next_of(offsets: Offsets, span: Span, otherwise: int) -> int:
    """The next offset of this partition; it may be new, or of a topic that was made again."""
    incarnation, found = offsets.get(span.topic, ("", []))
    known = incarnation == span.incarnation and span.partition < len(found)
    return found[span.partition] if known else otherwise


def _topic(span: Span) -> str:
    return span.topic


def _require(incarnations: Mapping[str, str], spans: Sequence[Span], fail: bool) -> None:
    """These topics are there, and are what they were. Raises DataLoss."""
    there = {span.topic: span.incarnation for span in spans}
    for topic, incarnation in sorted(incarnations.items()):
        if fail and there.get(topic) != incarnation:
            what = "was removed and made again" if topic in there else "is not there any more"
            text = f"the topic {topic} {what} since it was read"
            raise DataLoss(f"{text}; failOnDataLoss=false goes on without what is lost")


def _not_behind(span: Span, offset: int, fail: bool) -> int:
    if offset > span.end and fail:
        text = f"{_name(span)} ends at {span.end}, and offset {offset} was there before"
        raise DataLoss(f"{text}: it is not the log that was read; failOnDataLoss=false goes on")
    return min(offset, span.end)


def reached(parts: Sequence[Part]) -> Offsets:
    """Where a stream is that has read these; all partitions are among them."""
    return offsets_of([part.span for part in parts], [part.stop for part in parts])
