"""Stored batches as Arrow: against what the broker's own decoder reads of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.stored import TIME_MS, MemoryLog, batch, moment
from zbus.dialects.zbus.request.header_lines import text_of
from zbus.spark.errors import DataLoss
from zbus.spark.logs import Span
from zbus.spark.source.arrows import read, record_batches
from zbus.spark.source.columns import NAMES, arrow_schema
from zbus.storage.format.batch import decode_chunk, read_header

SPAN = Span("orders", 2, "1", 0, 1_000, 0)


def rows(raw: bytes, start: int, stop: int, names: tuple[str, ...] = NAMES) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in record_batches(iter([raw]), SPAN, start, stop, names):
        each.validate(full=True)
        assert each.schema.equals(arrow_schema(names))
        found += each.to_pylist()
    return found


def expected(raws: list[bytes], start: int, stop: int) -> list[dict[str, Any]]:
    """Message by message."""
    found = []
    for raw in raws:
        chunk = decode_chunk(raw)
        for at in range(len(chunk.bodies)):
            offset = chunk.first + at
            lines = [line for line in chunk.headers[at].split(b"\r\n") if line]
            pairs = [text_of(line).partition(": ") for line in lines]
            due_ms = chunk.due[at] if chunk.due is not None else 0
            tag = chunk.tags[at] if chunk.tags is not None else b""
            key = chunk.keys[at] if chunk.keys is not None else b""
            row = {
                "topic": "orders",
                "partition": 2,
                "offset": offset,
                "timestamp": moment(read_header(raw).time_ms),
                "id": text_of(chunk.ids[at]) or f"2-{offset}",
                "tag": text_of(tag) or None,
                "key": text_of(key) or None,
                "headers": [(name, value) for name, _, value in pairs],
                "body": chunk.bodies[at],
                "deliver_at": moment(due_ms) if due_ms else None,
            }
            if start <= offset < stop:
                found.append(row)
    return found


WORD = st.sampled_from([b"", b"a", b"eu.de", "kööö".encode(), b"\xff\xfe", b"x" * 40])
LINES = st.sampled_from(
    [b"", b"a: 1\r\n", b"a: b: c\r\nd: \r\n", b"content-type: text/plain\r\n", b"x: \xff\r\n"]
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    raws = []
    first = draw(st.integers(0, 5))
    for number in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 6))

        def some(values: st.SearchStrategy[Any], count: int = count) -> list[Any]:
            return draw(st.lists(values, min_size=count, max_size=count))

        raws.append(
            batch(
                first,
                some(WORD),
                time_ms=TIME_MS + number,
                ids=some(WORD),
                tags=draw(st.none()) or some(WORD),
                keys=some(WORD) if draw(st.booleans()) else None,
                headers=some(LINES),
                due=some(st.sampled_from([0, 0, TIME_MS + 5])) if draw(st.booleans()) else None,
                expires=some(st.sampled_from([0, TIME_MS])) if draw(st.booleans()) else None,
            )
        )
        first += count
    return raws


@given(logs(), st.data())
def test_it_is_what_the_broker_reads(raws: list[bytes], data: st.DataObject) -> None:
    first, end = read_header(raws[0]).base_offset, read_header(raws[-1]).end_offset
    start = data.draw(st.integers(first, end))
    stop = data.draw(st.integers(start, end))
    assert rows(b"".join(raws), start, stop) == expected(raws, start, stop)


@given(logs(), st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
def test_a_projection_has_the_same_values(raws: list[bytes], names: list[str]) -> None:
    first, end = read_header(raws[0]).base_offset, read_header(raws[-1]).end_offset
    whole = [{name: row[name] for name in names} for row in expected(raws, first, end)]
    assert rows(b"".join(raws), first, end, tuple(names)) == whole


def test_small_batches_are_gathered_and_large_ones_are_cut() -> None:
    small = [batch(at, [b"x"]) for at in range(5_000)]
    sizes = [each.num_rows for each in record_batches(iter(small), SPAN, 0, 5_000)]
    assert sizes == [4_096, 904]
    large = batch(0, [b"x" * 1_000] * 20_000)
    sizes = [each.num_rows for each in record_batches(iter([large]), SPAN, 5, 20_000)]
    assert sum(sizes) == 19_995
    assert max(sizes) <= 4_096
    one = batch(0, [b"x" * (9 << 20)])
    assert [each.num_rows for each in record_batches(iter([one]), SPAN, 0, 1)] == [1]


def test_no_column_is_still_so_many_rows() -> None:
    raw = batch(0, [b"x"] * 7)
    assert [each.num_rows for each in record_batches(iter([raw]), SPAN, 2, 7, ())] == [5]


def test_batches_without_messages_are_passed_over() -> None:
    from zbus.storage.format.batch import Kind, encode_state

    state = encode_state(Kind.STATE, 1, TIME_MS, b"12345678", 0).raw
    raw = batch(0, [b"a"]) + state + batch(1, [b"b"])
    assert [row["body"] for row in rows(raw, 0, 2)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("raw", "start", "stop", "text"),
    [
        (batch(5, [b"x"]), 3, 6, "offsets 3 to 5 are not there"),
        (batch(5, [b"x"]), 5, 8, "offsets 6 to 8 are not there"),
        (batch(0, [b"x"]) + batch(3, [b"y"]), 0, 4, "offsets 1 to 3 are not there"),
        (b"", 0, 1, "offsets 0 to 1 are not there"),
        (batch(0, [b"x"])[:-8], 0, 1, "damaged"),
        (batch(0, [b"x"])[:30], 0, 1, "damaged"),
        (b"x" * 80, 0, 1, "damaged"),
        (batch(0, [b"body"]).replace(b"body", b"bodi"), 0, 1, "damaged"),
    ],
)
def test_what_is_not_whole_is_data_loss(raw: bytes, start: int, stop: int, text: str) -> None:
    with pytest.raises(DataLoss, match=text):
        rows(raw, start, stop)


def test_a_log_is_read_between_two_offsets() -> None:
    log = MemoryLog()
    for number in range(10):
        log.put("orders", [b"%d" % number] * 3)
    (span,) = log.spans("orders")
    found = [body for each in read(log, span, 4, 11) for body in each.column("body").to_pylist()]
    assert found == [b"1", b"1", b"2", b"2", b"2", b"3", b"3"]
