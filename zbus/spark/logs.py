"""Logs that can be read in ranges of offsets: of a running broker, or in files on disk.

A range is read as stored batches (docs/reference/on-disk-format.md). Nobody's position changes.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

import attrs

from zbus.spark.errors import Usage

TOKEN_VARIABLE = "ZBUS_TOKEN"


class Span(NamedTuple):
    """What there is of a partition. `end` is behind the last durable message."""

    topic: str
    partition: int
    incarnation: str  # another topic of the same name has another
    first: int
    end: int
    bytes: int  # about


class Log(abc.ABC):
    """See the module. It is closed at the end of a `with`. Everything raises Unreachable."""

    @abc.abstractmethod
    def topics(self) -> list[str]:
        """All of them, in order."""

    @abc.abstractmethod
    def spans(self, topic: str) -> list[Span]:
        """Of each partition, in their order. Raises UnknownTopic."""

    @abc.abstractmethod
    def offset_at(self, span: Span, time_ms: int) -> int:
        """The first offset that was stored at this time or later; the end if there is none."""

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


@attrs.frozen(kw_only=True)
class Where:
    """A broker, or a directory. It travels to other machines, so it has no secret: a token is in a
    file or in the environment (`ZBUS_TOKEN`) of each of them."""

    broker: str | None = None
    path: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    patience_s: float = 60.0
    """A broker that cannot be reached is tried again for so long: it may be starting."""

    def open(self) -> Log:
        """The log. Raises Usage, Unreachable."""
        if (self.broker is None) == (self.path is None):
            raise Usage("say either broker (host:port) or path (a data directory or a backup)")
        if self.path is not None:
            from zbus.spark.files import FileLog

            return FileLog(self.path)
        from zbus.spark.remote import RemoteLog

        return RemoteLog(self)

    def token(self) -> str | None:
        """What the broker is told. Raises Usage."""
        if self.token_file is None:
            return os.environ.get(TOKEN_VARIABLE) or None
        try:
            with open(self.token_file, encoding="utf-8") as file:
                return file.read().strip() or None
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"the token file {self.token_file} cannot be read: {error}") from error

    def __str__(self) -> str:
        return self.path or self.broker or "nowhere"
