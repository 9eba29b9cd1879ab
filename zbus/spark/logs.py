"""Logs that can be read in ranges of offsets: of a running broker, or in files on disk.

A range is read as stored batches (docs/reference/on-disk-format.md). No group's position changes.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

OF_ZBUS: Final = ("cron.", "spark.start.", "txn.")
"""Begin the names of topics that zbus makes for its own books: schedules, where queries have begun,
what is staged."""


def of_users(names: Iterable[str]) -> list[str]:
    """In order, without those: they are read by who names them, and are no part of "all"."""
    return sorted(name for name in names if not name.lower().startswith(OF_ZBUS))


class Span(NamedTuple):
    """What there is of a partition. `end` is behind the last durable message."""

    topic: str
    partition: int
    incarnation: str  # another topic of the same name has another
    first: int
    end: int
    bytes: int  # about


class Log(abc.ABC):
    """It is closed at the end of a `with`. Everything raises Unreachable."""

    @abc.abstractmethod
    def topics(self) -> list[str]:
        """All but those of zbus itself, in order."""

    @abc.abstractmethod
    def spans(self, topic: str) -> list[Span]:
        """Of each partition, in their order. Raises UnknownTopic."""

    def ends(self, topic: str) -> list[Span]:
        """The same, but `bytes` may be 0: for who asks often."""
        return self.spans(topic)

    @abc.abstractmethod
    def offset_at(self, span: Span, time_ms: int) -> int:
        """The first offset that was stored at this time or later; the end if there is none."""

    @abc.abstractmethod
    def time_at(self, span: Span, offset: int) -> int | None:
        """When it was stored, epoch milliseconds; None if that is not known any more."""

    @abc.abstractmethod
    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes | memoryview]:
        """Whole batches in order, that together hold `start` to before `stop` of this span, and
        perhaps more. Raises DataLoss if some of that is not there any more."""

    def close(self) -> None:  # noqa: B027 - a log may have nothing to let go of
        """Let go of connections and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
