"""Options, ranges and offsets: tables, and a model for streams. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.errors import DataLoss, Usage
from zbus.spark.logs import Span
from zbus.spark.options import EARLIEST, LATEST, read_wish
from zbus.spark.source.planning import (
    Offsets,
    Part,
    find_spans,
    keep,
    limit,
    planned,
    reached,
    read_offsets,
    resolve,
    show_offsets,
    split,
    to_read,
)

BROKER = {"broker": "127.0.0.1:15555"}
ORDERS = {**BROKER, "topic": "orders"}


def span(first: int, end: int, topic: str = "orders", partition: int = 0, of: str = "1") -> Span:
    return Span(topic, partition, of, first, end, (end - first) * 1_000)


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "missing source"),
        (BROKER, "missing source"),
        ({"topic": "a"}, "set either broker"),
        ({"topic": "a", "path": "d", **BROKER}, "set either broker"),
        ({**ORDERS, "topics": "b"}, "one of topic, topics"),
        ({**ORDERS, "topicsPattern": ".*"}, "one of topic, topics"),
        ({**BROKER, "topic": ""}, "option topic: it is empty"),
        ({**BROKER, "topics": "a,a"}, "different names"),
        ({**BROKER, "topics": " , "}, "different names"),
        ({**BROKER, "topics": '["a,b", "a,b"]'}, "different names"),
        ({**BROKER, "topicsPattern": "("}, "not a regular expression"),
        ({**ORDERS, "topik": "a"}, "no option topik; did you mean topic?"),
        ({**ORDERS, "zzz": "a"}, "no option zzz; there are broker"),
        ({**ORDERS, "kafka.group.id": "a"}, "no option kafka.group.id"),
        ({**ORDERS, "columns": "topic,size"}, "no column size; there are topic"),
        ({**ORDERS, "failOnDataLoss": "yes"}, "true or false"),
        ({**ORDERS, "minPartitions": "0"}, "less than 1"),
        ({**ORDERS, "minPartitions": "-1"}, "not a number"),
        ({**ORDERS, "minPartitions": "\uff11"}, "not a number"),
        ({**ORDERS, "minPartitions": "9" * 40}, "not a number"),
        ({**ORDERS, "splitBytes": "0"}, "not a size"),
        ({**ORDERS, "splitBytes": "much"}, "not a size; for instance"),
        ({**ORDERS, "maxTriggerDelay": "soon"}, "not a duration; for instance"),
        ({**ORDERS, "startingOffsets": "first"}, "earliest, latest or offsets"),
        ({**ORDERS, "startingOffsets": "{"}, "option startingOffsets"),
        ({**ORDERS, "startingOffsets": "[1]"}, "earliest, latest or offsets"),
        ({**ORDERS, "startingOffsets": '{"orders": -3}'}, "-2 is the oldest"),
        ({**ORDERS, "startingOffsets": '{"orders": true}'}, "an offset is a number"),
        ({**ORDERS, "startingOffsets": '{"orders": {}}'}, "an offset is a number"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, "epoch milliseconds"),
        ({**ORDERS, "startingTimestampStrategy": "guess"}, "latest or error"),
        (
            {**ORDERS, "startingOffsets": "latest", "startingTimestamp": "1"},
            "contradicts another: say one of startingOffsets and startingTimestamp",
        ),
        ({"path": "d", "topic": "a", "group": "g"}, "only a broker has consumer groups"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], text: str) -> None:
    with pytest.raises(Usage) as caught:
        read_wish(options)
    assert text in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("a, b", ("a", "b")),
        ('["a,b", " c "]', ("a,b", " c ")),
        ("[a], b", ("[a]", "b")),
        ("[1]", ("[1]",)),
    ],
)
def test_names_of_topics(text: str, topics: tuple[str, ...]) -> None:
    assert read_wish({**BROKER, "topics": text}).topics == topics


def test_letters_case_does_not_matter() -> None:
    wish = read_wish({"BROKER": "a:1", "Topic": "orders", "maxoffsetspertrigger": "5"})
    assert (wish.where.broker, wish.topics, wish.trigger_rows_max) == ("a:1", ("orders",), 5)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-23T12:00:00Z", datetime(2026, 11, 23, 12, tzinfo=UTC)),
        ("2026-11-23T12:00:00+01:00", datetime(2026, 11, 23, 11, tzinfo=UTC)),
        ("2026-11-23", datetime(2026, 11, 23, tzinfo=UTC)),
        ("1795435200000", datetime(2026, 11, 23, 12, tzinfo=UTC)),
    ],
)
def test_times(text: str, time: datetime) -> None:
    assert read_wish({**ORDERS, "startingTimestamp": text}).start == time


# -- where a range begins -------------------------------------------------------------------------


def log_of(*topics: str) -> MemoryLog:
    log = MemoryLog()
    for number in range(4):
        for topic in topics:
            log.put(topic, [b"x"] * 10, time_ms=TIME_MS + number * 1_000)
    log.put("two", [b"x"] * 5)
    log.put("two", [b"x"] * 7, partition=1)
    return log


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"topic": "a"}, ["a"]),
        ({"topics": "b, a"}, ["b", "a"]),
        ({"topicsPattern": "a|b"}, ["a", "b"]),
        ({"topicsPattern": "a.*"}, ["a", "ab"]),
        ({"topicsPattern": "x"}, []),
    ],
)
def test_topics(options: dict[str, str], found: list[str]) -> None:
    spans = find_spans(log_of("a", "ab", "b"), read_wish({**BROKER, **options}))
    assert [each.topic for each in spans] == found


def at(ms: int) -> datetime:
    return datetime.fromtimestamp((TIME_MS + ms) / 1_000, UTC)


@pytest.mark.parametrize(
    ("topics", "place", "found"),
    [
        (("a",), EARLIEST, [3]),
        (("a",), LATEST, [40]),
        (("a",), {"a": 12}, [12]),
        (("a",), {"a": -1}, [40]),
        (("a",), {"a": 40}, [40]),
        (("a", "two"), {"a": 5, "two": {"0": 1, "1": -1}}, [5, 1, 7]),
        (("a", "two"), {"a": 5, "two": -2}, [5, 0, 0]),
        (("a",), at(0), [0]),
        (("a",), at(1), [10]),
        (("a",), at(2_000), [20]),
        (("a",), at(9_000), [40]),
    ],
)
def test_places(topics: tuple[str, ...], place: Any, found: list[int]) -> None:
    log = log_of("a")
    log.first["a", 0] = 3
    spans = [each for topic in topics for each in log.spans(topic)]
    assert resolve(log, spans, place) == found


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({"b": 1}, "the offsets are of b, and what is read is a, two"),
        ({"a": 1}, "the offsets are of a, and"),
        ({"a": 1, "two": 1}, "several partitions"),
        ({"a": 1, "two": {"0": 1}}, "partitions ['0', '1']"),
        ({"a": 41, "two": -1}, "ends at 40: there is no offset 41"),
    ],
)
def test_places_that_cannot_be(place: Any, text: str) -> None:
    log = log_of("a")
    with pytest.raises(Usage) as caught:
        resolve(log, [*log.spans("a"), *log.spans("two")], place)
    assert text in str(caught.value)


def test_nothing_at_or_after_the_time_can_be_an_error() -> None:
    log = log_of("a")
    with pytest.raises(Usage, match="nothing was stored at or after"):
        resolve(log, log.spans("a"), at(9_000), strict=True)


# -- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "options", "found"),
    [
        ([(0, 100)], {}, [(0, 100)]),
        ([(0, 100)], {"splitBytes": "50000"}, [(0, 50), (50, 100)]),
        ([(0, 100)], {"minPartitions": "3"}, [(0, 25), (25, 50), (50, 75), (75, 100)]),
        ([(0, 100)], {"maxRecordsPerPartition": "40"}, [(0, 33), (33, 66), (66, 100)]),
        ([(0, 3)], {"splitBytes": "1"}, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_splits(
    parts: list[tuple[int, int]], options: dict[str, str], found: list[tuple[int, int]]
) -> None:
    made = [Part(span(0, 100), *part) for part in parts]
    assert [part[1:] for part in split(made, read_wish({**ORDERS, **options}))] == found


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1_000)), min_size=1, max_size=5),
    st.integers(1, 500),
    st.integers(1, 50),
    st.integers(1, 100_000),
)
def test_pieces_are_the_whole(
    ranges: list[tuple[int, int]], records: int, partitions: int, size: int
) -> None:
    parts = [
        Part(span(0, 2_000, partition=number), start, start + count)
        for number, (start, count) in enumerate(ranges)
    ]
    options = {"maxRecordsPerPartition": str(records), "minPartitions": str(partitions)}
    wish = read_wish({**ORDERS, **options, "splitBytes": str(size)})
    pieces = split(parts, wish)
    for part in parts:
        mine = [piece for piece in pieces if piece.span == part.span]
        offsets = [offset for piece in mine for offset in range(piece.start, piece.stop)]
        assert offsets == list(range(part.start, part.stop))
        assert all(0 < piece.stop - piece.start <= records for piece in mine)


@pytest.mark.parametrize(
    ("sizes", "rows", "size", "found"),
    [
        ([100], 30, None, [30]),
        ([100, 100], 50, None, [25, 25]),
        ([1_000, 1], 10, None, [9, 1]),
        ([100], None, 30_000, [30]),
        ([100], 50, 30_000, [30]),
        ([100], 20, 30_000, [20]),
        ([100], None, 1, [1]),
        ([100, 50], None, None, [100, 50]),
        ([5, 5], 100, None, [5, 5]),
    ],
)
def test_limits(sizes: list[int], rows: int | None, size: int | None, found: list[int]) -> None:
    parts = [Part(span(0, count, partition=n), 0, count) for n, count in enumerate(sizes)]
    assert [part.stop for part in limit(parts, rows, size)] == found


def test_what_retention_has_dropped() -> None:
    parts = [Part(span(10, 20), 5, 15), Part(span(10, 20), 12, 12), Part(span(10, 20), 2, 8)]
    with pytest.raises(DataLoss, match="offsets 5 to 10 were dropped; failOnDataLoss=false"):
        keep(parts, fail=True)
    assert [part[1:] for part in keep(parts, fail=False)] == [(10, 15)]


# -- streams --------------------------------------------------------------------------------------

OLD: Offsets = {"orders": ("1", [5])}


def test_offsets_are_written_and_read() -> None:
    offsets: Offsets = {"b": ("2", [1, 2]), "a": ("1", [7])}
    shown = show_offsets(offsets)
    assert list(shown["t"]) == ["a", "b"]
    assert read_offsets(shown) == offsets


@pytest.mark.parametrize("said", [None, {}, {"v": 2, "t": {}}, {"v": 1}, {"v": 1, "t": {"a": 5}}])
def test_a_checkpoint_of_something_else(said: Any) -> None:
    with pytest.raises(Usage, match="checkpoint"):
        read_offsets(said)


@pytest.mark.parametrize(
    ("spans", "start", "found"),
    [
        ([span(0, 9)], OLD, [(5, 9)]),
        ([span(0, 5)], OLD, [(5, 5)]),
        ([span(0, 9), span(3, 4, "new")], OLD, [(3, 4), (5, 9)]),
        ([span(0, 9), span(0, 2, partition=1)], OLD, [(5, 9), (0, 2)]),
    ],
)
def test_what_is_to_be_read(
    spans: list[Span], start: Offsets, found: list[tuple[int, int]]
) -> None:
    assert [part[1:] for part in to_read(spans, start, fail=True)] == found


@pytest.mark.parametrize(
    ("spans", "text", "found"),
    [
        ([], "the topic orders is not there any more", []),
        ([span(0, 9, of="2")], "removed and made again", [(0, 9)]),
        ([span(0, 3)], "ends at 3, and offset 5 was there before", [(3, 3)]),
    ],
)
def test_a_log_that_is_another(spans: list[Span], text: str, found: list[tuple[int, int]]) -> None:
    with pytest.raises(DataLoss) as caught:
        to_read(spans, OLD, fail=True)
    assert text in str(caught.value)
    assert [part[1:] for part in to_read(spans, OLD, fail=False)] == found


@pytest.mark.parametrize(
    ("spans", "end", "found"),
    [
        ([span(0, 9)], {"orders": ("1", [8])}, [(5, 8)]),
        ([span(0, 9, of="2")], {"orders": ("1", [5])}, []),
        ([], {"orders": ("1", [5])}, []),
        ([span(0, 9), span(2, 4, "new")], {**OLD, "new": ("1", [3])}, [(2, 3)]),
    ],
)
def test_a_planned_batch(spans: list[Span], end: Offsets, found: list[tuple[int, int]]) -> None:
    assert [part[1:] for part in planned(spans, OLD, end, fail=True)] == found


@pytest.mark.parametrize(
    ("spans", "end", "text"),
    [
        ([], {"orders": ("1", [8])}, "not there any more"),
        ([span(0, 9, of="2")], {"orders": ("1", [8])}, "made again"),
        ([span(0, 7)], {"orders": ("1", [8])}, "ends at 7"),
        ([span(0, 9)], {"orders": ("1", [4])}, "from 5 back to 4"),
    ],
)
def test_a_planned_batch_that_is_gone(spans: list[Span], end: Offsets, text: str) -> None:
    with pytest.raises(DataLoss) as caught:
        planned(spans, OLD, end, fail=True)
    assert text in str(caught.value)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 9))), st.data())
def test_a_stream_reads_everything_once(
    puts: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Messages come, batches of any size are taken, batches are planned twice: each offset of each
    partition is read in exactly one batch, in order."""
    log = MemoryLog()
    read: dict[tuple[str, int], list[int]] = {}
    at_now: Offsets = {}
    wish = read_wish({**BROKER, "topicsPattern": ".*", "maxRecordsPerPartition": "3"})
    for topic, partition, count in [*puts, (None, 0, 0)]:
        if topic is not None:
            log.put(topic, [b"x"] * count, partition=partition)
            if data.draw(st.booleans()):
                continue
        for _ in range(100):
            ready = to_read(find_spans(log, wish), at_now, fail=True)
            rows = None if topic is None else data.draw(st.none() | st.integers(1, 20))
            end = reached(limit(ready, rows, None))
            if end == at_now:
                break
            parts = split(planned(find_spans(log, wish), at_now, end, fail=True), wish)
            assert parts == split(planned(find_spans(log, wish), at_now, end, fail=True), wish)
            for part in parts:
                key = part.span.topic, part.span.partition
                read.setdefault(key, []).extend(range(part.start, part.stop))
            at_now = read_offsets(show_offsets(end))
            if topic is not None:
                break
    for topic, lanes in log.stored.items():
        for number, _ in enumerate(lanes):
            end_offset = log.spans(topic)[number].end
            assert read.get((topic, number), []) == list(range(end_offset))
