"""Logs for tests: stored batches in memory, with what they hold as dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from zbus.core.model.chunk import Chunk
from zbus.spark.errors import DataLoss, UnknownTopic
from zbus.spark.logs import Log, Span
from zbus.storage.format.batch import encode_chunk, read_header

TIME_MS = 1_800_000_000_000


def batch(
    first: int,
    bodies: Sequence[bytes],
    *,
    time_ms: int = TIME_MS,
    ids: Sequence[bytes] = (),
    tags: Sequence[bytes] | None = None,
    keys: Sequence[bytes] | None = None,
    headers: Sequence[bytes] = (),
    due: Sequence[int] | None = None,
    expires: Sequence[int] | None = None,
) -> bytes:
    """A stored DATA batch."""
    chunk = Chunk(first, time_ms)
    chunk.bodies = list(bodies)
    chunk.ids = list(ids) or [b""] * len(bodies)
    chunk.headers = list(headers) or [b""] * len(bodies)
    chunk.tags = None if tags is None else list(tags)
    chunk.keys = None if keys is None else list(keys)
    chunk.due = None if due is None else list(due)
    chunk.expires = None if expires is None else list(expires)
    return encode_chunk(chunk, 0).raw


class MemoryLog(Log):
    """Of topics with lists of stored batches for each partition. `first` may be moved."""

    def __init__(self) -> None:
        self.stored: dict[str, list[list[bytes]]] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.incarnations: dict[str, str] = {}
        self.asked = 0

    def put(self, topic: str, bodies: Sequence[bytes], partition: int = 0, **more: Any) -> None:
        """One batch at the end."""
        lanes = self.stored.setdefault(topic, [[]])
        lanes += [[] for _ in range(partition + 1 - len(lanes))]
        self.incarnations.setdefault(topic, "1")
        lane = lanes[partition]
        lane.append(batch(self._end(lane), bodies, **more))

    def _end(self, lane: list[bytes]) -> int:
        return read_header(lane[-1]).end_offset if lane else 0

    def topics(self) -> list[str]:
        return sorted(self.stored)

    def spans(self, topic: str) -> list[Span]:
        if topic not in self.stored:
            raise UnknownTopic(f"there is no topic {topic}")
        return [
            Span(
                topic,
                number,
                self.incarnations[topic],
                self.first.get((topic, number), 0),
                self._end(lane),
                sum(map(len, lane)),
            )
            for number, lane in enumerate(self.stored[topic])
        ]

    def offset_at(self, span: Span, time_ms: int) -> int:
        for raw in self.stored[span.topic][span.partition]:
            header = read_header(raw)
            if header.time_ms >= time_ms:
                return header.base_offset
        return span.end

    def time_at(self, span: Span, offset: int) -> int | None:
        for raw in self.stored[span.topic][span.partition]:
            header = read_header(raw)
            if header.base_offset <= offset < header.end_offset:
                return header.time_ms
        return None

    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes]:
        if self.incarnations.get(span.topic) != span.incarnation:
            raise DataLoss(f"the topic {span.topic} was made again")
        if start < self.first.get((span.topic, span.partition), 0):
            raise DataLoss(f"{span.topic}: offset {start} is not there any more")
        for raw in self.stored[span.topic][span.partition]:
            header = read_header(raw)
            if header.end_offset > start and header.base_offset < stop:
                yield raw


def moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1_000, UTC)
