"""A stream is followed, batch by batch, until it ends or is stopped.

Ctrl-C and SIGTERM end it as a stop does: what is committed is committed, and the next run goes on
behind it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from zbus.spark.source.listener import Lag
from zbus.spark.source.location import Where

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1


def batches(
    query: StreamingQuery, where: Where | None = None, group: str | None = None
) -> Generator[Any, None, None]:
    """What Spark says of each batch that is done; the group is moved behind it. Afterwards the
    query is stopped. Raises what the query has ended with."""
    lag = Lag(where, group, report_lag=lambda _name, _lag: None) if group is not None else None
    last = -1
    with stop_requested() as stopping:
        try:
            ended = False
            while not ended:
                ended = bool(query.awaitTermination(POLL_S)) or stopping()
                for progress in query.recentProgress:
                    # One without that says that nothing came.
                    if progress.batchId > last and "addBatch" in progress.durationMs:
                        last = progress.batchId
                        if lag is not None:
                            lag.report(progress)
                        yield progress
        finally:
            query.stop()


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Meanwhile SIGTERM raises what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Meanwhile Ctrl-C and SIGTERM raise nothing; the function says whether there was one."""
    seen = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield seen.is_set  # signals are handled there
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: seen.set()) for number in numbers]
    try:
        yield seen.is_set
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
