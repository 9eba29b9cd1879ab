"""How far a job is, as a bar on stderr, if a person looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from zbus.spark.archive.tasks import Engine
    from zbus.spark.commands import Common

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress(Protocol):
    """Receives reports of progress."""

    def begin(self, total: int) -> None: ...

    def advance(self, done: int) -> None: ...


class Silence:
    """Reports no progress."""

    def begin(self, total: int) -> None: ...

    def advance(self, done: int) -> None: ...


class _Bar:
    """One. What is begun later comes on top."""

    def __init__(self, shown: Any, what: str) -> None:  # noqa: ANN401 - rich is imported late
        self._shown = shown
        self._task = shown.add_task(what, total=None)
        self._total = 0

    def begin(self, total: int) -> None:
        self._total += total
        self._shown.update(self._task, total=self._total)

    def advance(self, done: int) -> None:
        self._shown.advance(self._task, done)


def _somebody_looks(common: Common) -> bool:
    return not common.as_json and sys.stderr.isatty()


@contextmanager
def bar(common: Common, what: str, *, of_bytes: bool = False) -> Iterator[Progress]:
    """Of bytes, or of things."""
    if not _somebody_looks(common):
        yield Silence()
        return
    from rich import progress as rich
    from rich.console import Console

    columns: list[Any] = [rich.TextColumn("{task.description}"), rich.BarColumn()]
    columns += [rich.DownloadColumn(), rich.TransferSpeedColumn()] if of_bytes else []
    columns += [] if of_bytes else [rich.MofNCompleteColumn()]
    columns.append(rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield _Bar(shown, what)


class Watched:
    """An engine that tells how many of its tasks are done."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine = engine
        self._progress = progress

    @property
    def workers(self) -> int:
        return self._engine.workers

    def each(
        self, function: Callable[[Item], list[Result]], items: list[Item]
    ) -> Iterator[list[Result]]:
        self._progress.begin(len(items))
        for found in self._engine.each(function, items):
            self._progress.advance(1)
            yield found
