"""Stored batches as Arrow: column by column, and without Python for each message.

A stored batch has its columns one after another, so the bytes of many batches are joined column by
column and become Arrow's buffers as they are. Small batches are gathered to about `ROWS_MAX` rows
or `BYTES_MAX` bytes; large ones are cut.

Lengths from a disk are as hostile as those from a peer: the checksum of each batch is verified, and
each length before it is used. What is damaged raises DataLoss and is never passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.errors import DataLoss
from zbus.spark.logs import Log, Span
from zbus.spark.source.columns import NAMES, arrow_schema
from zbus.storage.errors import JournalDamage
from zbus.storage.format.batch import HEADER_BYTES, BatchHeader, Kind, check, decode_chunk
from zbus.storage.format.columns import Column, encode_columns

ROWS_MAX: Final = 4_096
BYTES_MAX: Final = 4 << 20
"""Of one Arrow batch: Spark is fastest with a few megabytes."""

_TEXTS: Final = (Column.ID, Column.TAG, Column.KEY)
_U32 = struct.Struct("<I")
_EMPTY: Final = memoryview(b"")


def read(
    log: Log, span: Span, start: int, stop: int, names: Sequence[str] = NAMES
) -> Iterator[pa.RecordBatch]:
    """The messages from `start` to before `stop`, all of them. Raises DataLoss."""
    raw = log.raw(span, start, stop)
    return record_batches(raw, span, start, stop, names)


def record_batches(
    raw: Iterator[bytes | memoryview],
    span: Span,
    start: int,
    stop: int,
    names: Sequence[str] = NAMES,
) -> Iterator[pa.RecordBatch]:
    """The same, of stored batches in pieces of whole ones. Raises DataLoss if not all is there."""
    gathered = _Gathered(span, names)
    expected = start
    for piece in raw:
        for parts in _walk(memoryview(piece), span):
            header = parts.header
            first, last = max(expected, header.base_offset), min(stop, header.end_offset)
            if last <= expected:
                continue
            if header.base_offset > expected:
                raise _missing(span, expected, header.base_offset)
            yield from gathered.add(parts, first - header.base_offset, last - header.base_offset)
            expected = last
        if expected >= stop:
            break
    if expected < stop:
        raise _missing(span, expected, stop)
    yield from gathered.flush()


def _missing(span: Span, start: int, stop: int) -> DataLoss:
    place = f"{span.topic}, partition {span.partition}"
    return DataLoss(f"{place}: offsets {start} to {stop} are not there any more")


# -- where the columns of a batch are -------------------------------------------------------------


class _Text(NamedTuple):
    """A column of bytes: u32 lengths, and the bytes one after another."""

    lengths: memoryview
    data: memoryview


class _Parts(NamedTuple):
    """The columns of one batch, as pieces of its bytes. None: all of its values are empty."""

    header: BatchHeader
    texts: dict[int, _Text]
    which: memoryview | None  # of a dictionary of headers: u32, which of them each message has
    due: memoryview | None  # i64


def _walk(raw: memoryview, span: Span) -> Iterator[_Parts]:
    position = 0
    while position < len(raw):
        try:
            header = check(raw, position)  # type: ignore[arg-type]
            if header.kind is Kind.DATA:
                yield _parts(raw[position : position + header.length], header)
        except (JournalDamage, struct.error) as error:
            place = f"{span.topic}, partition {span.partition}"
            raise DataLoss(f"{place}: a stored batch is damaged: {error}") from error
        position += header.length


def _parts(raw: memoryview, header: BatchHeader) -> _Parts:
    flags, count = header.flags, header.records
    if header.version == 1:
        return _parts_of_version_1(raw)
    at = HEADER_BYTES
    texts: dict[int, _Text] = {}
    which = due = None
    for column in _TEXTS:
        if flags & column:
            texts[column], at = _text(raw, at, count)
    if flags & Column.DICTIONARY:
        distinct = _U32.unpack_from(raw, at)[0]
        start = at + 8
        at = _behind(raw, start, 4 * count)
        which = raw[start : start + 4 * count]
        texts[Column.HEADERS], at = _text(raw, at, distinct)
    elif flags & Column.HEADERS:
        texts[Column.HEADERS], at = _text(raw, at, count)
    if flags & Column.BODY:
        texts[Column.BODY], at = _text(raw, at, count)
    if flags & Column.DUE:
        due = raw[at : at + 8 * count]
        _behind(raw, at, 8 * count)
    return _Parts(header, texts, which, due)


def _parts_of_version_1(raw: memoryview) -> _Parts:
    """Written as today's format: there are few of these."""
    data = bytes(raw)
    chunk = decode_chunk(data)
    header = check(data)
    flags, parts = encode_columns(chunk)
    payload = b"".join(parts)
    again = header._replace(flags=flags, version=2, payload_length=len(payload))
    return _parts(memoryview(data[:HEADER_BYTES] + payload), again)


def _text(raw: memoryview, at: int, count: int) -> tuple[_Text, int]:
    start = _behind(raw, at, 4 * count)
    lengths = raw[at : at + 4 * count]
    stop = start + (_U32.unpack(lengths)[0] if count == 1 else _sum(lengths))
    return _Text(lengths, raw[start:stop]), _behind(raw, stop, 0)


def _sum(lengths: memoryview) -> int:
    if len(lengths) <= 64:
        return sum(struct.unpack(f"<{len(lengths) // 4}I", lengths))
    return int(np.frombuffer(lengths, "<u4").sum(dtype=np.int64))


def _behind(raw: memoryview, at: int, size: int) -> int:
    after = at + size + 7 & ~7
    if after > len(raw):
        raise JournalDamage(f"column at byte {at} is longer than its batch")
    return after


# -- many batches as one --------------------------------------------------------------------------


class _Gathered:
    """Batches until they are enough for one of Arrow's."""

    def __init__(self, span: Span, names: Sequence[str]) -> None:
        self._span = span
        self._names = list(names)
        self._schema = arrow_schema(self._names)
        self._begin()

    def _begin(self) -> None:
        self._parts: list[_Parts] = []
        self._rows = 0
        self._bytes = 0
        self._first = 0  # rows of the first batch that are not wanted
        self._last = 0  # rows of the last one that are not wanted

    def add(self, parts: _Parts, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The rows `first` to before `last` of a batch; gives what is enough."""
        header = parts.header
        if self._parts and self._bytes + header.length > BYTES_MAX:
            yield from self.flush()
        if not self._parts:
            self._first = first
        self._parts.append(parts)
        self._rows += header.records
        self._bytes += header.length
        self._last = header.records - last
        if self._last or self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        if not self._parts:
            return
        columns = [getattr(self, name)() for name in self._names]
        rows = self._rows - self._first - self._last
        whole = _of(columns, self._schema, self._rows).slice(self._first, rows)
        size = max(1, self._bytes)
        step = max(1, min(ROWS_MAX, self._rows * BYTES_MAX // size))
        for begin in range(0, rows, step):
            yield whole.slice(begin, step)
        self._begin()

    # -- columns, each by its name ------------------------------------------------------------

    def topic(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._span.topic, pa.string()), self._rows)

    def partition(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._span.partition, pa.int32()), self._rows)

    def offset(self) -> pa.Array:
        first = self._parts[0].header.base_offset
        return pa.array(np.arange(first, first + self._rows, dtype=np.int64))

    def timestamp(self) -> pa.Array:
        headers = [parts.header for parts in self._parts]
        times = np.array([header.time_ms for header in headers], dtype=np.int64)
        counts = np.array([header.records for header in headers], dtype=np.int64)
        return _times(np.repeat(times, counts))

    def id(self) -> pa.Array:
        """Those without one have the implied one, which says where they are."""
        column = Column.ID
        if not any(column in parts.texts for parts in self._parts):
            return self._implied()
        ids = self._string(column)
        if (
            all(column in parts.texts for parts in self._parts)
            and not pc.any(_is_empty(ids)).as_py()
        ):
            return ids
        return pc.if_else(_is_empty(ids), self._implied(), ids)

    def _implied(self) -> pa.Array:
        start = pa.scalar(f"{self._span.partition}-", pa.string())
        joint = pa.scalar("", pa.string())
        return pc.binary_join_element_wise(start, self.offset().cast(pa.string()), joint)

    def tag(self) -> pa.Array:
        return self._optional(Column.TAG)

    def key(self) -> pa.Array:
        return self._optional(Column.KEY)

    def _optional(self, column: Column) -> pa.Array:
        if not any(column in parts.texts for parts in self._parts):
            return pa.nulls(self._rows, pa.string())
        texts = self._string(column)
        return pc.if_else(_is_empty(texts), pa.scalar(None, pa.string()), texts)

    def body(self) -> pa.Array:
        return self._binary(Column.BODY)

    def deliver_at(self) -> pa.Array:
        if all(parts.due is None for parts in self._parts):
            return pa.nulls(self._rows, self._schema.field("deliver_at").type)
        pieces = [
            bytes(8 * parts.header.records) if parts.due is None else parts.due
            for parts in self._parts
        ]
        due_ms = np.frombuffer(b"".join(pieces), "<i8")
        return _times(due_ms, mask=due_ms == 0)

    def headers(self) -> pa.Array:
        """Each distinct block of lines is taken apart once."""
        blocks: list[_Text] = []
        which: list[np.ndarray[Any, Any]] = []
        known = 1  # number 0: there are none
        for parts in self._parts:
            count, text = parts.header.records, parts.texts.get(Column.HEADERS)
            if text is None:
                which.append(np.zeros(count, np.int64))
                continue
            distinct = len(text.lengths) // 4
            if parts.which is None:
                which.append(np.arange(known, known + count))
            else:
                numbers = np.frombuffer(parts.which, "<u4").astype(np.int64)
                if distinct == 0 or (len(numbers) and int(numbers.max()) >= distinct):
                    raise _damaged(self._span, "a dictionary has no such value")
                which.append(numbers + known)
            blocks.append(text)
            known += distinct
        lengths = b"".join([bytes(4), *(text.lengths for text in blocks)])
        data = b"".join([text.data for text in blocks])
        maps = _maps(_binary_array(lengths, data))
        if known == 1 + self._rows and all(parts.which is None for parts in self._parts):
            return maps.slice(1)
        return maps.take(pa.array(np.concatenate(which)))

    def _binary(self, column: Column) -> pa.Array:
        lengths, data = [], []
        for parts in self._parts:
            text = parts.texts.get(column)
            lengths.append(bytes(4 * parts.header.records) if text is None else text.lengths)
            data.append(_EMPTY if text is None else text.data)
        return _binary_array(b"".join(lengths), b"".join(data))

    def _string(self, column: Column) -> pa.Array:
        return _as_text(self._binary(column))


def _of(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _damaged(span: Span, why: str) -> DataLoss:
    return DataLoss(f"{span.topic}, partition {span.partition}: a stored batch is damaged: {why}")


def _times(times_ms: np.ndarray[Any, Any], mask: np.ndarray[Any, Any] | None = None) -> pa.Array:
    return pa.array(times_ms * 1_000, mask=mask).cast(pa.timestamp("us", tz="UTC"))


def _is_empty(texts: pa.Array) -> pa.Array:
    return pc.equal(pc.binary_length(texts), 0)


def _binary_array(lengths: bytes, data: bytes) -> pa.Array:
    count = len(lengths) // 4
    if len(data) >= 1 << 31:
        raise DataLoss("a stored batch has more than 2 GiB of one column: Arrow cannot hold it")
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.frombuffer(lengths, "<u4"), out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _as_text(values: pa.Array) -> pa.Array:
    """A line that is not UTF-8 is taken for Latin-1."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_text_of(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def _text_of(value: bytes) -> str:
    lines = []
    for line in value.split(b"\r\n"):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            lines.append(line.decode("latin-1"))
    return "\r\n".join(lines)


def _maps(blocks: pa.Array) -> pa.Array:
    """Of blocks of lines `name: value`, each with CR LF."""
    lines = pc.split_pattern(_as_text(blocks), "\r\n")
    counts = np.diff(np.asarray(lines.offsets)) - 1  # behind the last CR LF is nothing
    ends = np.asarray(lines.offsets)[1:] - 1
    flat = lines.flatten()
    keep = np.ones(len(flat), bool)
    keep[ends - lines.offsets[0].as_py()] = False
    pairs = pc.split_pattern(flat.filter(pa.array(keep)), ": ", max_splits=1)
    offsets = np.zeros(len(blocks) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    names = pc.list_element(pairs, 0)
    whole = pc.equal(pc.list_value_length(pairs), 2)
    if not pc.all(whole, min_count=0).as_py():  # never written so; not worth a message
        pairs = pa.array([[*pair, ""][:2] for pair in pairs.to_pylist()], pairs.type)
        names = pc.list_element(pairs, 0)
    return pa.MapArray.from_arrays(pa.array(offsets), names, pc.list_element(pairs, 1))
