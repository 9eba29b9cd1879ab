"""The log of a running broker, over HTTP: stored batches as they are (`read`).

One connection, made by the reader: in a task of Spark, one for each process. A range is asked
for in pieces; while one is decoded the next one is on its way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from zbus.client import errors
from zbus.client.blocking import Pending, Pipeline
from zbus.client.options import Options
from zbus.client.requests import Request, optional, start
from zbus.spark.clients import client_of, reported
from zbus.spark.errors import DataLoss
from zbus.spark.logs import Log, Span, of_users
from zbus.storage.errors import JournalDamage
from zbus.storage.format.batch import BatchHeader, headers_of
from zbus.wire.numbers import parse_number
from zbus.wire.responses import Response

PIECE_BYTES: Final = 4 << 20
"""Of one answer. Twice of that is slower by half: each would be fresh pages of memory, in the
broker and here, that the system has to clear first."""

_EMPTY_MAX: Final = 4
_AGAIN_S: Final = 0.1
"""An answer may be empty while the broker makes sure of what is stored: it is asked again."""

_SAMPLES: Final = 4
_SAMPLE_BYTES: Final = 64 << 10
_ACCEPT: Final = b"accept: application/vnd.zbus.batches\r\n"


class _Piece(NamedTuple):
    """Stored batches, and from where to where the log goes."""

    batches: bytes
    first: int
    end: int


class RemoteLog(Log):
    """Raises Unreachable, Usage."""

    def __init__(self, broker: str, options: Options) -> None:
        self._broker = broker
        self._client = client_of(broker, options)
        self._sizes: dict[tuple[str, int, str], tuple[int, int]] = {}  # messages, and their bytes

    def close(self) -> None:
        self._client.close()

    def topics(self) -> list[str]:
        with reported(self._broker):
            return of_users(self._client.server().topics)

    def ends(self, topic: str) -> list[Span]:
        with reported(self._broker, topic):
            info = self._client.query(topic)
            incarnation = str(info.created_ms)
            return [self._span(info.name, number, incarnation) for number in range(info.partitions)]

    def spans(self, topic: str) -> list[Span]:
        return [span._replace(bytes=self._estimate(span)) for span in self.ends(topic)]

    def offset_at(self, span: Span, time_ms: int) -> int:
        """By halving: times do not go back."""
        low, high = span.first, span.end  # all before `low` are earlier, and `high` is not
        while low < high:
            middle = (low + high) // 2
            header = self._header_at(span, middle)
            if header is None:  # retention was here meanwhile: what is left is later
                low = middle + 1
            elif header.time_ms >= time_ms:
                high = min(middle, header.base_offset)
            else:
                low = header.end_offset
        return max(min(low, span.end), span.first)

    def time_at(self, span: Span, offset: int) -> int | None:
        header = self._header_at(span, offset)
        return None if header is None else header.time_ms

    def _header_at(self, span: Span, offset: int) -> BatchHeader | None:
        """Of the batch that holds it; None if that is not there."""
        try:
            found = _headers(self._piece(span, offset, 1).batches)
        except DataLoss:
            return None
        return found[0] if found else None

    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes | memoryview]:
        self._require(span)
        at, empty = start, 0
        with self._client.pipeline(1) as pipeline:
            asked = self._ask(pipeline, span, at) if at < stop else None
            while asked is not None:
                piece = self._answered(asked, span, at, stop)
                found = _headers(piece.batches)
                if not found and (empty := empty + 1) < _EMPTY_MAX:
                    time.sleep(_AGAIN_S)
                    asked = self._ask(pipeline, span, at)
                    continue
                if not found or found[0].base_offset > at:
                    raise _lost(span, at, stop, piece)
                at, empty = found[-1].end_offset, 0
                asked = self._ask(pipeline, span, at) if at < stop else None
                yield piece.batches
        self._require(span)

    # -- asking -------------------------------------------------------------------------------

    def _ask(self, pipeline: Pipeline, span: Span, at: int) -> Pending[_Piece]:
        asked = pipeline.begin(_request(span, at, PIECE_BYTES))
        pipeline.flush()
        return asked

    def _answered(self, asked: Pending[_Piece], span: Span, at: int, stop: int) -> _Piece:
        with reported(self._broker, span.topic):
            try:
                return asked.result()
            except errors.NotFound as error:
                self._require(span)
                raise _lost(span, at, stop, None) from error

    def _piece(self, span: Span, at: int, bytes_max: int) -> _Piece:
        with reported(self._broker, span.topic):
            try:
                return self._client.run(_request(span, at, bytes_max))
            except errors.NotFound as error:
                raise _lost(span, at, span.end, None) from error

    def _span(self, topic: str, partition: int, incarnation: str) -> Span:
        """Raises ZbusError; NotFound also if it was removed a moment ago."""
        span = Span(topic, partition, incarnation, 0, 0, 0)
        piece = self._client.run(_request(span, None, 0))
        return span._replace(first=piece.first, end=piece.end)

    def _estimate(self, span: Span) -> int:
        """Bytes of a partition, by those of some of its messages. They are looked at again when
        it is another by a tenth."""
        count = span.end - span.first
        lane = span[:3]
        known, size = self._sizes.get(lane, (-1, 0))
        if abs(count - known) > known // 10:
            known, size = count, self._sampled(span)
            self._sizes[lane] = known, size
        return count * size // max(1, known)

    def _sampled(self, span: Span) -> int:
        count = span.end - span.first
        records = size = 0
        for number in range(_SAMPLES if count else 0):
            at = span.first + number * count // _SAMPLES
            try:
                found = _headers(self._piece(span, at, _SAMPLE_BYTES).batches)
            except DataLoss:  # retention was here meanwhile: the reader will report it
                continue
            records += sum(header.records for header in found)
            size += sum(header.length for header in found)
        return count * size // max(1, records)

    def _require(self, span: Span) -> None:
        """It is the topic that it was. Raises DataLoss."""
        with reported(self._broker, span.topic):
            try:
                created_ms = self._client.query(span.topic).created_ms
            except errors.NotFound as error:
                raise DataLoss(f"the topic {span.topic} is not there any more") from error
        if str(created_ms) != span.incarnation:
            text = "was removed and made again: its offsets are those of other messages"
            raise DataLoss(f"the topic {span.topic} {text}")


def _request(span: Span, at: int | None, bytes_max: int) -> Request[_Piece]:
    lines = start(b"read", span.topic)
    lines += optional(partition=span.partition, offset=at, bytes=bytes_max)
    return Request(lines + _ACCEPT, _parse)


def _parse(response: Response) -> _Piece:
    first, end = (parse_number(response.fields.get(name, b"")) for name in (b"first", b"end"))
    if response.status != 200 or first is None or end is None:
        raise errors.ProtocolError(f"an answer with status {response.status} to a read")
    return _Piece(response.body, first, end)


def _headers(batches: bytes) -> list[BatchHeader]:
    """Of whole batches. Raises DataLoss."""
    try:
        return list(headers_of(batches))
    except JournalDamage as error:
        raise DataLoss(f"the broker's batches are damaged: {error}") from error


def _lost(span: Span, at: int, stop: int, piece: _Piece | None) -> DataLoss:
    there = f": there are {piece.first} to {piece.end}" if piece is not None else ""
    place = f"{span.topic}, partition {span.partition}"
    return DataLoss(f"{place}: offsets {at} to {stop} are not there any more{there}")
