"""A stream is followed until it ends, or is ended."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from zbus.spark.etl.following import batches, stop_requested


class Stream:
    """A query of which each wait brings the next of these: the last batch that is done, or an
    error. Behind them it ends."""

    def __init__(self, *waits: int | Callable[[], int] | Exception) -> None:
        self._waits = list(waits)
        self.recentProgress: list[Any] = []
        self.stopped = 0

    def awaitTermination(self, timeout_s: float) -> bool:
        found = self._waits.pop(0)
        if isinstance(found, Exception):
            raise found
        last = found if isinstance(found, int) else found()
        idle = SimpleNamespace(batchId=last + 1, durationMs={"latestOffset": 1})
        done = [SimpleNamespace(batchId=n, durationMs={"addBatch": 1}) for n in range(last + 1)]
        self.recentProgress = [*done[-2:], idle]  # Spark keeps the last ones
        return not self._waits

    def stop(self) -> None:
        self.stopped += 1


def numbers(stream: Any) -> list[int]:
    return [progress.batchId for progress in batches(stream)]


def test_each_batch_once() -> None:
    stream = Stream(0, 0, 2, -1, 3)
    assert (numbers(stream), stream.stopped) == ([0, 1, 2, 3], 1)


def test_a_query_that_fails() -> None:
    stream = Stream(0, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        numbers(stream)
    assert stream.stopped == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def sent() -> int:
        signal.raise_signal(number)
        return 1

    stream = Stream(0, sent, 2, 3)
    assert (numbers(stream), stream.stopped) == ([0, 1], 1)
    assert signal.getsignal(number) is before


def test_nobody_has_sent_one() -> None:
    with stop_requested() as told:
        assert not told()
